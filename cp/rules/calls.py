"""What was found out to hold for destinations and for routes to them, kept over changes that do not concern them."""

from __future__ import annotations

from typing import TypeAlias

from cp.model.names import Destination, Identity
from cp.rules.changes import RuleChanges
from cp.rules.merging import MergedConf

Call: TypeAlias = tuple[Destination, tuple[Identity, ...], str]
"""A destination, the routes to it that contribute, and the hash of their matches."""

_Name: TypeAlias = tuple[str, str]


class CallConfs:
    """Confs by call. Beside it stands which calls go by which name, so that a change need not look at all of them."""

    def __init__(self) -> None:
        self._confs: dict[Call, MergedConf] = {}
        self._named: dict[_Name, set[Call]] = {}

    def get(self, call: Call) -> MergedConf | None:
        return self._confs.get(call)

    def put(self, call: Call, conf: MergedConf) -> None:
        self._confs[call] = conf
        for name in _names(call):
            self._named.setdefault(name, set()).add(call)

    def after(self, changes: RuleChanges) -> CallConfs:
        """The same without those that changes concern."""
        left = CallConfs()
        if changes.everybody:
            return left
        left._confs, left._named = dict(self._confs), dict(self._named)
        by_tags = () if changes.services is not None else [name for name in self._named if not name[0]]
        for name in (*changes.names, *by_tags):
            for call in left._named.pop(name, ()):
                left._confs.pop(call, None)
        return left


def _names(call: Call) -> tuple[_Name, ...]:
    """A service by its tag has no kind."""
    destination, via, _ = call
    identity = destination.identity
    service = ("", destination.service) if identity is None else (identity.type, identity.name)
    return (service, *((route.type, route.name) for route in via))
