"""What a command wrote, and which proxies have it: line by line for people, as one document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import typer

from cp.cli.options import TextFormat
from cp.cli.output import print_data
from cp.cli.preflight import preflight_summary
from cp.cli.waiting import WrittenResources, until_delivered
from cp.client.client import Client
from cp.model.duration import Duration
from cp.model.names import Key
from cp.model.wording import printable


@dataclass(slots=True)
class WriteReport:
    """The outcome of each resource."""

    output: TextFormat
    resources: list[Mapping[str, str]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    """What else there is to tell programs."""

    @property
    def is_data(self) -> bool:
        return self.output is not TextFormat.TEXT

    def add(self, key: Key, outcome: str, line: str) -> None:
        """The outcome of one resource. People are told at once."""
        mesh = {"mesh": key.mesh} if key.mesh else {}
        self.resources.append({"type": key.type, **mesh, "name": key.name, "outcome": outcome})
        if not self.is_data:
            typer.echo(line)

    def add_preflights(self, preflights: Iterable[Mapping[str, Any]]) -> None:
        """Report the answers of Envoys to the writes. Warnings have told of what they were not shown."""
        for preflight in preflights:
            self.more.setdefault("preflight", []).append(preflight)
            for line in () if self.is_data else preflight_summary(preflight):
                typer.echo(printable(line))

    def print_all(self, delivery: Mapping[str, Any] | None = None) -> None:
        print_data({"resources": self.resources, **self.more, "delivery": delivery}, self.output)


def finish_write(client: Client, written: WrittenResources, report: WriteReport, timeout: Duration | None) -> None:
    """Report what was written, after so much time at the most in which proxies may accept it; None: do not wait."""
    report.add_preflights(written.preflights)
    if timeout is not None:
        until_delivered(client, written, timeout, report.print_all if report.is_data else None)
    elif report.is_data:
        report.print_all()
