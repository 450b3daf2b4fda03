"""Moments as they are written: ISO 8601 in UTC, to the microsecond, so that the texts compare as the moments do."""

from __future__ import annotations

from datetime import MINYEAR, UTC, datetime
from typing import Any


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment(text: Any) -> datetime | None:
    """The moment that a text names, in UTC where it names no zone; None for no moment.

    The first one there is stands for none: Kuma's tools write it where they know of none.
    """
    try:
        read = datetime.fromisoformat(text)
        in_utc = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (OverflowError, TypeError, ValueError):
        return None
    return None if in_utc.year == MINYEAR else in_utc
