"""Watches until an Envoy has its first configuration, and reports that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cp.agent.admin import EnvoyAdmin
from cp.agent.say import Say

_EVERY: Final = 0.05
_HINT_AFTER: Final = 10.0
_HINT: Final = "Envoy runs, but has no configuration yet. Does it reach the control plane's port for proxies?"

Enter = Callable[[threading.Event], None]


@contextmanager
def announced_readiness(admin: EnvoyAdmin, say: Say, enter: Enter) -> Iterator[None]:
    """While this lasts: report when Envoy is ready, also to the control plane, and give a hint if that takes long."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(admin, say, enter, ended), name="readiness")
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _watch(admin: EnvoyAdmin, say: Say, enter: Enter, ended: threading.Event) -> None:
    begun, hinted = time.monotonic(), False
    while admin.get("/ready") is None:
        if ended.wait(_EVERY):
            return
        if not hinted and time.monotonic() - begun > _HINT_AFTER:
            say(_HINT)
            hinted = True
    enter(ended)
    say(f"ready after {time.monotonic() - begun:.1f} s")
