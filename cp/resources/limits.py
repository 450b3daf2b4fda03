"""The limits of lists in documents whose entries become configuration of proxies.

Each entry costs time and memory for every proxy that gets it, at each change. The limits are far above what a service,
a machine or a policy needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from cp.model.paths import step
from cp.model.violation import Violation

LIMITS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "Dataplane": {"networking.inbound[]": 1_000, "networking.outbound[]": 10_000},
        "MeshExternalService": {"spec.endpoints[]": 1_000},
        "MeshGateway": {"selectors[]": 1_000, "conf.listeners[]": 5_000},
        "MeshHTTPRoute": {
            "spec.to[].hostnames[]": 1_000,
            "spec.to[].rules[]": 1_000,
            "spec.to[].rules[].matches[]": 1_000,
        },
        "MeshMultiZoneService": {"spec.ports[]": 1_000},
        "MeshPassthrough": {"spec.default.appendMatch[]": 5_000},
        "MeshProxyPatch": {"spec.default.appendModifications[]": 500},
        "MeshService": {"spec.ports[]": 1_000},
        "MeshTrust": {"spec.caBundles[]": 100},
    }
)
"""The most entries that a list may have, by type and path."""


def too_many(kind: str, data: Mapping[str, Any]) -> Iterator[Violation]:
    for path, most in LIMITS.get(kind, {}).items():
        yield from _too_many(data, path.removesuffix("[]").split("."), "", most)


def _too_many(data: Any, names: list[str], path: str, most: int) -> Iterator[Violation]:
    """`names` are the steps to the list; a step that ends with `[]` goes through all entries of a list."""
    name, *inner_names = names
    value = data.get(name.removesuffix("[]")) if isinstance(data, Mapping) else None
    here = step(path, name.removesuffix("[]"))
    if not inner_names:
        if isinstance(value, list) and len(value) > most:
            yield Violation(here, f"has {len(value)} entries, and {most} are the most", "divide it")
    elif name.endswith("[]"):
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _too_many(item, inner_names, step(here, index), most)
    else:
        yield from _too_many(value, inner_names, here, most)
