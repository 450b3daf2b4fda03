"""Texts as an operator sees them: lists of names, messages of libraries, and what came from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

FEW: Final = 3
"""Names that have room in a sentence."""

_PASSWORD: Final = re.compile(r"(://[^/:@]*|^[^/:@]+:/?[^/:@]+):.*@", re.DOTALL)
"""Up to the last `@`: more is left out of a password with one than it has, and never less. A slash may be missing."""

_NAMED_PASSWORD: Final = re.compile(r"(password\s*=\s*)[^&\s]*", re.IGNORECASE)
"""As a parameter, or as libpq takes it without a URL."""

_USER: Final = re.compile(r"://.*@", re.DOTALL)


def plain(message: str) -> str:
    """A message of pydantic about a value, without its prefixes."""
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{text[:1].lower()}{text[1:]}"


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first names, and how many more there are: `a, b, c and 4 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def printable(text: str) -> str:
    """A text without characters that a terminal obeys, those that end a line included; each as its number."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def without_password(url: str) -> str:
    """A URL as it may be shown, also one that nobody can read."""
    return _NAMED_PASSWORD.sub(r"\1[redacted]", _PASSWORD.sub(r"\1:[redacted]@", url))


def without_user(url: str) -> str:
    """The same where the user may be secret too, as a token in its place is."""
    return _USER.sub("://[redacted]@", url)
