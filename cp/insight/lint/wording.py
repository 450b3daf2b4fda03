"""How findings name what they are about."""

from __future__ import annotations

from collections.abc import Iterable

from cp.model.names import Destination
from cp.model.wording import few
from cp.resources.dataplane import PROTOCOL_TAG
from cp.rules.merging import Origin
from cp.translate.effective import BUILT_IN
from cp.translate.view.outside import EXTERNAL


def origin_name(origin: Origin, line: int | None = None) -> str:
    """A policy by its type and name, with the file and a line: that of its item, unless another one is given."""
    if origin.part == BUILT_IN:
        return "the built-in default"
    place = f" ({origin.file}:{origin.line if line is None else line})" if origin.file else ""
    return f"{origin.policy.type} {origin.policy.name}{place}"


def destination_name(destination: Destination) -> str:
    identity = destination.identity
    return f"the service {destination.service}" if identity is None else f"{identity.type} {identity.name}"


def where_protocol_is_said(destination: Destination) -> str:
    """The field by which it is known what is spoken with a destination."""
    if destination.identity is None:
        return f"the tag `{PROTOCOL_TAG}` of its inbounds"
    return "its `match.protocol`" if destination.identity.type == EXTERNAL else "`appProtocol` of its port"


def listed(names: Iterable[str]) -> str:
    return few(list(dict.fromkeys(names)))
