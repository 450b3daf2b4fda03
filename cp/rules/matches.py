"""The matches of a route as one text, by which rules with the same matches are recognised.

See docs/concepts/routes.md#rules-with-the-same-matches.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_ENCODED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_FIELDS: Final = {
    "path": ("value", "type"),
    "queryParams": ("type", "name", "value"),
    "headers": ("type", "name", "value"),
}


def matches_hash(matches: Iterable[Mapping[str, Any]]) -> str:
    """Kuma's hash: the matches as Go writes their types as JSON, field by field. Their order counts."""
    text = msgspec.json.encode([_match(match) for match in matches]).decode()
    for plain, encoded in _ENCODED.items():
        text = text.replace(plain, encoded)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _match(match: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if match.get("path") is not None:
        fields["path"] = _fields("path", match["path"])
    if match.get("method") is not None:
        fields["method"] = match["method"]
    for name in ("queryParams", "headers"):
        if match.get(name):
            fields[name] = [_fields(name, entry) for entry in match[name]]
    return fields


def _fields(of: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _FIELDS[of] if data.get(name) is not None}
