"""Confs from the fields of a legacy document: where each value comes from, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PlacedConf:
    """The conf of a policy with a targetRef, and the place in the document of each of its fields."""

    conf: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, place: str) -> None:
        """Set a field of the conf, unless the document leaves it out."""
        if value is None:
            return
        *outer, last = path.split(".")
        inner = self.conf
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = value
        self.places[path] = place


def conf_of_fields(data: Mapping[str, Any], fields: Mapping[str, str]) -> PlacedConf:
    """The values that a document has at some paths, as the fields of a conf at others."""
    result = PlacedConf()
    for path, place in fields.items():
        result.put(path, value_at(data, place), place)
    return result


def value_at(data: Any, path: str) -> Any:
    """What stands at a path; None if nothing does."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def as_number(value: float | None) -> int | str | None:
    """A number as policies with a targetRef write it: a fraction is a text."""
    if value is None:
        return None
    return int(value) if float(value).is_integer() else repr(float(value))
