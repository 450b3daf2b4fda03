"""`--watch`: an answer again, whenever it is another one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

import typer

from cp.cli.options import TableFormat
from cp.cli.output import as_yaml
from cp.client.client import Client
from cp.client.failures import RequestRejected, Unreachable

_FEED: Final = "/_feed"
_WITHOUT_FEED: Final = frozenset({403, 404, 429})
"""Answers to callers who may not read the feed, or for whom there is no place, and of older control planes."""

_EVERY: Final = 2.0
"""Seconds between two questions where there is no feed."""

_AT_LEAST: Final = 0.5
"""Seconds between two questions, however much happens."""

_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True)
class WatchedQuestion:
    """What is asked, and how the answer is shown as a table."""

    ask: Callable[[], Any]
    text: Callable[[Any], str]


def watch_answers(client: Client, question: WatchedQuestion, output: TableFormat) -> None:
    """Print the answer to a question, and again whenever it is another one, until the user interrupts it."""
    try:
        for answer in _answers(client, question.ask):
            typer.echo(_shown(answer, question, output), nl=False)
    except KeyboardInterrupt:
        return


def _shown(answer: Any, question: WatchedQuestion, output: TableFormat) -> str:
    """On a terminal a table takes the place of the last one. For programs there is a line or a document for each."""
    if output is TableFormat.JSON:
        return f"{json.dumps(answer, ensure_ascii=False)}\n"
    if output is TableFormat.YAML:
        return f"---\n{as_yaml(answer)}"
    return f"{_CLEAR if sys.stdout.isatty() else ''}{question.text(answer)}"


def _answers(client: Client, ask: Callable[[], Any]) -> Iterator[Any]:
    """Each answer that differs from the last one. While no control plane answers it waits for one, and says so once.

    So it does for one that starts or ends, and cannot answer this yet.
    """
    last, lost = ask(), False
    yield last
    for _ in _moments(client):
        try:
            answer = ask()
        except (Unreachable, RequestRejected) as problem:
            if isinstance(problem, RequestRejected) and not problem.may_pass:
                raise
            if not lost:
                typer.echo(f"Warning: {problem.message}; what is shown may be old", err=True)
            lost = True
            continue
        if lost:
            typer.echo(f"{client.address} answers again", err=True)
        lost = False
        if answer != last:
            yield answer
        last = answer


def _moments(client: Client) -> Iterator[None]:
    """When to ask again: when the control plane says that something happened, or else every so often."""
    while True:
        began = monotonic()
        try:
            for _ in client.events(_FEED):
                yield
                sleep(_AT_LEAST)
        except Unreachable:
            pass
        except RequestRejected as problem:
            if problem.status_code not in _WITHOUT_FEED and not problem.may_pass:
                raise
        sleep(max(0.0, _EVERY - (monotonic() - began)))
        yield  # also after a feed that has ended: something may have happened since
