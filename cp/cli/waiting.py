"""`--wait`: waits until every proxy that a change affects has accepted it, and explains why one has not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Any, Final, Protocol

import typer

from cp.cli.findings import finding_lines
from cp.client.client import Client
from cp.client.problem import INTERRUPTED, Problem
from cp.model.duration import LONGEST_WAIT, Duration
from cp.model.names import DEFAULT_MESH, Key, dataplane_key
from cp.model.wording import few, printable

Data = Mapping[str, Any]

Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until every connected proxy that the change affects has accepted it, and every proxy that is "
        "expected back has what is stored.",
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="The longest time to wait, 10m at the most.")
]

TIMEOUT: Final = "30s"
_FEW: Final = 5
_INTERVAL: Final = 1.0


@dataclass(slots=True)
class WrittenResources:
    """The writes of one command."""

    began: float = field(default_factory=monotonic)
    revisions: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    """The written resources, also unchanged ones: proxies may have rejected them already."""

    preflights: list[Mapping[str, Any]] = field(default_factory=list)
    """The answers of Envoys to them, where one was asked."""

    def note(self, preflight: Mapping[str, Any] | None) -> None:
        """Keep the answer of an Envoy, if one was asked."""
        self.preflights += [] if preflight is None else [preflight]

    def add(self, key: Key, revision: int | None) -> None:
        self.keys.append(key)
        self.revisions += [] if revision is None else [revision]


def duration(text: str) -> Duration:
    """The duration of `--timeout`. Raises `Problem` if it is none."""
    try:
        parsed = Duration.parse(text)
    except ValueError as error:
        raise Problem(f"--timeout: {error}", status=2) from None
    if parsed.nanoseconds <= 0:
        raise Problem(f"--timeout: `{text}` is no time to wait", status=2)
    if parsed > LONGEST_WAIT:
        raise Problem(f"--timeout: `{text}` is longer than {LONGEST_WAIT}", status=2)
    return parsed


def until_delivered(
    client: Client, written: WrittenResources, timeout: Duration, report: Callable[[Data], None] | None = None
) -> None:
    """Wait, and print progress. Raises `Problem` if a proxy has not accepted the writes in the end.

    What there is to report is told to people, or else given to `report`, and they are told on standard error.
    """
    question = {
        "revisions": written.revisions,
        "resources": [_named(key) for key in written.keys],
        "wait": str(timeout),
    }
    try:
        last = _last(client, question, timeout)
        is_unchanged = not written.revisions and _is_in_force(last)
        everybody = _last(client, {"wait": str(timeout)}, timeout) if is_unchanged else None
    except KeyboardInterrupt:
        if report is not None:
            report({})
        raise _interrupted(written) from None
    except Problem as problem:
        raise _not_waited(problem, written) from None
    late = [] if everybody is None else _late(everybody, written)
    if report is not None:
        report({**last, "waiting": late} if late else last)
    milliseconds = (monotonic() - written.began) * 1000
    conclude(last, max(written.revisions, default=0), timeout, milliseconds, err=report is not None)
    if everybody is not None:
        _report_all_proxies(everybody, err=report is not None)
    _must_have_answered(late, timeout)


def _interrupted(written: WrittenResources) -> Problem:
    """Whoever stops waiting has to know that this takes nothing back."""
    if not written.revisions:
        return Problem("not waited for to the end", "Nothing had to be changed: it was stored before.", INTERRUPTED)
    hint = "The change is stored, and proxies are served it all the same. Repeat the command to wait again."
    return Problem("not waited for to the end", hint, INTERRUPTED)


def _not_waited(problem: Problem, written: WrittenResources) -> Problem:
    """The problem that ended the waiting, with what became of the writes before it."""
    stored = "The change is stored: only the wait for proxies failed." if written.revisions else ""
    return Problem(problem.message, "\n".join(filter(None, (problem.hint, stored))), problem.status)


def _last(client: Client, question: Data, timeout: Duration) -> Data:
    """The last line of an answer, of which the others are progress; empty if the control plane ended before it."""
    last: Data = {}
    with progress_printer() as print_progress:
        for last in client.lines("/_delivery", question, timeout.seconds):
            if not last["done"]:
                print_progress(last)
    return last


def _is_in_force(last: Data) -> bool:
    missing = ("refusing", "failed", "waiting", "unknown")
    return bool(last.get("done")) and not any(last.get(name) for name in missing)


def _late(everybody: Data, written: WrittenResources) -> list[str]:
    """Who has not answered. It may be an earlier write of the same resources that they lack."""
    meshes = {key.name if key.type == "Mesh" else key.mesh for key in written.keys}
    waiting: Iterable[str] = everybody.get("waiting", ())
    return [proxy for proxy in waiting if "" in meshes or dataplane_key(proxy).mesh in meshes or " " in proxy]


def _report_limited(last: Data) -> None:
    """Print which proxies are served without some part, and the limits that documents exceed. It is no failure."""
    limited: Sequence[str] = last.get("limited", ())
    if not limited:
        return
    whose = "its configuration" if len(limited) == 1 else "their configurations"
    proxies = f"{few(limited, _FEW)} {'is' if len(limited) == 1 else 'are'}"
    typer.echo(
        printable(f"Warning: {proxies} over a limit: a part of {whose} is left out, the rest is served"), err=True
    )
    for finding in last.get("leftOut", ()):
        for line in finding_lines(finding):
            typer.echo(line, err=True)


def _report_all_proxies(last: Data, *, err: bool) -> None:
    """After a command that changed nothing: print whether all proxies have accepted their configuration."""
    if not last.get("done"):
        raise Problem("the control plane ended before every proxy had answered")
    if not last["proxies"]:
        typer.echo("unchanged; no proxy is connected", err=err)
        return
    _report_limited(last)
    count = last["proxies"]
    proxies = f"{count} connected {'proxy has' if count == 1 else 'proxies have'}"
    typer.echo(f"unchanged; {last['have']} of {proxies} what {'it' if count == 1 else 'they'} should have", err=err)


def _named(key: Key) -> str:
    return f"{key.type}/{key.mesh}/{key.name}" if key.mesh else f"{key.type}/{key.name}"


def conclude(last: Data, revision: int, timeout: Duration, milliseconds: float, *, err: bool = False) -> None:
    _must_be_worked_out(last, revision, timeout)
    if last["proxies"] or last["failed"] or last.get("limited"):
        _summary(last, milliseconds, err=err)
    elif revision:
        typer.echo(_nobody(last), err=err)
    if returned := last.get("returned", 0):
        typer.echo(
            f"{_count(returned)} connected meanwhile, and {'has' if returned == 1 else 'have'} all that is stored",
            err=err,
        )
    _goes_on(last, err=err)
    for name in last["gone"]:
        typer.echo(printable(f"Warning: {name} has disconnected; it gets the change when it connects again"), err=True)
    _report_limited(last)
    for finding in last["findings"]:
        for line in finding_lines(finding):
            typer.echo(line, err=True)
    _raise_for(last, timeout)


def _must_be_worked_out(last: Data, revision: int, timeout: Duration) -> None:
    if not last.get("done"):
        raise Problem("the control plane ended before every proxy had answered", "It is stored.")
    if last["revision"] < revision:
        raise Problem(
            f"the control plane has not worked it out within {timeout}",
            "It is stored. See the log of the control plane.",
        )


def _nobody(last: Data) -> str:
    if last.get("moves"):
        return "it reaches no proxy yet"
    was_anybody_away = last.get("returned") or last.get("unknown")
    return "it reaches no proxy that was connected" if was_anybody_away else "it reaches no proxy"


def _count(proxies: int) -> str:
    return f"{proxies} {'proxy' if proxies == 1 else 'proxies'}"


def _goes_on(last: Data, *, err: bool) -> None:
    """What follows from the writes later, and is not waited for."""
    for sentence in last.get("moves", ()):
        typer.echo(printable(f"mTLS goes on in {sentence}"), err=err)
    for sentence in last.get("rollouts", ()):
        typer.echo(printable(sentence), err=err)


def _summary(last: Data, milliseconds: float, *, err: bool) -> None:
    count, refused = last["proxies"], len(last["refusing"])
    have = f"{last['have']} of {count} {'proxy has' if count == 1 else 'proxies have'} it"
    typer.echo(f"{have}, {refused} refused, {milliseconds:.0f} ms", err=err)


def _raise_for(last: Data, timeout: Duration) -> None:
    if refusing := last["refusing"]:
        names = sorted({finding["resource"] for finding in last["findings"] if finding["resource"]})
        whose = f" what follows from {few(names, _FEW)}" if names else " it"
        hint = "The change is stored. These proxies keep the version that they accepted before; the rest is in force."
        raise Problem(f"{few(refusing, _FEW)} {'refuses' if len(refusing) == 1 else 'refuse'}{whose}", hint)
    if failed := last["failed"]:
        hint = f"The rest is in force. {_look_at(failed)} shows what is served instead. Please report it."
        message = "by a fault of the control plane, some part of it could not be made"
        raise Problem(f"{message} for {few(failed, _FEW)}", hint)
    held = last.get("held", ())
    _must_have_answered([name for name in last["waiting"] if name not in held], timeout)
    if held:
        hint = "What is stored is not what they are served. See koguma rollout show."
        served = f"{few(held, _FEW)} {'is' if len(held) == 1 else 'are'} served what a rollout proposes in its place"
        raise Problem(f"not within {timeout}: {served}", hint)
    if unknown := last.get("unknown", ()):
        hint = (
            "It is stored, and whoever connects gets it. A control plane or a worker has just started or ended, or "
            "they were there until a moment ago, or refuse something. Within a minute it is known who stays away: "
            f"repeat it then, or give it a longer --timeout. See {_look_at(unknown)}."
        )
        raise Problem(f"not known within {timeout} what {few(unknown, _FEW)} {_have(unknown)}", hint)


def _must_have_answered(waiting: Sequence[str], timeout: Duration) -> None:
    if waiting:
        hint = f"The change is stored and will be sent to them. See {_look_at(waiting)}."
        raise Problem(f"not within {timeout}: {few(waiting, _FEW)} {_have(waiting)} not answered", hint)


def _look_at(waiting: Iterable[str]) -> str:
    """The command that shows the first of those proxies; of all that an instance serves, none is named."""
    proxy = next((name for name in waiting if " " not in name), "")
    if not proxy:
        return "koguma inspect instances"
    key = dataplane_key(proxy)
    return f"koguma inspect dataplane {key.name}" + ("" if key.mesh == DEFAULT_MESH else f" --mesh {key.mesh}")


def _have(names: Collection[str]) -> str:
    return "has" if len(names) == 1 else "have"


class _PrintProgress(Protocol):
    def __call__(self, progress: Data, /) -> None: ...


@contextmanager
def progress_printer(interval: float = _INTERVAL) -> Iterator[_PrintProgress]:
    """A progress bar on a terminal; elsewhere at most one line in so many seconds, also where nothing happens."""
    if not sys.stderr.isatty():
        with _lines(interval) as lines:
            yield lines
        return
    from rich.console import Console  # noqa: PLC0415  # a bar is for a reader, and slow to load
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # the same

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("waiting", total=None)

        def print_progress(progress: Data, /) -> None:
            refused = len(progress["refusing"])
            description = f"waiting {_awaited(progress, 1)}" + (f", {refused} refused" if refused else "")
            bar.update(task, description=description, total=progress["proxies"], completed=_answered(progress))

        yield print_progress


@contextmanager
def _lines(interval: float) -> Iterator[_PrintProgress]:
    lines = _Lines()
    # Beside the answer that is read: a control plane has nothing to say while a proxy says nothing.
    thread = threading.Thread(target=lines.run, args=(interval,), daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        lines.end.set()
        thread.join()


class _Lines:
    """Says whom is waited for, whenever that is something else."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self._newest = self._printed = ""

    def __call__(self, progress: Data, /) -> None:
        answered = f"{_answered(progress)} of {progress['proxies']} proxies have answered; "
        self._newest = f"{answered if progress['proxies'] else ''}waiting {_awaited(progress, _FEW)}"

    def run(self, interval: float) -> None:
        while not self.end.wait(interval):
            if self._newest != self._printed:
                self._printed = self._newest
                typer.echo(self._printed, err=True)


def _awaited(progress: Data, most: int) -> str:
    """Whom is waited for: those that were sent it, and those of whom nobody can say yet what they have."""
    waiting, unknown = progress["waiting"], progress.get("unknown", ())
    unnamed = progress.get("missing", 0) - len(waiting) - len(unknown)
    parts = (
        f"for {few(waiting, most)}" if waiting else "",
        f"to know what {few(unknown, most)} {_have(unknown)}" if unknown else "",
        f"for {unnamed} in meshes that you may not look into" if unnamed > 0 else "",
    )
    return ", and ".join(filter(None, parts)) or "for the control plane"


def _answered(progress: Data) -> int:
    waiting: Iterable[str] = progress["waiting"]
    return int(progress["proxies"]) - len(list(waiting))
