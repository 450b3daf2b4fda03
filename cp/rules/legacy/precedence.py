"""Which of the legacy policies of one kind holds for a service, an inbound or a proxy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.rules.legacy.matching import LegacyMatch, side_of
from cp.rules.legacy.selectors import Rank, age, best_rank, rank, selectors_of, strongest


def rank_at(match: LegacyMatch, place: str | int = "") -> Rank | None:
    """How specific a policy is for a service, an inbound by its index, or the proxy; None if it is not for it.

    The tag of a service is all that destinations are compared with, as in Kuma.
    """
    if isinstance(place, int):
        return dict(match.inbounds).get(place)
    if side_of(match.policy) is LegacySide.PROXY:
        return match.rank
    of_destination = best_rank(selectors_of(match.policy.data, "destinations"), [{SERVICE_TAG: place}])
    return None if of_destination is None else match.rank.plus(of_destination)


def by_kind(matches: Iterable[LegacyMatch], side: LegacySide) -> Iterator[list[LegacyMatch]]:
    of_kinds: dict[str, list[LegacyMatch]] = {}
    for match in matches:
        if side_of(match.policy) is side:
            of_kinds.setdefault(match.policy.type, []).append(match)
    yield from of_kinds.values()


def holder_at(matches: Iterable[LegacyMatch], place: str = "") -> Resource | None:
    """The policy that holds for a service or, without one, for the proxy as a whole."""
    ranked = [
        (rank_there, age(match.policy), match.policy)
        for match in matches
        if (rank_there := rank_at(match, place)) is not None
    ]
    return strongest(ranked)


def holders_on_inbound(matches: Iterable[LegacyMatch], index: int) -> Iterator[Resource]:
    """The policies that hold on an inbound: the best, or all where each is for clients of its own."""
    ranked = [
        (rank_of_inbound, age(match.policy), match.policy)
        for match in matches
        for chosen, rank_of_inbound in match.inbounds
        if chosen == index
    ]
    shape = ranked[0][2].kind.legacy if ranked else None
    if shape is None:
        return
    if shape.holds_alone:
        winner = strongest(ranked)
        if winner is not None:
            yield winner
        return
    by_source = sorted(ranked, key=lambda ranking: (_rank_of_source(ranking[2]), ranking[1]), reverse=True)
    yield from (policy for _, _, policy in by_source)


def _rank_of_source(policy: Resource) -> Rank:
    sources = selectors_of(policy.data, "sources")
    return rank(sources[0]) if sources else Rank()
