"""Durations as operators write them: `15s`, `1h30m`, `300ms`, `0s`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"([-+]?)((?:{_PART.pattern})+)")
_LARGEST: Final = 2**63
_LONGEST: Final = 100
"""Characters. No duration needs as many, and a number takes the square of its digits to read."""


@total_ordering
class Duration:
    """A length of time, to the nanosecond.

    Not a dataclass, which a schema would take for an object with a field of that name.
    """

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int = 0) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Duration) and self.nanoseconds == value.nanoseconds

    def __lt__(self, value: Duration) -> bool:
        return self.nanoseconds < value.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read what an operator wrote. Raises `ValueError` with a message for the operator."""
        if len(text) > _LONGEST:
            raise ValueError(f"`{text[:_LONGEST]}…` is not a duration: it has {len(text)} characters")
        return cls._parse(text)

    @classmethod
    @lru_cache(maxsize=4096)
    def _parse(cls, text: str) -> Duration:
        if text in {"0", "+0", "-0"}:
            return cls(0)
        match = _WHOLE.fullmatch(text)
        if match is None:
            unit = "s" if re.fullmatch(r"[-+]?\d+(\.\d+)?", text) else ""
            hint = f"write `{text}{unit}`" if unit else "write for example `15s`, `1h30m` or `300ms`"
            raise ValueError(f"`{text}` is not a duration: {hint}")
        total = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(match[2])), Fraction(0))
        nanoseconds = int(total) * (-1 if match[1] == "-" else 1)
        if abs(nanoseconds) >= _LARGEST:
            raise ValueError(f"`{text}` is longer than 292 years")
        return cls(nanoseconds)

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 1_000_000_000

    def __str__(self) -> str:
        """The shortest form that is read back as the same duration, as Go prints it: `1m40s`, `1.5s`, `0s`."""
        remainder = abs(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        if remainder < _UNITS["s"]:
            return sign + _small(remainder)
        hours, remainder = divmod(remainder, _UNITS["h"])
        minutes, remainder = divmod(remainder, _UNITS["m"])
        text = f"{hours}h" if hours else ""
        text += f"{minutes}m" if hours or minutes else ""
        return sign + text + _decimal(remainder, "s")


def _small(nanoseconds: int) -> str:
    for unit in ("ms", "µs"):
        if nanoseconds >= _UNITS[unit]:
            return _decimal(nanoseconds, unit)
    return f"{nanoseconds}ns" if nanoseconds else "0s"


def _decimal(nanoseconds: int, unit: str) -> str:
    whole, remainder = divmod(nanoseconds, _UNITS[unit])
    digits = len(str(_UNITS[unit])) - 1
    fraction = f"{remainder:0{digits}d}".rstrip("0")
    return f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"


LONGEST_WAIT: Final = Duration(600 * _UNITS["s"])
"""For which a question may wait for proxies to answer, or for something to happen."""
