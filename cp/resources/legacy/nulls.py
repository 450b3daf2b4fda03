"""Explicit nulls of legacy documents: they are the same as leaving a field out, at every level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """A document, or a part of one, as if its nulls had not been written."""
    return {name: _without(value) for name, value in data.items() if value is not None}


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_nulls(value)
    return [_without(item) for item in value] if isinstance(value, list) else value
