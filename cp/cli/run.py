"""`koguma run`: the control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cp.access.rights_file import BadAccessFile
from cp.cli.options import SettingsFile
from cp.client.problem import Problem
from cp.listening import CannotListen
from cp.model.wording import printable
from cp.settings import BadSettings, LogFormat, LogLevel, Settings, described, load, variable
from cp.store.port import Unusable

_OURS_ALONE: Final = 0o700  # there are secrets in it

Store = Annotated[str | None, typer.Option(metavar="URL", help=described("store"))]
Registrations = Annotated[str | None, typer.Option(metavar="URL", help=described("registrations"))]
Bind = Annotated[str | None, typer.Option(metavar="ADDRESS", help=described("bind"))]
AdsPort = Annotated[int | None, typer.Option(help=described("ads_port"))]
HttpPort = Annotated[int | None, typer.Option(help=described("http_port"))]
DiagnosticsPort = Annotated[int | None, typer.Option(help=described("diagnostics_port"))]
ApiHosts = Annotated[str | None, typer.Option(metavar="NAMES", help=described("api_hosts"))]
Workers = Annotated[int | None, typer.Option(help=described("workers"))]
Level = Annotated[LogLevel | None, typer.Option("--log-level", help=described("log_level"))]
Format = Annotated[LogFormat | None, typer.Option("--log-format", help=described("log_format"))]
LogFile = Annotated[str | None, typer.Option("--log-file", metavar="FILE", help=described("log_file"))]


def run(  # noqa: PLR0913  # an option each
    *,
    config: SettingsFile = None,
    store: Store = None,
    registrations: Registrations = None,
    bind: Bind = None,
    ads_port: AdsPort = None,
    http_port: HttpPort = None,
    diagnostics_port: DiagnosticsPort = None,
    api_hosts: ApiHosts = None,
    workers: Workers = None,
    log_level: Level = None,
    log_format: Format = None,
    log_file: LogFile = None,
) -> None:
    """Run the control plane, in the foreground.

    A setting is taken from an option or else from the environment, and if it is in neither, from the file.
    """
    settings = _settings(
        config=config,
        store=store,
        registrations=registrations,
        bind=bind,
        ads_port=ads_port,
        http_port=http_port,
        diagnostics_port=diagnostics_port,
        api_hosts=api_hosts,
        workers=workers,
        log_level=log_level,
        log_format=log_format,
        log_file=log_file,
    )
    _make_work_dir(settings)
    _serve(settings)


def _settings(**options: Any) -> Settings:
    try:
        return load(**options)
    except BadSettings as error:
        raise _bad_settings(error) from None


def _make_work_dir(settings: Settings) -> None:
    """Create the work folder, but only if the store is in it. One that is there keeps its mode."""
    if Path(settings.store.removeprefix("sqlite:///")).parent != settings.work_dir:
        return
    try:
        settings.work_dir.mkdir(_OURS_ALONE, parents=True, exist_ok=True)
    except OSError as error:
        hint = "Name another store with --store, or another folder with KUMA_GENERAL_WORK_DIR."
        raise Problem(f"{settings.work_dir} cannot be made: {error.strerror}", hint) from None


def _serve(settings: Settings) -> None:
    """Run the server. It is imported here, since no other command needs it."""
    from cp import app  # noqa: PLC0415

    try:
        app.run(settings)
    except BaseExceptionGroup as group:
        first = next(_leaves(group))
        raise _problem(first) or first from None
    except (OSError, ValueError, Unusable, BadAccessFile, BadSettings) as error:
        raise _problem(error) or error from None


def _bad_settings(error: BadSettings) -> Problem:
    return Problem("\n".join(error.faults), "See docs/reference/settings.md for all settings.")


def _problem(error: BaseException) -> Problem | None:
    """The problem to print if an operator can do something about an error; else None."""
    if isinstance(error, BadSettings):
        return _bad_settings(error)
    if isinstance(error, CannotListen):
        return Problem(str(error), error.hint)
    if isinstance(error, BadAccessFile):
        return Problem(str(error), f"Correct the file, or start without it (leave out {variable('access_file')}).")
    if isinstance(error, OSError | ValueError | Unusable):
        return Problem(printable(str(error)))  # a database may say anything, and begin lines of its own
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
