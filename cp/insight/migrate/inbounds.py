"""Legacy policies for who calls a proxy, and for proxies as a whole, as policies with `from` items or one conf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from cp.insight.migrate.confs import Conf, paths, whole
from cp.insight.migrate.documents import PolicyDraft, client, top
from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.outbounds import conf_of
from cp.insight.migrate.selection import ALL, MOST_ITEMS, Choice, Contest, Tags, bounded, choices_by
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.rules.legacy.selectors import ANY, Rank, rank, selectors_of

_ALLOW = {"action": "Allow"}
_DENY = {"action": "Deny"}


def permissions(facts: MeshFacts, policies: Sequence[Resource]) -> list[PolicyDraft]:
    """MeshTrafficPermissions. A stronger one takes back what weaker ones allow, as it holds alone."""
    holding = list(_holding(choices_by(policies, "destinations", facts.carried)))
    return [_permission(tags, choice, is_alone=len(holding) == 1) for tags, choice in holding]


def _permission(tags: Tags, choice: Choice, *, is_alone: bool) -> PolicyDraft:
    clients = clients_of(choice.policy)
    # Of one policy the last item is the strongest, and the strongest is served first.
    allowed = [{"targetRef": client(of_client), "default": _ALLOW} for of_client in reversed(clients)]
    if () not in clients and not is_alone:
        allowed.insert(0, {"targetRef": client(()), "default": _DENY})
    return PolicyDraft(
        "MeshTrafficPermission", tags, choice.strength, choice.policy.key, {"targetRef": top(tags), "from": allowed}
    )


def clients_of(policy: Resource) -> list[Tags]:
    """The tags of the clients for whom a policy is; without any tags, all of them."""
    sources = selectors_of(policy.data, "sources")
    return [tuple(sorted((name, value) for name, value in source.items() if value != ANY)) for source in sources]


def limits(facts: MeshFacts, policies: Sequence[Resource]) -> list[PolicyDraft]:
    """MeshRateLimits for all clients: of several on an inbound the one with the most specific `sources` holds."""
    choices = [_by_source(choice) for choice in choices_by(policies, "destinations", facts.carried)]
    holding = list(_holding(choices))
    confs = [conf_of(facts, "MeshRateLimit", choice.policy, ALL) for _, choice in holding]
    return [
        _of_clients("MeshRateLimit", tags, choice, [((), conf)])
        for (tags, choice), conf in zip(holding, _whole(confs), strict=True)
    ]


def notes_of_limits(facts: MeshFacts, policies: Iterable[Resource]) -> Iterator[str]:
    """The conditions of `rules` that fit the clients of a RateLimit, for those who go over to certificates."""
    if not (facts.mesh_data.get("mtls") or {}).get("enabledBackend"):
        return
    for policy in policies:
        clients = clients_of(policy)
        if clients and all([name for name, _ in tags] == [SERVICE_TAG] for tags in clients):
            ids = ", ".join(f"`spiffe://{facts.mesh}/{tags[0][1]}`" for tags in dict.fromkeys(clients))
            where = "where all calls come over TLS" + (
                "" if len(set(clients)) == 1 else ", each with a count of its own"
            )
            yield f"RateLimit {policy.name}: a MeshRateLimit with `rules` for {ids} limits such clients {where}"


def faults(facts: MeshFacts, policies: Sequence[Resource]) -> list[PolicyDraft]:
    """MeshFaultInjections: one for each sort of inbound, with what holds there, the strongest last."""
    choices = [_by_source(choice) for choice in choices_by(policies, "destinations", facts.carried)]
    contest = Contest(choices)
    by_tags: dict[Tags, list[tuple[int, Choice]]] = {}
    for number, choice in enumerate(choices):
        by_tags.setdefault(choice.tags, []).append((-number, choice))
    fitting = ((tags, choice) for tags in contest.tags for of in contest.weaker(tags) for choice in by_tags[of])
    together = groupby(bounded(fitting, MOST_ITEMS), key=lambda pair: pair[0])
    return [_faults(facts, tags, [choice for _, choice in pairs]) for tags, pairs in together]


def _faults(facts: MeshFacts, tags: Tags, choices: Iterable[tuple[int, Choice]]) -> PolicyDraft:
    fitting = [choice for _, choice in sorted(choices, key=lambda choice: (choice[1].strength, choice[0]))]
    policies = {choice.policy.key: choice.policy for choice in fitting}.values()
    items = [
        (of_client, conf_of(facts, "MeshFaultInjection", policy, ALL))
        for policy in policies
        for of_client in _widest(clients_of(policy))
    ]
    strongest = replace(fitting[-1], rank=Rank(len(tags), len(tags)))
    return _of_clients("MeshFaultInjection", tags, strongest, items)


def _widest(clients: Sequence[Tags]) -> Iterator[Tags]:
    """Clients without those who are among others of them: of one policy it is the same that is said of both."""
    for tags in dict.fromkeys(clients):
        if not any(set(other) < set(tags) for other in clients):
            yield tags


def _by_source(choice: Choice) -> Choice:
    """Such policies are compared by their first source."""
    sources = selectors_of(choice.policy.data, "sources")
    return replace(choice, rank=rank(sources[0]) if sources else Rank())


def _of_clients(kind: str, tags: Tags, choice: Choice, items: Iterable[tuple[Tags, Conf]]) -> PolicyDraft:
    from_ = [{"targetRef": client(of_client), "default": conf} for of_client, conf in items]
    spec = {"targetRef": top(tags, only_sidecars=True), "from": from_}
    return PolicyDraft(kind, tags, choice.strength, choice.policy.key, spec)


def of_proxies(facts: MeshFacts, kind: str, policies: Sequence[Resource]) -> list[PolicyDraft]:
    """Policies with one conf for the whole proxy."""
    holding = list(_holding(choices_by(policies, "selectors", facts.carried)))
    confs = _whole([conf_of(facts, kind, choice.policy, ALL) for _, choice in holding])
    return [
        PolicyDraft(kind, tags, choice.strength, choice.policy.key, {"targetRef": top(tags), "default": conf})
        for (tags, choice), conf in zip(holding, confs, strict=True)
        if conf
    ]


def _whole(confs: Sequence[Conf]) -> list[dict[str, Any]]:
    known = {path for conf in confs for path in paths(conf)}
    return [whole(conf, known if len(confs) > 1 else (), {}) for conf in confs]


def _holding(choices: Sequence[Choice]) -> Iterator[tuple[Tags, Choice]]:
    """Who holds, for each set of tags for which no weaker target at the top says the same already."""
    contest = Contest(choices)
    for tags in contest.tags:
        chosen = contest.winner(tags)
        if chosen is not None and (chosen.tags == tags or not chosen.tags):
            yield tags, chosen
