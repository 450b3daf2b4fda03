"""The note in a lock file that says which process holds the lock. The guard imports it, so it imports little itself."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any


def note(lock: int, holder: Mapping[str, Any]) -> None:
    """Write who holds the lock, for processes that wait for it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(holder).encode(), 0)


def noted_holder(lock: int) -> Mapping[str, Any]:
    """The last note; empty if there is none, or if it is being written right now."""
    try:
        holder = json.loads(os.pread(lock, 1024, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}
