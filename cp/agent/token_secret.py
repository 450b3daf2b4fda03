"""The token of a proxy in a file of its work folder, as Envoy reads a secret; another token takes its place there.

Envoy reads the file again when another one is moved to its name, and shows the new token when it opens its next stream.
See record 0059.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cp.agent.say import Say
from cp.client.credentials import Credentials
from cp.client.problem import Problem

FILE: Final = "dataplane-token.json"
NAME: Final = "koguma:dataplane-token"
"""By which the bootstrap configuration asks for it."""

_TYPE: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
_EVERY: Final = 1.0


class TokenSecret:
    """The file in one work folder."""

    def __init__(self, folder: Path, credentials: Credentials, say: Say) -> None:
        self._folder = folder
        self._credentials = credentials
        self._say = say
        self._token = ""
        self._fault = ""

    @property
    def path(self) -> str:
        """Where it is; empty if the proxy has no token."""
        return "" if self._credentials.is_empty else str(self._folder / FILE)

    def write(self) -> None:
        """Write it, unless it has this token already. Raises `Problem`."""
        token = self._credentials.current_token()
        if not token or token == self._token:
            return
        secret = {"@type": _TYPE, "name": NAME, "generic_secret": {"secret": {"inline_string": token}}}
        try:
            _replace(self._folder / FILE, json.dumps({"resources": [secret]}))
        except OSError as error:
            raise Problem(f"{self._folder / FILE} cannot be written: {error.strerror}") from None
        self._token = token

    def look(self) -> None:
        """Take the token that is in its file now. What keeps us from it is told once."""
        before = self._token
        try:
            self.write()
        except Problem as problem:
            if problem.message != self._fault:
                self._fault = problem.message
                self._say(f"the token stays as it is: {problem.message}")
            return
        if self._token != before:
            self._fault = ""
            self._say("the token was replaced")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While this lasts: the file has the newest token."""
        if not self._credentials.token_file:
            yield
            return
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended,), name="token", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(_EVERY):
            self.look()


def _replace(file: Path, text: str) -> None:
    """Put a whole file in the place of another. Only its owner can read it."""
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(file)
