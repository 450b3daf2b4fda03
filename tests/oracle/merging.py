"""One conf from several, and one value from several levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Conf = Mapping[str, Any]


def merged(confs: Iterable[Any]) -> Conf:
    """Document 002, Merging configuration: a merge patch, from the weakest to the strongest. A null removes."""
    result: Any = {}
    for conf in confs:
        result = _patched(result, conf)
    return result if isinstance(result, Mapping) else {}


def _patched(base: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(base) if isinstance(base, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), value)
    return result


def value(levels: Sequence[Conf], path: str) -> Any:
    """The value of the first level that has one: a level that leaves a field out falls back (record 0007)."""
    return next((value for level in levels if (value := _at(level, path)) is not None), None)


def _at(conf: Any, path: str) -> Any:
    for name in path.split("."):
        conf = conf.get(name) if isinstance(conf, Mapping) else None
    return conf
