"""A proxy joins: its Dataplane is stored, its bootstrap configuration fetched, however late the control plane is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cp.cli.client import NOT_FOUND, Client, Rejected, Unreachable
from cp.cli.files import Piece
from cp.cli.problem import Problem
from cp.version import VERSION

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0
_UNAVAILABLE: Final = 503
_NEWS_EVERY: Final = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try again, and who is told that we do."""

    seconds: float
    say: Say


@dataclass(frozen=True, slots=True)
class Joining:
    """One proxy on its way into the mesh."""

    mesh: str
    name: str
    work_dir: str
    system_ca: str = ""
    """The file with those whom this machine trusts; empty: nobody knows of one."""

    @property
    def path(self) -> str:
        return f"/meshes/{self.mesh}/dataplanes/{self.name}"


def register(client: Client, joining: Joining, piece: Piece, patience: Patience) -> None:
    """Store the Dataplane as the file has it. What is stored already is stored no second time."""
    put = persistently(lambda: client.put(joining.path, piece.text, piece.place), patience)
    patience.say(f"{'registered' if put.is_new else 'stored'} Dataplane {joining.mesh}/{joining.name}")
    for warning in put.warnings:
        patience.say(f"Warning: {warning}")


def bootstrap(client: Client, joining: Joining, patience: Patience) -> str:
    """The bootstrap configuration of a stored Dataplane."""
    request: dict[str, Any] = {
        "mesh": joining.mesh,
        "name": joining.name,
        "workdir": joining.work_dir,
        "systemCaPath": joining.system_ca,
        "version": {"kumaDp": {"version": VERSION}},
        "features": ["feature-delta-grpc"],
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="text/x-yaml"), patience)


def grpc_bootstrap(client: Client, mesh: str, name: str, patience: Patience) -> str:
    """The bootstrap configuration of a stored Dataplane that is a gRPC client without a proxy."""
    request = {"mesh": mesh, "name": name, "proxyType": "grpc"}
    return persistently(lambda: client.post("/bootstrap", request, accept="application/json"), patience)


def persistently(attempt: Callable[[], T], patience: Patience) -> T:
    """Try until it works or patience ends. What can never work is not tried again."""
    begun = told = time.monotonic()
    pause, said = _FIRST_PAUSE, ""
    while True:
        try:
            return attempt()
        except Problem as problem:
            now = time.monotonic()
            if not _may_pass(problem) or now - begun + pause > patience.seconds:
                raise
            if problem.message != said or now - told >= _NEWS_EVERY:
                patience.say(f"waiting: {problem.message} ({now - begun:.0f} s)")
                said, told = problem.message, now
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _may_pass(problem: Problem) -> bool:
    """A control plane that starts is not there at first, then has no mesh, then everything."""
    if isinstance(problem, Rejected):
        return problem.may_pass or problem.status_code in {NOT_FOUND, _UNAVAILABLE}
    return isinstance(problem, Unreachable)
