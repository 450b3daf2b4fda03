"""How the agent tells something to whoever runs it. The guard imports this, so it imports little itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]
"""Tells one sentence."""


def say(text: str) -> None:
    """On standard error, unless nobody reads that any more."""
    with suppress(OSError):
        sys.stderr.write(f"koguma dp: {text}\n")
        sys.stderr.flush()
