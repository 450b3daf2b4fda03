"""When an agent tries again with a token that was refused: after a pause, or as soon as its file has another one."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from cp.client.credentials import Credentials
from cp.client.problem import Problem

REFUSED: Final = frozenset({401, 403})
"""Statuses of answers to callers whose token is not good, or not for this."""

_EVERY: Final = 1.0
"""Seconds between two looks into the file, which needs no more than that of a person who has just replaced it."""


@dataclass(frozen=True, slots=True)
class AttemptedToken:
    """The token with which something is tried. It is read before, so that none that comes meanwhile is overlooked."""

    credentials: Credentials
    text: str

    @classmethod
    def of(cls, credentials: Credentials) -> AttemptedToken:
        return cls(credentials, _current(credentials) if credentials.token_file else "")

    def wait(self, seconds: float, ended: threading.Event) -> bool:
        """Wait so long, or until there is another token or the end. Returns whether there is another token."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._is_replaced():
                return True
            if ended.wait(min(left, _EVERY)):
                return False
        return self._is_replaced()

    def _is_replaced(self) -> bool:
        """A file that cannot be read, or is being written, has no other token yet."""
        return self.credentials.token_file != "" and _current(self.credentials) not in {"", self.text}


def next_attempt(credentials: Credentials, seconds: float) -> str:
    """What comes after a token was refused, in words."""
    moment, file = f"the next attempt is within {seconds:g} s", credentials.token_file
    return f"{moment}, and at once when {file} has another token" if file else moment


def _current(credentials: Credentials) -> str:
    try:
        return credentials.current_token()
    except Problem:
        return ""
