"""What libraries say of a value, in words for an operator."""

from __future__ import annotations


def plain(message: str) -> str:
    """What pydantic says of a value, without what it says of itself."""
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{text[:1].lower()}{text[1:]}"
