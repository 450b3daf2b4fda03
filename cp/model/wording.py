"""Messages of libraries in words for an operator."""

from __future__ import annotations


def plain(message: str) -> str:
    """A message of pydantic about a value, without its prefixes."""
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{text[:1].lower()}{text[1:]}"
