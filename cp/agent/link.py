"""`AgentLink`: a request that the agent holds open at a control plane, which answers it with a question for the Envoy.

No port has to be open beside the Envoy for that. The answer goes back on the same connection, and so to the control
plane that has asked.

See record 0085.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from secrets import SystemRandom
from typing import Any, Final

from cp.agent import questions
from cp.agent.admin import EnvoyAdmin
from cp.agent.log_level import LogLevel
from cp.agent.membership import Membership
from cp.agent.next_attempt import REFUSED, AttemptedToken, next_attempt
from cp.agent.say import Say
from cp.client.api_calls import Conversation
from cp.client.client import Client
from cp.client.failures import RequestRejected
from cp.client.problem import Problem
from cp.model.envoy_questions import SILENCE, AgentFault, EnvoyQuestion, EnvoySubject

_CONNECTED_WITHIN: Final = 10.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_REJECTED_PAUSE: Final = 120.0
"""Seconds, where the control plane does not want the link: it is an older one, or the token is not good."""

_TOLD_AFTER: Final = 10.0
"""Seconds without a control plane: one that is started again is back before that."""

_SHORT: Final = 5.0
"""Seconds. A link that ends sooner, without a question, is not opened again at once."""

_SPREAD: Final = 3.0
_CHANCE: Final = SystemRandom()


@contextmanager
def held_link(admin: EnvoyAdmin, membership: Membership, say: Say) -> Iterator[None]:
    """While this lasts: be there for the questions of a control plane."""
    link = AgentLink(admin, membership, say)
    threading.Thread(target=link.hold, name="link", daemon=True).start()
    try:
        yield
    finally:
        link.end()


class AgentLink:
    """The link of one agent."""

    def __init__(self, admin: EnvoyAdmin, membership: Membership, say: Say) -> None:
        self._admin, self._membership, self._say = admin, membership, say
        self._log_level = LogLevel(admin, say)
        self._ended = threading.Event()
        self._last_message = ""
        self._failing_since = 0.0

    def hold(self) -> None:
        """Until the proxy ends. Each failure makes the next pause longer, and is told once. Another token ends it."""
        pause, credentials = _FIRST_PAUSE, self._membership.credentials
        while not self._ended.is_set():
            began, longest, token = time.monotonic(), _LONGEST_PAUSE, AttemptedToken.of(credentials)
            try:
                self._converse()
            except RequestRejected as rejected:
                longest = _LONGEST_PAUSE if rejected.may_pass else _REJECTED_PAUSE
                then = f"; {next_attempt(credentials, longest)}" if rejected.status_code in REFUSED else ""
                self._tell(f"{rejected.message}{then}")
            except Problem as problem:
                self._failing_since = self._failing_since or time.monotonic()
                if time.monotonic() - self._failing_since >= _TOLD_AFTER:
                    self._tell(problem.message)
            except Exception as error:  # noqa: BLE001  # a fault here must not end the proxy
                self._tell(f"{type(error).__name__}: {error}")
            lasted = time.monotonic() - began > 2 * _LONGEST_PAUSE
            pause = _FIRST_PAUSE if lasted else min(pause * 2, longest)
            if token.wait(pause * (0.5 + _CHANCE.random() / 2), self._ended):
                pause = _FIRST_PAUSE

    def end(self) -> None:
        self._ended.set()
        self._log_level.end()

    def _converse(self) -> None:
        """Take questions from the first control plane that can be reached, until the connection breaks."""
        membership, attempts = self._membership, count()

        def talk(conversation: Conversation) -> None:
            if next(attempts) > 0:  # who loses one control plane comes to the next with all others who lose it
                self._ended.wait(_SPREAD * _CHANCE.random())
            while not self._ended.is_set() and self._took_turn(conversation):
                pass

        Client(membership.address, _CONNECTED_WITHIN, membership.credentials).converse(talk)

    def _took_turn(self, conversation: Conversation) -> bool:
        """Hold the link once, and answer what is asked. Returns whether it may be held again at once."""
        joining, began = self._membership.joining, time.monotonic()
        path = f"{joining.path}/_link"
        hello = {"owner": joining.owner, "subjects": [subject.value for subject in EnvoySubject]}
        lines = list(conversation.lines(path, hello, SILENCE))
        self._last_message, self._failing_since = "", 0.0
        for line in lines:
            self._answer(conversation, path, line)
        return bool(lines) or time.monotonic() - began >= _SHORT

    def _answer(self, conversation: Conversation, path: str, line: dict[str, Any]) -> None:
        try:
            question = EnvoyQuestion.of(line)
            content = questions.answer_to(self._admin, self._log_level, question, float(line["within"]))
        except AgentFault as fault:
            content = questions.fault(str(fault))
        except ValueError:
            content = questions.fault("the agent does not know this question: it is of another version")
        try:
            conversation.post(f"{path}/{line['id']}", content, {"content-encoding": "gzip"})
        except RequestRejected as rejected:
            self._say(f"an answer was not taken: {rejected.message}")

    def _tell(self, message: str) -> None:
        if message != self._last_message:
            self._last_message = message
            self._say(f"operators cannot ask this Envoy: {message}")
