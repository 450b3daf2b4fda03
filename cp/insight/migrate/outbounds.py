"""Legacy policies for what proxies call, as policies with `to` items.

For each sort of proxy and each service one legacy policy holds, and nothing is merged. Items of policies with a
targetRef are merged, so an item here says everything: also what it leaves open and others set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cp.insight.migrate.confs import Conf, Path, nulls, paths, value_at, whole
from cp.insight.migrate.documents import PolicyDraft, destination, top
from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.selection import ALL, MOST_ITEMS, Choice, Contest, Tags, bounded
from cp.resources.kinds import LegacyConf
from cp.resources.resource import Resource

_WITHOUT_WORDS: Final = frozenset({("MeshHealthCheck", "checker")})
"""What confs have that no document can say: that a service is checked by HTTP, though it speaks something else."""

_OF_UNKNOWN_CALLS: Final = frozenset({"MeshAccessLog"})
"""Policies whose items for the whole mesh are on a gateway also for requests that no route takes."""


class Holding(NamedTuple):
    """A legacy policy that holds for a service, of the proxies that have some tags."""

    tags: Tags
    service: str
    choice: Choice


@dataclass(frozen=True, slots=True)
class Wording:
    """A way to write items."""

    wide: bool
    """Whether items for the whole mesh are written, or one for each service."""

    defaults: bool
    """Whether what a policy leaves open is written as the default, or as null."""


_WORDINGS: Final = (Wording(wide=True, defaults=False), Wording(wide=True, defaults=True))
_BY_NAME: Final = Wording(wide=False, defaults=False)


def confs_of(facts: MeshFacts, policy: Resource, service: str) -> Sequence[LegacyConf]:
    """What a legacy policy comes to for a service, or for services of the protocol that most speak."""
    legacy = policy.kind.legacy
    protocol = facts.usual_protocol if service == ALL else facts.services.get(service, facts.usual_protocol)
    return () if legacy is None else tuple(legacy.confs(policy.data, facts.mesh_data, protocol))


def conf_of(facts: MeshFacts, kind: str, policy: Resource, service: str) -> Conf:
    """As far as it comes to policies of one kind, and those can say it."""
    conf = next((conf.conf for conf in confs_of(facts, policy, service) if conf.kind == kind), {})
    return {name: value for name, value in conf.items() if (kind, name) not in _WITHOUT_WORDS}


def kinds_of(facts: MeshFacts, choices: Sequence[Choice]) -> list[str]:
    """The kinds of policies with a targetRef that say what these say."""
    policies = {choice.policy.key: choice.policy for choice in choices}.values()
    samples = (ALL, *facts.samples)
    confs = (conf for policy in policies for service in samples for conf in confs_of(facts, policy, service))
    return list(dict.fromkeys(conf.kind for conf in confs))


def drafts(facts: MeshFacts, kind: str, choices: Sequence[Choice]) -> list[PolicyDraft]:
    """Policies of one kind that say the same."""
    by_name = facts.has_real or (facts.has_gateways and kind in _OF_UNKNOWN_CALLS)
    for wording in () if by_name else _WORDINGS:
        items = _items(facts, kind, choices, wording)
        if _is_exact(items):
            return _drafts(kind, items)
    return _drafts(kind, _items(facts, kind, choices, _BY_NAME))


def holding(choices: Sequence[Choice], services: Sequence[str]) -> Iterator[Holding]:
    """Who holds where: for all proxies with some tags, for which no weaker target at the top says the same already.

    Raises `TooManyPolicies`.
    """
    return bounded(_holding(choices, services), MOST_ITEMS)


def _holding(choices: Sequence[Choice], services: Sequence[str]) -> Iterator[Holding]:
    contest = Contest(choices)
    for tags in contest.tags:
        of_all, of_tags = contest.winner(tags), contest.services(tags)
        for service in services if ALL in of_tags else [service for service in services if service in of_tags]:
            chosen = contest.winner(tags, service)
            if chosen is None:
                continue
            # A target with tags goes before the whole mesh, however strong the legacy policy for the mesh is.
            hides = not chosen.tags and of_all is not None and of_all.tags == tags
            if chosen.tags == tags or hides:
                yield Holding(tags, service, chosen)


def _items(facts: MeshFacts, kind: str, choices: Sequence[Choice], wording: Wording) -> list[tuple[Holding, Conf]]:
    services = _services(facts, kind, choices, wording)
    default = facts.defaults.get(kind, {}) if wording.defaults else {}
    holders = list(holding(choices, services))
    confs = [(held, conf_of(facts, kind, held.choice.policy, held.service)) for held in holders]
    known = {path for _, conf in confs for path in paths(conf)}
    items: list[tuple[Holding, Conf]] = []
    for held, conf in confs:
        is_weakest = not held.tags and (held.service == ALL or not wording.wide)
        if complete := whole(conf, () if is_weakest else known, default):
            items.append((held, complete))
    return items


def _services(facts: MeshFacts, kind: str, choices: Sequence[Choice], wording: Wording) -> list[str]:
    named = {choice.service for choice in choices} - {ALL}
    if not wording.wide:
        return sorted(named | facts.services.keys())
    policies = {choice.policy.key: choice.policy for choice in choices}.values()
    differing_protocols = {
        facts.services[service]
        for service in facts.samples
        if any(conf_of(facts, kind, policy, service) != conf_of(facts, kind, policy, ALL) for policy in policies)
    }
    differing = {service for service, protocol in facts.services.items() if protocol in differing_protocols}
    return [ALL, *sorted(named | differing)]


def _is_exact(items: Sequence[tuple[Holding, Conf]]) -> bool:
    """Whether every null does what it is for: one for a service takes nothing back that is written for the mesh."""
    of_mesh = [conf for held, conf in items if held.service == ALL]
    of_services = [conf for held, conf in items if held.service != ALL]
    return not any(_sets(conf, path) for other in of_services for path in nulls(other) for conf in of_mesh)


def _sets(conf: Conf, path: Path) -> bool:
    return value_at(conf, path) is not None


def _drafts(kind: str, items: Sequence[tuple[Holding, Conf]]) -> list[PolicyDraft]:
    """One policy for each legacy policy, sort of proxies and rank: all of its items are equally strong."""
    together: dict[Any, list[tuple[Holding, Conf]]] = {}
    for held, conf in items:
        of_policy = together.setdefault((held.tags, held.choice.policy.key, held.choice.rank), [])
        if not any(other.service == ALL and of_all == conf for other, of_all in of_policy):  # it says so of all
            of_policy.append((held, conf))
    return [_draft(kind, of_policy) for of_policy in together.values()]


def _draft(kind: str, items: Sequence[tuple[Holding, Conf]]) -> PolicyDraft:
    first = items[0][0]
    to = [{"targetRef": destination(held.service), "default": conf} for held, conf in items]
    spec: Mapping[str, Any] = {"targetRef": top(first.tags), "to": to}
    return PolicyDraft(kind, first.tags, first.choice.strength, first.choice.policy.key, spec)
