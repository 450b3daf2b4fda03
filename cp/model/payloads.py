"""Bytes that documents have in base64, and the texts that they are."""

from __future__ import annotations

import base64
import binascii
from typing import Any


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def bytes_of(encoded: str) -> bytes | None:
    """The bytes; None where it is not base64."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def text_of(encoded: Any) -> str | None:
    """The bytes as a text; None for other bytes."""
    try:
        return (bytes_of(str(encoded)) or b"").decode()
    except UnicodeDecodeError:
        return None


def is_no_text(encoded: Any) -> bool:
    return isinstance(encoded, str) and text_of(encoded) is None
