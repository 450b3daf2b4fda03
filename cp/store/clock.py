"""The time as stores note it: the one place where they look at a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]


def utc() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
