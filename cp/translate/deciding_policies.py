"""Which of the matched policies of a proxy decide over its outbounds, and which over its inbounds.

A matched policy may do neither: a policy with items of `to` alone has no say over inbounds. Policies without lists of
items (`PolicyShape.single`) decide over both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from cp.model.memo import IdentityDict
from cp.resources.resource import Resource
from cp.rules.matching import MatchedPolicy
from cp.rules.matching.matcher import ByKind

PolicyT = TypeVar("PolicyT", bound=Hashable)

_PoliciesByKind: TypeAlias = tuple[tuple[str, tuple[PolicyT, ...]], ...]


class DecidingPolicies(Generic[PolicyT]):
    """The policies that decide over the outbounds, or the inbounds, of some proxies.

    Equal only to itself. Proxies for which the same policies decide share the object, so comparing costs nothing.
    """

    __slots__ = ("by_kind",)

    def __init__(self, by_kind: _PoliciesByKind[PolicyT]) -> None:
        self.by_kind = by_kind

    @property
    def policies(self) -> Mapping[str, tuple[PolicyT, ...]]:
        return dict(self.by_kind)


OutboundPolicies: TypeAlias = DecidingPolicies[Resource]

InboundPolicies: TypeAlias = DecidingPolicies[MatchedPolicy]
"""Each with the inbounds that it selected: two proxies share these only if the same inbounds are selected."""


@dataclass(frozen=True, slots=True)
class SplitPolicies:
    """The matched policies of some proxies, split by what they decide over. A policy may be on both sides."""

    outbounds: OutboundPolicies
    inbounds: InboundPolicies


class _SharedPolicies(Generic[PolicyT]):
    """The `DecidingPolicies` that there are, so that equal policies are one object."""

    def __init__(self, live: Iterable[DecidingPolicies[PolicyT]] = ()) -> None:
        self._known = {policies.by_kind: policies for policies in live}

    def of(self, by_kind: Mapping[str, tuple[PolicyT, ...]]) -> DecidingPolicies[PolicyT]:
        present = tuple((kind, policies) for kind, policies in by_kind.items() if policies)
        return self._known.setdefault(present, DecidingPolicies(present))


class PolicySplitter:
    """Splits matched policies, World after World.

    What equal policies come to is one object, over proxies and from each World to the next.
    """

    def __init__(self) -> None:
        self._splits: IdentityDict[ByKind, SplitPolicies] = IdentityDict()
        self._splits_before: IdentityDict[ByKind, SplitPolicies] = IdentityDict()
        self._outbound_policies: _SharedPolicies[Resource] = _SharedPolicies()
        self._inbound_policies: _SharedPolicies[MatchedPolicy] = _SharedPolicies()

    def enter_next_world(self) -> None:
        """Forget the results of all Worlds but the last: earlier ones would pile up."""
        splits = tuple(self._splits.values())
        self._outbound_policies = _SharedPolicies(split.outbounds for split in splits)
        self._inbound_policies = _SharedPolicies(split.inbounds for split in splits)
        self._splits, self._splits_before = IdentityDict(), self._splits

    def split(self, matched: ByKind) -> SplitPolicies:
        split = self._splits.get(matched)
        if split is None:
            split = self._splits_before.get(matched) or self._split(matched)
            self._splits.put(matched, split)
        return split

    def _split(self, matched: ByKind) -> SplitPolicies:
        of_outbounds: dict[str, tuple[Resource, ...]] = {}
        of_inbounds: dict[str, tuple[MatchedPolicy, ...]] = {}
        for kind, matches in matched.items():
            single = matches[0].policy.kind.policy is not None and matches[0].policy.kind.policy.single
            policies = [(match, match.policy, match.policy.data) for match in matches]
            of_outbounds[kind] = tuple([policy for _, policy, data in policies if single or data.get("to")])
            of_inbounds[kind] = tuple(
                [match for match, _, data in policies if single or data.get("from") or data.get("rules")]
            )
        return SplitPolicies(self._outbound_policies.of(of_outbounds), self._inbound_policies.of(of_inbounds))
