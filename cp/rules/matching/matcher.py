"""Which policies select which dataplanes, without asking every policy about every dataplane.

Dataplanes with the same signature are matched once. After a change only the policies that changed are asked again, and
a kind of policy in which nothing changed keeps its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cp.model.memo import ByIdentity
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import Table, World
from cp.rules.matching.order import precedence, top_of
from cp.rules.matching.profile import DataplaneSignature, gateway_of, looking_at, profile
from cp.rules.matching.selection import MatchedPolicy, by_name, is_shadow, select

_Matches: TypeAlias = tuple[MatchedPolicy, ...]
ByKind: TypeAlias = Mapping[str, _Matches]

_Class: TypeAlias = tuple[str, DataplaneSignature, tuple[MatchedPolicy, ...], bool]
"""What tells classes of dataplanes apart: mesh, signature, the policies that name the dataplane, shadows or not."""


def match(world: World, dataplane: Resource, *, shadow: bool = False) -> ByKind:
    """The policies that select a dataplane, by kind, the weakest first.

    The order: docs/concepts/matching-and-merging.md#the-order-of-whole-policies.
    Dataplanes for which these are the same get the same mapping, so that classes can be told by identity.
    """
    return world.derived(PolicyMatcher).match(world, dataplane, shadow=shadow)


@dataclass(slots=True)
class _OfKind:
    """The policies of one kind in one mesh, and what was found out about them."""

    routes: Table
    """Policies may name a route, which decides whom they select."""

    broad: list[Resource]
    named: dict[str, list[Resource]]
    """Policies that name one dataplane, by the name."""

    matches: dict[DataplaneSignature, _Matches] = field(default_factory=dict)

    @classmethod
    def of(cls, world: World, kind: str, mesh: str) -> _OfKind:
        broad: list[Resource] = []
        named: dict[str, list[Resource]] = {}
        for policy in world.table(kind, mesh):
            name = _names_dataplane(policy)
            (named.setdefault(name, []) if name else broad).append(policy)
        return cls(world.table(HTTP_ROUTE, mesh), broad, named)


@dataclass(frozen=True, slots=True)
class _Signatures:
    """The dataplanes of one mesh, with the signature of each, and all on which that depends."""

    dataplanes: Table
    gateways: Table
    labels: tuple[str, ...]
    """The names of all labels by which some policy selects dataplanes."""

    tags: frozenset[str]
    """Those of all tags of inbounds by which some policy does."""

    by_dataplane: dict[Resource, DataplaneSignature] = field(default_factory=dict)

    def is_like(self, other: _Signatures) -> bool:
        is_same = self.dataplanes is other.dataplanes and self.gateways is other.gateways
        return is_same and (self.labels, self.tags) == (other.labels, other.tags)


class PolicyMatcher:
    """What is known of one World, taken over from the World before as far as it holds.

    It is no `Memo`: after a change it asks single policies again, about the signatures that dataplanes still have
    (record 0054). Like a memo it does not keep its World.

    Several threads may ask at once, and others ask the World before while this one takes over from it. So what is kept
    is complete when it is stored, the first to store it wins, and what is gone through is a copy.
    """

    def __init__(self, world: World, earlier: PolicyMatcher | None = None) -> None:
        self._kinds = [kind.name for kind in world.kinds.values() if kind.policy is not None]
        self._of_kind: dict[tuple[str, str], _OfKind] = {}
        self._by_name: dict[str, dict[str, list[Resource]]] = {}
        self._signatures: dict[str, _Signatures] = {}
        self._classes: dict[_Class, ByKind] = {}
        self._classes_before: Mapping[_Class, ByKind] = {}
        self._interned: dict[DataplaneSignature, DataplaneSignature] = {}
        self._came_from: dict[ByIdentity[_Matches], _Matches] = {}
        self.asked = 0
        """How often a policy had to be asked about a signature."""

        if earlier is not None:
            self._take_over(world, earlier)

    def match(self, world: World, dataplane: Resource, *, shadow: bool = False) -> ByKind:
        signature = self.signature(world, dataplane)
        key = (dataplane.mesh, signature, tuple(self._named(world, dataplane, signature)), shadow)
        if key not in self._classes:
            matched = self._like_before(self._matched(world, key), self._classes_before.get(key, {}))
            return self._classes.setdefault(key, matched)
        return self._classes[key]

    def before(self, matched: _Matches) -> _Matches:
        """What the same proxies matched in the World before, of the same kind; the very same if nothing changed."""
        return self._came_from.get(ByIdentity(matched), matched)

    def signature(self, world: World, dataplane: Resource) -> DataplaneSignature:
        """All that policies look at of a dataplane. Equal ones are the same object."""
        of_mesh = self._of_mesh(world, dataplane.mesh)
        signature = of_mesh.by_dataplane.get(dataplane)
        if signature is None:
            written = dataplane.selectable_labels
            labels = tuple((name, written[name]) for name in of_mesh.labels if name in written)
            looked_at = looking_at(profile(dataplane), of_mesh.tags)
            signature = DataplaneSignature(looked_at, gateway_of(world, dataplane), labels)
            signature = of_mesh.by_dataplane[dataplane] = self._interned.setdefault(signature, signature)
        return signature

    def _matched(self, world: World, of: _Class) -> ByKind:
        mesh, signature, named, shadow = of
        by_kind: dict[str, _Matches] = {}
        for kind in self._kinds:
            matches = self._broad(world, kind, mesh, signature)
            if own := [match for match in named if match.policy.type == kind]:
                matches = _ordered((*matches, *own))
            if not shadow and any(is_shadow(match.policy) for match in matches):
                matches = tuple(match for match in matches if not is_shadow(match.policy))
            if matches:
                by_kind[kind] = matches
        return by_kind

    def _broad(self, world: World, kind: str, mesh: str, of: DataplaneSignature) -> tuple[MatchedPolicy, ...]:
        known = self._policies(world, kind, mesh)
        if of not in known.matches:
            return known.matches.setdefault(of, _ordered(self._ask(world, known.broad, of)))
        return known.matches[of]

    def _named(self, world: World, dataplane: Resource, of: DataplaneSignature) -> Iterable[MatchedPolicy]:
        for policy in self._naming(world, dataplane.mesh).get(dataplane.display_name, ()):
            if (matched := by_name(policy, top_of(policy), dataplane, of)) is not None:
                yield matched

    def _naming(self, world: World, mesh: str) -> Mapping[str, list[Resource]]:
        """The policies that name one dataplane, by the name."""
        if mesh not in self._by_name:
            by_name: dict[str, list[Resource]] = {}
            for kind in self._kinds:
                for name, policies in self._policies(world, kind, mesh).named.items():
                    by_name.setdefault(name, []).extend(policies)
            return self._by_name.setdefault(mesh, by_name)
        return self._by_name[mesh]

    def _ask(self, world: World, policies: Sequence[Resource], of: DataplaneSignature) -> list[MatchedPolicy]:
        self.asked += len(policies)
        answers = (select(world, policy, of) for policy in policies)
        return [matched for matched in answers if matched is not None]

    def _policies(self, world: World, kind: str, mesh: str) -> _OfKind:
        key = (kind, mesh)
        if key not in self._of_kind:
            return self._of_kind.setdefault(key, _OfKind.of(world, kind, mesh))
        return self._of_kind[key]

    def _of_mesh(self, world: World, mesh: str) -> _Signatures:
        if mesh not in self._signatures:
            tables = [world.table(kind, mesh) for kind in self._kinds]
            labels = {name for table in tables for name in table.derived(_labels_looked_at)}
            tags = frozenset(name for table in tables for name in table.derived(_tags_looked_at))
            dataplanes, gateways = world.table("Dataplane", mesh), world.table("MeshGateway", mesh)
            signatures = _Signatures(dataplanes, gateways, tuple(sorted(labels)), tags)
            return self._signatures.setdefault(mesh, signatures)
        return self._signatures[mesh]

    def _take_over(self, world: World, earlier: PolicyMatcher) -> None:
        """Keep what was found out about unchanged policies, for the signatures that dataplanes still have."""
        self._classes_before = earlier._classes
        self._interned = earlier._interned
        live: set[DataplaneSignature] = set()
        for mesh, signatures_before in earlier._signatures.copy().items():
            of_mesh = self._of_mesh(world, mesh)
            if of_mesh.is_like(signatures_before):
                self._signatures[mesh] = of_mesh = signatures_before
            live |= {self.signature(world, dataplane) for dataplane in of_mesh.dataplanes}
        self._interned = {signature: signature for signature in live}
        for (kind, mesh), known in earlier._of_kind.copy().items():
            self._of_kind[kind, mesh] = self._renewed(world, known, _OfKind.of(world, kind, mesh), live)

    def _renewed(self, world: World, before: _OfKind, now: _OfKind, live: set[DataplaneSignature]) -> _OfKind:
        kept = _kept(before, now)
        changed = [policy for policy in now.broad if policy not in kept]
        for signature, matches in before.matches.copy().items():
            if signature not in live:
                continue
            new = self._ask(world, changed, signature)
            still = [match for match in matches if match.policy in kept]
            is_same = not new and len(still) == len(matches)
            now.matches[signature] = matches if is_same else self._instead_of(matches, _ordered((*still, *new)))
        return now

    def _like_before(self, now: ByKind, before: ByKind) -> ByKind:
        """The same mapping as before if nothing changed in it; else with what did not change as it was."""
        if now == before:
            return before
        known = {kind: before.get(kind, ()) for kind in now}
        return {
            kind: known[kind] if matched == known[kind] else self._instead_of(known[kind], matched)
            for kind, matched in now.items()
        }

    def _instead_of(self, before: _Matches, now: _Matches) -> _Matches:
        self._came_from[ByIdentity(now)] = before
        return now


def _kept(before: _OfKind, now: _OfKind) -> set[Resource]:
    """The policies whose answers still hold: they are the same, and so is the route that they name, if they do."""
    in_both = set(before.broad).intersection(now.broad)
    if before.routes is now.routes:
        return in_both
    return {policy for policy in in_both if top_of(policy).kind != HTTP_ROUTE}


def _ordered(matches: Iterable[MatchedPolicy]) -> _Matches:
    """The weakest first, which is the order of merging."""
    return tuple(sorted(matches, key=lambda match: precedence(match.policy), reverse=True))


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
