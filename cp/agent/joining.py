"""Joining: stores a proxy's Dataplane and fetches its bootstrap configuration, and retries as long as it may help."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import SystemRandom
from typing import Any, Final, TypeVar

from cp.agent.next_attempt import REFUSED, AttemptedToken, next_attempt
from cp.agent.say import Say
from cp.client.client import Client
from cp.client.credentials import NO_CREDENTIALS, Credentials
from cp.client.failures import NOT_FOUND, RequestRejected, Unreachable
from cp.client.problem import Problem
from cp.version import VERSION

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0
_UNAVAILABLE: Final = 503
_NEWS_EVERY: Final = 10.0
_ANNOUNCED_WITHIN: Final = 5.0
_CHANCE: Final = SystemRandom()
_NOT_SEEN: Final = frozenset({"Offline", "Unknown"})
"""What is said of a proxy that no control plane has which answers: it is probably ours, from before."""


@dataclass(frozen=True, slots=True)
class RetryTime:
    """How long to retry, and where to report that."""

    seconds: float
    say: Say


@dataclass(frozen=True, slots=True)
class MeshJoin:
    """A proxy that joins a mesh."""

    mesh: str
    name: str
    work_dir: str
    system_ca: str = ""
    """The file with the CA certificates that this machine trusts; empty: none was found."""

    owner: str = ""
    """The id of this run of the proxy: it owns the Dataplane that it registers."""

    resource: str = ""
    """The text of the Dataplane that the proxy registers; empty if it uses a stored one."""

    token_secret: str = ""
    """The file with the token, as Envoy reads it; empty if the proxy has none."""

    @property
    def path(self) -> str:
        return f"/meshes/{self.mesh}/dataplanes/{self.name}"


@dataclass(frozen=True, slots=True)
class ProxyDataplane:
    """The Dataplane of a proxy: what a file has, or the name of one that is stored."""

    mesh: str
    name: str
    text: str = ""
    """Empty: it is stored already."""

    location: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def register(client: Client, joining: MeshJoin, dataplane: ProxyDataplane, patience: RetryTime) -> None:
    """Store the Dataplane of a file. An equal one that is stored already is not written again."""
    put = persistently(lambda: client.put(joining.path, dataplane.text, dataplane.location, joining.owner), patience)
    patience.say(f"{'registered' if put.is_new else 'stored'} Dataplane {joining.mesh}/{joining.name}")
    for warning in put.warnings:
        patience.say(f"Warning: {warning}")


def warn_of_another_run(client: Client, joining: MeshJoin, say: Say) -> None:
    """Warn if a proxy of this name is connected before this run has started its own."""
    with suppress(Problem, LookupError):
        if client.get(f"{joining.path}/_overview")["status"] not in _NOT_SEEN:
            say(
                f"Warning: another proxy {joining.mesh}/{joining.name} is connected. If it is not about to end, end it "
                "or give this one another name: both have one Dataplane, which is removed when the later one ends"
            )


def bootstrap(client: Client, joining: MeshJoin, patience: RetryTime, authority: str = "") -> str:
    """The bootstrap configuration of a stored Dataplane. The authority is what Envoy is to trust, if we were told."""
    request: dict[str, Any] = {
        "mesh": joining.mesh,
        "name": joining.name,
        "workdir": joining.work_dir,
        "systemCaPath": joining.system_ca,
        "dataplaneTokenSecretPath": joining.token_secret,
        "caCert": authority,
        "owner": joining.owner,
        "dataplaneResource": joining.resource,
        "version": {"kumaDp": {"version": VERSION}},
        "features": ["feature-delta-grpc"],
        **_places(client),
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="text/x-yaml"), patience)


@dataclass(frozen=True, slots=True)
class Membership:
    """What a run of a proxy reports to the control plane after it has joined."""

    address: str
    joining: MeshJoin
    say: Say
    credentials: Credentials = NO_CREDENTIALS

    def enter(self, ended: threading.Event) -> None:
        """Report that callers may call. Retries until that worked or never can, or until the proxy has ended."""
        pause, last_message = _FIRST_PAUSE, ""
        while not ended.is_set():
            token = AttemptedToken.of(self.credentials)
            try:
                client = Client(self.address, _ANNOUNCED_WITHIN, self.credentials)
                client.readiness(self.joining.path, self.joining.owner, ready=True)
            except Problem as problem:
                if problem.message != last_message and not _may_pass(problem):
                    self.say(f"callers are not told that the proxy is ready: {problem.message}; {self._then(problem)}")
                last_message = problem.message
                if not _may_pass(problem) and not self._may_get_token(problem):
                    return
            else:
                return
            token.wait(_part_of(pause), ended)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _then(self, problem: Problem) -> str:
        """What comes after a problem that does not pass by itself, in words."""
        if self._may_get_token(problem):
            return next_attempt(self.credentials, _LONGEST_PAUSE)
        return "this is tried again only when the proxy is started again"

    def _may_get_token(self, problem: Problem) -> bool:
        """Whether the token was refused and may be replaced in its file."""
        is_refused = isinstance(problem, RequestRejected) and problem.status_code in REFUSED
        return is_refused and self.credentials.token_file != ""

    def announce(self, seconds: float) -> bool:
        """Take the proxy from its callers. Returns whether all of them accepted that within so many seconds."""
        wait = min(seconds, _ANNOUNCED_WITHIN)
        try:
            client = Client(self.address, _ANNOUNCED_WITHIN, self.credentials)
            revision = client.readiness(self.joining.path, self.joining.owner, ready=False)
            question = {"revisions": [revision], "wait": f"{round(wait * 1000)}ms"}
            *_, last = client.lines("/_delivery", question, wait)
        except (Problem, ValueError) as problem:
            self.say(f"callers are not told to leave: {getattr(problem, 'message', problem)}")
            return False
        missing = last.get("missing", len(last["waiting"]))
        if missing:
            names = ", ".join(last["waiting"])  # which are not told to a token of a proxy
            self.say(f"callers that have not been reached: {names or missing}")
        return bool(last["done"]) and not missing

    def conclude(self) -> None:
        """Remove the Dataplane that this run registered. If that fails, the control plane does it later."""
        if not self.joining.resource:
            return
        with suppress(Problem):
            client = Client(self.address, _ANNOUNCED_WITHIN, self.credentials)
            client.take_away(self.joining.path, self.joining.owner)


@dataclass(frozen=True, slots=True)
class GrpcClient:
    """A gRPC client without a proxy. The files are named to its library, which reads them itself."""

    mesh: str
    name: str
    token_file: str = ""
    authority_file: str = ""
    certificate_files: Mapping[str, str] | None = None
    """Where it has what it speaks mTLS with; None: nowhere."""


def grpc_bootstrap(client: Client, grpc_client: GrpcClient, patience: RetryTime, authority: str = "") -> str:
    """The bootstrap configuration of a stored Dataplane that is a gRPC client without a proxy."""
    request = {
        "mesh": grpc_client.mesh,
        "name": grpc_client.name,
        "proxyType": "grpc",
        "dataplaneTokenPath": grpc_client.token_file,
        "caCertPath": grpc_client.authority_file,
        "caCert": authority,
        "certificateFiles": grpc_client.certificate_files,
        **_places(client),
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="application/json"), patience)


def persistently(attempt: Callable[[], T], patience: RetryTime) -> T:
    """Retry until it works or the time is over. A problem that cannot pass is raised at once."""
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
        time.sleep(_part_of(pause))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _part_of(pause: float) -> float:
    """Some of a pause: agents that wait for one control plane do not come back to it all at once."""
    return pause * _CHANCE.random()


def _places(client: Client) -> Mapping[str, Any]:
    """Where Envoy, or the library of a gRPC client, finds further control planes."""
    return {"controlPlanes": client.hosts} if len(client.hosts) > 1 else {}


def _may_pass(problem: Problem) -> bool:
    """Whether a problem may pass: a control plane that starts does not answer at first, then may lack the mesh."""
    if isinstance(problem, RequestRejected):
        return problem.may_pass or problem.status_code in {NOT_FOUND, _UNAVAILABLE}
    return isinstance(problem, Unreachable)
