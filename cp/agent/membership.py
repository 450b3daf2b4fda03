"""`Membership`: what a run of a proxy reports once it has joined: that callers may call it, and that it ends."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cp.agent.joining import MeshJoin
from cp.agent.next_attempt import REFUSED, AttemptedToken, next_attempt
from cp.agent.retrying import FIRST_PAUSE, LONGEST_PAUSE, may_pass, pause_after
from cp.agent.say import Say
from cp.client.client import Client
from cp.client.credentials import NO_CREDENTIALS, Credentials
from cp.client.failures import RequestRejected
from cp.client.problem import Problem

_ANNOUNCED_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Membership:
    """That of one run. It is how the run's proxy departs, too (`Departure`)."""

    address: str
    joining: MeshJoin
    say: Say
    credentials: Credentials = NO_CREDENTIALS
    concluded: threading.Event = field(default_factory=threading.Event)
    """Set when the control plane has removed the Dataplane: whoever drained Envoy did so before it ended."""

    def enter(self, ended: threading.Event) -> None:
        """Report that callers may call. Retries until that worked or never can, or until the proxy has ended."""
        pause, last_message = FIRST_PAUSE, ""
        while not ended.is_set():
            token = AttemptedToken.of(self.credentials)
            try:
                client = Client(self.address, _ANNOUNCED_WITHIN, self.credentials)
                client.readiness(self.joining.path, self.joining.owner, ready=True)
            except Problem as problem:
                if problem.message != last_message and not may_pass(problem):
                    self.say(f"callers are not told that the proxy is ready: {problem.message}; {self._then(problem)}")
                last_message = problem.message
                if not may_pass(problem) and not self._may_get_token(problem):
                    return
                wait = pause_after(problem, pause)
            else:
                return
            token.wait(wait, ended)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _then(self, problem: Problem) -> str:
        """What comes after a problem that does not pass by itself, in words."""
        if self._may_get_token(problem):
            return next_attempt(self.credentials, LONGEST_PAUSE)
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
        if not self.joining.resource or self.concluded.is_set():
            return
        with suppress(Problem):
            client = Client(self.address, _ANNOUNCED_WITHIN, self.credentials)
            client.take_away(self.joining.path, self.joining.owner)
            self.concluded.set()
