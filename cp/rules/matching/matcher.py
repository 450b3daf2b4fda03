"""Every policy against every dataplane, without asking them all.

Dataplanes with the same signature are matched once. After a change only the policies that changed are asked again, and
a kind of policy in which nothing changed keeps its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.matching.order import precedence, top_of
from cp.rules.matching.profile import DataplaneSignature, gateway_of, looking_at, profile
from cp.rules.matching.selection import SERVICE_TAG, MatchedPolicy, by_name, is_shadow, select

_Found: TypeAlias = tuple[MatchedPolicy, ...]
ByKind: TypeAlias = Mapping[str, _Found]

_Class: TypeAlias = tuple[str, DataplaneSignature, tuple[MatchedPolicy, ...], bool]
"""What tells classes of dataplanes apart: mesh, signature, the policies that name the dataplane, shadows or not."""


def match(world: World, dataplane: Resource, *, shadow: bool = False) -> ByKind:
    """The policies that select a dataplane, by kind, the least specific first.

    The order: docs/concepts/matching-and-merging.md#the-order-of-whole-policies.

    Dataplanes for which it comes to the same get the same mapping: who has it in hand can tell classes by identity.
    """
    return world.derived(matcher).match(dataplane, shadow=shadow)


def matcher(world: World, previous: PolicyMatcher | None) -> PolicyMatcher:
    """The matcher of a World; use it as `world.derived(matcher)`."""
    return PolicyMatcher(world, previous)


@dataclass(slots=True)
class _OfKind:
    """The policies of one kind in one mesh, and what was found out about them."""

    table: Table
    broad: list[Resource]
    named: dict[str, list[Resource]]
    """Policies that name one dataplane, by the name."""

    found: dict[DataplaneSignature, tuple[MatchedPolicy, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table) -> _OfKind:
        broad: list[Resource] = []
        named: dict[str, list[Resource]] = {}
        for policy in table:
            name = _names_dataplane(policy)
            (named.setdefault(name, []) if name else broad).append(policy)
        return cls(table, broad, named)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The dataplanes of one mesh, with the signature of each, and all on which that depends."""

    dataplanes: Table
    gateways: Table
    labels: tuple[str, ...]
    """The names of all labels by which some policy selects dataplanes."""

    tags: frozenset[str]
    """Those of all tags of inbounds by which some policy does."""

    signatures: dict[Resource, DataplaneSignature] = field(default_factory=dict)

    def is_like(self, other: _Seen) -> bool:
        same = self.dataplanes is other.dataplanes and self.gateways is other.gateways
        return same and (self.labels, self.tags) == (other.labels, other.tags)


class PolicyMatcher:
    """What is known of one World, taken over from the World before as far as it holds."""

    def __init__(self, world: World, previous: PolicyMatcher | None = None) -> None:
        self._world = world
        self._kinds = [kind.name for kind in world.kinds.values() if kind.policy is not None]
        self._of_kind: dict[tuple[str, str], _OfKind] = {}
        self._by_name: dict[str, dict[str, list[Resource]]] = {}
        self._seen: dict[str, _Seen] = {}
        self._classes: dict[_Class, ByKind] = {}
        self._before: Mapping[_Class, ByKind] = {}
        self._interned: dict[DataplaneSignature, DataplaneSignature] = {}
        self._came_from: dict[int, tuple[_Found, _Found]] = {}
        self.asked = 0
        """How often a policy had to be asked about a signature."""

        if previous is not None:
            self._take_over(previous)

    def match(self, dataplane: Resource, *, shadow: bool = False) -> ByKind:
        signature = self.signature(dataplane)
        key = (dataplane.mesh, signature, tuple(self._named(dataplane, signature)), shadow)
        if key not in self._classes:
            self._classes[key] = self._like_before(self._matched(key), self._before.get(key, {}))
        return self._classes[key]

    def before(self, found: _Found) -> _Found:
        """What the same proxies matched in the World before, of the same kind; the very same if nothing changed."""
        now, earlier = self._came_from.get(id(found), (None, found))
        return earlier if now is found else found

    def signature(self, dataplane: Resource) -> DataplaneSignature:
        """All that policies look at of a dataplane. Equal ones are the same object."""
        seen = self._of_mesh(dataplane.mesh)
        found = seen.signatures.get(dataplane)
        if found is None:
            known = dataplane.selectable_labels
            labels = tuple((name, known[name]) for name in seen.labels if name in known)
            looked_at = looking_at(profile(dataplane), seen.tags)
            found = DataplaneSignature(looked_at, gateway_of(self._world, dataplane), labels)
            found = seen.signatures[dataplane] = self._interned.setdefault(found, found)
        return found

    def _matched(self, of: _Class) -> ByKind:
        mesh, signature, named, shadow = of
        answer: dict[str, tuple[MatchedPolicy, ...]] = {}
        for kind in self._kinds:
            found = self._broad(kind, mesh, signature)
            if own := [one for one in named if one.policy.type == kind]:
                found = _ordered((*found, *own))
            if not shadow and any(is_shadow(one.policy) for one in found):
                found = tuple(one for one in found if not is_shadow(one.policy))
            if found:
                answer[kind] = found
        return answer

    def _broad(self, kind: str, mesh: str, of: DataplaneSignature) -> tuple[MatchedPolicy, ...]:
        known = self._policies(kind, mesh)
        if of not in known.found:
            known.found[of] = _ordered(self._ask(known.broad, of))
        return known.found[of]

    def _named(self, dataplane: Resource, of: DataplaneSignature) -> Iterable[MatchedPolicy]:
        for policy in self._naming(dataplane.mesh).get(dataplane.display_name, ()):
            if (found := by_name(policy, top_of(policy), dataplane, of)) is not None:
                yield found

    def _naming(self, mesh: str) -> Mapping[str, list[Resource]]:
        """The policies that name one dataplane, by the name."""
        if mesh not in self._by_name:
            found = self._by_name[mesh] = {}
            for kind in self._kinds:
                for name, policies in self._policies(kind, mesh).named.items():
                    found.setdefault(name, []).extend(policies)
        return self._by_name[mesh]

    def _ask(self, policies: Sequence[Resource], of: DataplaneSignature) -> list[MatchedPolicy]:
        self.asked += len(policies)
        answers = (select(self._world, policy, of) for policy in policies)
        return [found for found in answers if found is not None]

    def _policies(self, kind: str, mesh: str) -> _OfKind:
        key = (kind, mesh)
        if key not in self._of_kind:
            self._of_kind[key] = _OfKind.of(self._world.table(kind, mesh))
        return self._of_kind[key]

    def _of_mesh(self, mesh: str) -> _Seen:
        if mesh not in self._seen:
            tables = [self._world.table(kind, mesh) for kind in self._kinds]
            labels = {name for table in tables for name in table.derived(_labels_looked_at)}
            tags = frozenset(name for table in tables for name in table.derived(_tags_looked_at))
            dataplanes, gateways = self._world.table("Dataplane", mesh), self._world.table("MeshGateway", mesh)
            self._seen[mesh] = _Seen(dataplanes, gateways, tuple(sorted(labels)), tags)
        return self._seen[mesh]

    def _take_over(self, previous: PolicyMatcher) -> None:
        """Keep what was found out about unchanged policies, for the signatures that dataplanes still have."""
        self._before = previous._classes
        self._interned = previous._interned
        live: set[DataplaneSignature] = set()
        for mesh, before in previous._seen.items():
            seen = self._of_mesh(mesh)
            if seen.is_like(before):
                self._seen[mesh] = seen = before
            live |= {self.signature(dataplane) for dataplane in seen.dataplanes}
        self._interned = {one: one for one in live}
        for (kind, mesh), known in previous._of_kind.items():
            routes = [world.table("MeshHTTPRoute", mesh) for world in (self._world, previous._world)]
            table = self._world.table(kind, mesh)
            kept = _kept(known, table, same_routes=routes[0] is routes[1])
            self._of_kind[kind, mesh] = self._again(known, _OfKind.of(table), kept, live)

    def _again(self, before: _OfKind, now: _OfKind, kept: set[Resource], live: set[DataplaneSignature]) -> _OfKind:
        changed = [policy for policy in now.broad if policy not in kept]
        for signature, found in before.found.items():
            if signature not in live:
                continue
            new = self._ask(changed, signature)
            still = [one for one in found if one.policy in kept]
            same = not new and len(still) == len(found)
            now.found[signature] = found if same else self._instead_of(found, _ordered((*still, *new)))
        return now

    def _like_before(self, found: ByKind, before: ByKind) -> ByKind:
        """The same mapping as before if nothing changed in it; else with what did not change as it was."""
        if found == before:
            return before
        known = {kind: before.get(kind, ()) for kind in found}
        return {
            kind: known[kind] if one == known[kind] else self._instead_of(known[kind], one)
            for kind, one in found.items()
        }

    def _instead_of(self, before: _Found, now: _Found) -> _Found:
        self._came_from[id(now)] = (now, before)
        return now


def _kept(known: _OfKind, table: Table, *, same_routes: bool) -> set[Resource]:
    """The policies whose answers still hold: they are the same, and so is the route that they name, if they do."""
    there = (policy for policy in known.broad if table.get(policy.name) is policy)
    return {policy for policy in there if same_routes or top_of(policy).kind != "MeshHTTPRoute"}


def _ordered(found: Iterable[MatchedPolicy]) -> tuple[MatchedPolicy, ...]:
    return tuple(sorted(found, key=lambda one: precedence(one.policy), reverse=True))


def _names_dataplane(policy: Resource) -> str:
    target = top_of(policy)
    return (target.name or "") if target.kind == "Dataplane" else ""


def _tags_looked_at(table: Table) -> set[str]:
    targets = [top_of(policy) for policy in table]
    by_service = {SERVICE_TAG for target in targets if target.kind in {"MeshService", "MeshServiceSubset"}}
    return by_service | {name for target in targets for name in target.tags or ()}


def _labels_looked_at(table: Table) -> set[str]:
    targets = (top_of(policy) for policy in table)
    return {name for target in targets if target.kind == "Dataplane" for name in target.labels or ()}
