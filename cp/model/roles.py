"""Whose policy it is, where namespaces tell: a producer's, a consumer's, or that of a workload's owner.

The rules are in docs/concepts/matching-and-merging.md#roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SYSTEM_NAMESPACE: Final = "kuma-system"
"""The namespace whose policies have the role `system`."""

SYSTEM: Final = "system"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
WORKLOAD_OWNER: Final = "workload-owner"

_OF_PRODUCERS: Final = frozenset({"MeshService", "MeshHTTPRoute", "MeshTCPRoute"})
_OF_POLICIES: Final = frozenset({"targetRef", "to", "from", "rules", "default"})


def role(spec: Any, namespace: str) -> str | None:
    """The role of a policy in a namespace; None for a resource that is no policy.

    Raises `ValueError` with a message for the operator where it would be two at once.
    """
    if not isinstance(spec, Mapping) or _OF_POLICIES.isdisjoint(spec):
        return None
    if namespace == SYSTEM_NAMESPACE:
        return SYSTEM
    written = spec.get("to")
    to = written if isinstance(written, list) else []  # anything else is a violation when the spec is read
    if to and spec.get("from"):
        raise ValueError("`to` and `from` cannot stand in one policy here; write two")
    if not to:
        return WORKLOAD_OWNER
    sides = {_is_of_producer(item, namespace) for item in to}
    if len(sides) > 1:
        raise ValueError("items for what is in this namespace and items for others cannot stand together; write two")
    return PRODUCER if sides == {True} else CONSUMER


def _is_of_producer(item: Any, namespace: str) -> bool:
    """Whether an item is for a service or route of the policy's own namespace: then it holds for all of its callers."""
    target = item.get("targetRef") if isinstance(item, Mapping) else None
    if not isinstance(target, Mapping) or str(target.get("kind")) not in _OF_PRODUCERS:
        return False
    return bool(target.get("name")) and (target.get("namespace") or namespace) == namespace
