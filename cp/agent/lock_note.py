"""Who holds the lock of a proxy's folder, as it stands in the file of the lock. Nothing that takes long is imported."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any


def note(lock: int, holder: Mapping[str, Any]) -> None:
    """Say who holds a lock, for whoever cannot get it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(holder).encode(), 0)


def noted_holder(lock: int) -> Mapping[str, Any]:
    """What was said last; nothing where nothing was, or somebody is just saying it."""
    try:
        holder = json.loads(os.pread(lock, 1024, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}
