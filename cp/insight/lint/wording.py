"""How findings name what they are about."""

from __future__ import annotations

from collections.abc import Iterable

from cp.model.names import Destination
from cp.model.wording import few
from cp.rules.merging import Origin
from cp.translate.effective import BUILT_IN


def origin_name(origin: Origin, line: int | None = None) -> str:
    """A policy by its type and name, with the file and a line: that of its item, unless another one is given."""
    if origin.part == BUILT_IN:
        return "the built-in default"
    place = f" ({origin.file}:{origin.line if line is None else line})" if origin.file else ""
    return f"{origin.policy.type} {origin.policy.name}{place}"


def destination_name(destination: Destination) -> str:
    identity = destination.identity
    return f"the service {destination.service}" if identity is None else f"{identity.type} {identity.name}"


def listed(names: Iterable[str]) -> str:
    return few(list(dict.fromkeys(names)))
