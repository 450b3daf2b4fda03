"""Numbers in the parameters and headers of a request."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 2**63 - 1
"""Neither the store nor a message between processes has a larger one."""

_MOST_DIGITS: Final = 19
"""As many as it has. Python reads longer ones slowly, or not at all."""


def natural(text: str) -> int | None:
    """A number without a sign; None if it is none, or one that nothing here can be."""
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= LARGEST else None


def shortened(text: str) -> str:
    """What was given in place of a number, as a message quotes it."""
    return text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}…"
