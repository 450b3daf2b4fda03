"""A proxy joins: its Dataplane is stored, its bootstrap configuration fetched, however late the control plane is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cp.client.client import NOT_FOUND, Client, RequestRejected, Unreachable, connect
from cp.client.files import FileDocument
from cp.client.problem import Problem
from cp.version import VERSION

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0
_UNAVAILABLE: Final = 503
_NEWS_EVERY: Final = 10.0
_ANNOUNCED_WITHIN: Final = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RetryTime:
    """How long to try again, and who is told that we do."""

    seconds: float
    say: Say


@dataclass(frozen=True, slots=True)
class MeshJoin:
    """One proxy on its way into the mesh."""

    mesh: str
    name: str
    work_dir: str
    system_ca: str = ""
    """The file with those whom this machine trusts; empty: nobody knows of one."""

    owner: str = ""
    """This run of the proxy: what it registers is its own."""

    resource: str = ""
    """The Dataplane that it brings along; empty where a stored one is run."""

    @property
    def path(self) -> str:
        return f"/meshes/{self.mesh}/dataplanes/{self.name}"


def register(client: Client, joining: MeshJoin, file_document: FileDocument, patience: RetryTime) -> None:
    """Store the Dataplane as the file has it. What is stored already is stored no second time."""
    put = persistently(
        lambda: client.put(joining.path, file_document.text, file_document.location, joining.owner), patience
    )
    patience.say(f"{'registered' if put.is_new else 'stored'} Dataplane {joining.mesh}/{joining.name}")
    for warning in put.warnings:
        patience.say(f"Warning: {warning}")


def bootstrap(client: Client, joining: MeshJoin, patience: RetryTime) -> str:
    """The bootstrap configuration of a stored Dataplane."""
    request: dict[str, Any] = {
        "mesh": joining.mesh,
        "name": joining.name,
        "workdir": joining.work_dir,
        "systemCaPath": joining.system_ca,
        "owner": joining.owner,
        "dataplaneResource": joining.resource,
        "version": {"kumaDp": {"version": VERSION}},
        "features": ["feature-delta-grpc"],
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="text/x-yaml"), patience)


@dataclass(frozen=True, slots=True)
class Membership:
    """What a run of a proxy tells the control plane of itself, once it has joined."""

    address: str
    joining: MeshJoin
    say: Say

    def enter(self, ended: threading.Event) -> None:
        """The proxy listens: callers may come. It is tried until it is said, can never be, or the proxy has ended."""
        pause = _FIRST_PAUSE
        while not ended.is_set():
            try:
                with connect(self.address, _ANNOUNCED_WITHIN) as client:
                    client.readiness(self.joining.path, self.joining.owner, ready=True)
            except Problem as problem:
                if not _may_pass(problem):
                    self.say(f"callers are not told that the proxy is ready: {problem.message}")
                    return
            else:
                return
            ended.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def announce(self, seconds: float) -> bool:
        """Have callers leave the proxy. Whether they have done so, within so many seconds."""
        wait = min(seconds, _ANNOUNCED_WITHIN)
        try:
            with connect(self.address, _ANNOUNCED_WITHIN) as client:
                revision = client.readiness(self.joining.path, self.joining.owner, ready=False)
                question = {"revisions": [revision], "wait": f"{round(wait * 1000)}ms"}
                *_, last = client.lines("/_delivery", question, wait)
        except (Problem, ValueError) as problem:
            self.say(f"callers are not told to leave: {getattr(problem, 'message', problem)}")
            return False
        if waiting := last["waiting"]:
            self.say(f"callers that have not been reached: {', '.join(waiting)}")
        return bool(last["done"]) and not waiting

    def conclude(self) -> None:
        """What this run registered goes with it. Where that fails the control plane sees to it, some seconds later."""
        if not self.joining.resource:
            return
        with suppress(Problem), connect(self.address, _ANNOUNCED_WITHIN) as client:
            client.take_away(self.joining.path, self.joining.owner)


def grpc_bootstrap(client: Client, mesh: str, name: str, patience: RetryTime) -> str:
    """The bootstrap configuration of a stored Dataplane that is a gRPC client without a proxy."""
    request = {"mesh": mesh, "name": name, "proxyType": "grpc"}
    return persistently(lambda: client.post("/bootstrap", request, accept="application/json"), patience)


def persistently(attempt: Callable[[], T], patience: RetryTime) -> T:
    """Try until it works or patience ends. What can never work is not tried again."""
    begun = last_news = time.monotonic()
    pause, last_message = _FIRST_PAUSE, ""
    while True:
        try:
            return attempt()
        except Problem as problem:
            now = time.monotonic()
            if not _may_pass(problem) or now - begun + pause > patience.seconds:
                raise
            if problem.message != last_message or now - last_news >= _NEWS_EVERY:
                patience.say(f"waiting: {problem.message} ({now - begun:.0f} s)")
                last_message, last_news = problem.message, now
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _may_pass(problem: Problem) -> bool:
    """A control plane that starts is not there at first, then has no mesh, then everything."""
    if isinstance(problem, RequestRejected):
        return problem.may_pass or problem.status_code in {NOT_FOUND, _UNAVAILABLE}
    return isinstance(problem, Unreachable)
