"""The command line: which command is which function.

A command's module is imported when the command is run, or its own help is asked for: nobody who asks for the version
waits for what a control plane needs. So the one line that stands for a command in a list of commands is written here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from cp.cli.connection import with_options
from cp.cli.environment import warnings
from cp.client.problem import reporting_problems
from cp.model.wording import plain

Words = tuple[str, ...]
"""A command as it is typed, such as `("dp", "run")`."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: the module and the name of its function, and its line in a list of commands."""

    module: str
    function: str
    summary: str


COMMANDS: Final[Mapping[Words, CommandEntry]] = {
    ("run",): CommandEntry("cp.cli.run", "run", "Run the control plane, in the foreground."),
    ("dp", "run"): CommandEntry("cp.cli.dp", "run", "Run Envoy as the proxy of a Dataplane."),
    ("dp", "grpc-bootstrap"): CommandEntry("cp.cli.dp", "grpc_bootstrap", "Print the bootstrap of a gRPC client."),
    ("validate",): CommandEntry("cp.cli.validate", "validate", "Check files without a control plane."),
    ("lint",): CommandEntry("cp.cli.lint", "lint", "Report what is wrong, has no effect, or cannot work."),
    ("render",): CommandEntry("cp.cli.render", "render", "Show the Envoy configuration of a proxy."),
    ("inspect",): CommandEntry(
        "cp.cli.inspect", "inspect", "Show what proxies have accepted, or where a policy has effect."
    ),
    ("explain",): CommandEntry("cp.cli.explain", "explain", "Explain a call: where it goes, and why."),
    ("apply",): CommandEntry("cp.cli.resources", "apply", "Create or update resources from files."),
    ("get",): CommandEntry("cp.cli.resources", "get", "Show the resources of a type, or one of them."),
    ("delete",): CommandEntry("cp.cli.resources", "delete", "Delete a resource, or all resources in some files."),
    ("backup",): CommandEntry(
        "cp.cli.backup", "backup", "Copy the store to a file, also while the control plane runs."
    ),
    ("generate", "dataplane-token"): CommandEntry(
        "cp.cli.generate", "dataplane_token", "Print a token with which a proxy gets its configuration."
    ),
    ("generate", "user-token"): CommandEntry(
        "cp.cli.generate", "user_token", "Print a token with which a person calls the HTTP API."
    ),
    ("generate", "zone-token"): CommandEntry(
        "cp.cli.generate", "zone_token", "Print a token for the services of a zone."
    ),
    ("generate", "signing-key"): CommandEntry(
        "cp.cli.generate", "signing_key", "Print a new key that can sign tokens."
    ),
    ("generate", "public-key"): CommandEntry(
        "cp.cli.generate", "public_key", "Print the public half of a signing key."
    ),
    ("generate", "tls-certificate"): CommandEntry(
        "cp.cli.certificates", "tls_certificate", "Write a certificate that signs itself, and its key."
    ),
    ("version",): CommandEntry("cp.cli.main", "version", "Print the version."),
}
GROUPS: Final[Mapping[Words, str]] = {
    ("dp",): "Proxies beside workloads.",
    ("generate",): "Tokens, the keys that sign them, and certificates.",
}


def version() -> None:
    """Print the version."""
    from cp.version import VERSION  # noqa: PLC0415  # asking for it takes longer than most commands need

    typer.echo(f"koguma {VERSION}")


def build() -> typer.Typer:
    """The command line, with every command."""
    app = typer.Typer(
        cls=_group(()),
        help="Koguma: a control plane for Envoy that explains itself.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_top)
    return app


def _top(
    *, version_: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False
) -> None:
    for warning in warnings(os.environ):  # noqa: TID251  # names that no setting has
        typer.echo(f"Warning: {warning}", err=True)
    if version_:
        version()
        raise typer.Exit


class _Command(TyperCommand):
    """A command with plain messages about invalid arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = plain(error.message)
            raise


class _Commands(MutableMapping[str, Any]):
    """The commands of a group, each imported when it is first used."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load((*self._words, name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    @property
    def summaries(self) -> Mapping[str, str]:
        """The summary of each command or subgroup."""
        depth = len(self._words)
        below = (words for words in COMMANDS if words[:depth] == self._words)
        return {words[depth]: _summary(words[: depth + 1]) for words in below}


def _summary(words: Words) -> str:
    return GROUPS[words] if words in GROUPS else COMMANDS[words].summary


def _group(words: Words) -> type[TyperGroup]:
    commands = _Commands(words)

    class Group(TyperGroup):
        """Lists its commands without importing them."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = commands

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            del ctx
            with formatter.section("Commands"):
                formatter.write_dl(list(commands.summaries.items()))

    return Group


def _load(words: Words) -> Any:
    if words in GROUPS:
        return _load_group(words)
    if words not in COMMANDS:
        raise KeyError(words)
    command = COMMANDS[words]
    function = getattr(importlib.import_module(command.module), command.function)
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(words[-1], cls=_Command)(reporting_problems(with_options(function)))
    return typer.main.get_command(app)


def _load_group(words: Words) -> Any:
    def callback() -> None:
        """A group does nothing by itself."""

    app = typer.Typer(
        cls=_group(words),
        help=GROUPS[words],
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(callback)
    return typer.main.get_command(app)
