"""Who may call an inbound: what permissions say, one by one, and what they come to together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp.policies import ClientRule, Policy, Verdict
from cp.resources.schema import decode
from cp.rules import PolicyRules
from cp.rules.legacy import LegacyClient
from cp.rules.merging import MergedConf, Origin
from cp.translate.inbound import rules_side_by_side
from generators.envoy.permissions import UriCondition, server_name_of, uri_conditions


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that a permission says: what becomes of clients that meet conditions."""

    verdict: Verdict
    uris: tuple[UriCondition, ...]
    """What has to hold of the certificate of a client; nothing: they are all clients."""

    server_name: str
    """The server name for which they have to ask; empty: any."""

    unless: tuple[tuple[UriCondition, ...], ...]
    """Other conditions: of a client that meets all of one of them it says nothing."""

    origin: Origin
    path: str
    """Where it is written in its document."""

    @property
    def item(self) -> str:
        """The item of its document: of a legacy policy, which has one conf, the selector of the clients."""
        return self.path if self.path.startswith("sources") else self.origin.item

    @property
    def line(self) -> int:
        return self.origin.source.line(self.path)

    def is_for(self, uris: Iterable[str], server_name: str) -> bool:
        names = tuple(uris)
        if self.server_name not in {"", server_name} or any(_hold(conditions, names) for conditions in self.unless):
            return False
        return _hold(self.uris, names)

    def covers(self, other: Permission, domains: Sequence[str]) -> bool:
        """Whether it is surely for all clients that another one is for. Every client has a name in some trust domain.

        Of conditions that rule clients out nothing is sure.
        """
        if self.unless or self.server_name not in {"", other.server_name}:
            return False
        return all(_follows(condition, other.uris, domains) for condition in self.uris)


@dataclass(frozen=True, slots=True)
class CallJudgement:
    """Whether a client may call, and what decided that."""

    decided_by: Permission | None
    """Who denies it or, if nobody does, who allows it; None if nobody allows it either."""

    shadow_denied_by: Permission | None = None

    @property
    def is_allowed(self) -> bool:
        return self.decided_by is not None and self.decided_by.verdict is Verdict.ALLOW


@dataclass(frozen=True, slots=True)
class _ClientConf:
    """What is said of those clients of an inbound who meet conditions."""

    match: Mapping[str, Any]
    conf: MergedConf
    place: str = ""
    """Where the clients are named, if that is what allows them."""


def permissions_at(
    policy: Policy[Any], rules: PolicyRules | None, index: int, mesh: str, legacy: Iterable[LegacyClient] = ()
) -> tuple[Permission, ...]:
    """All that permissions say about those who call an inbound; nothing if none selects it.

    `legacy` is what legacy policies say of them, as far as it counts.
    """
    of_rules = () if rules is None else rules_side_by_side(rules, index)
    judging = [_ClientConf(match, combined.conf) for match, combined in of_rules]
    judging += [_ClientConf(client.match, client.conf, client.place) for client in legacy]
    return tuple(_permissions(policy, judging, mesh))


def judgement(permissions: Iterable[Permission], uris: Iterable[str], server_name: str) -> CallJudgement:
    """What becomes of a client with such a certificate. Who is denied by any may not call, whoever else allows it."""
    names, deciding = tuple(uris), dict[Verdict, Permission]()
    for permission in permissions:
        if permission.is_for(names, server_name):
            deciding.setdefault(permission.verdict, permission)
    if denied_by := deciding.get(Verdict.DENY):
        return CallJudgement(denied_by)
    allowed_by = deciding.get(Verdict.ALLOW)
    return CallJudgement(allowed_by, deciding.get(Verdict.SHADOW_DENY) if allowed_by is not None else None)


def _permissions(policy: Policy[Any], judging: Sequence[_ClientConf], mesh: str) -> Iterator[Permission]:
    client_rules = [ClientRule(judged.match, decode(policy.conf, judged.conf.value)) for judged in judging]
    for index, verdict in policy.verdicts(client_rules):
        field, path = judging[index].conf.written(verdict.path)
        yield Permission(
            verdict.verdict,
            tuple(uri_conditions(verdict.client, mesh)),
            server_name_of(verdict.client),
            tuple(tuple(uri_conditions(client, mesh)) for client in verdict.unless),
            field.winner.origin,
            judging[index].place or path,
        )


def _hold(conditions: Iterable[UriCondition], uris: Sequence[str]) -> bool:
    return all(condition.holds(uris) for condition in conditions)


def _follows(condition: UriCondition, from_: Iterable[UriCondition], domains: Sequence[str]) -> bool:
    """Whether a condition surely holds where others do."""
    if condition in from_:
        return True
    if condition.is_not:
        return False
    if condition.is_prefix and all(f"spiffe://{domain}/".startswith(condition.value) for domain in domains):
        return True
    return condition.is_prefix and any(other.value.startswith(condition.value) for other in from_ if not other.is_not)
