"""Items of permissions for clients by their tags: whose certificates have none, or whom others allow all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.mtls import denier_of, judged_inbounds, judging, trust_domains
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.walk import ProxyInbound
from cp.insight.lint.wording import origin_name
from cp.insight.permissions import Permission
from cp.insight.tagged_clients import Names, certified_names, clients_by_name, meant_by_tags, workload_name
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Verdict
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.items import items, tags_of
from cp.rules.matching import is_shadow


def unknown(survey: MeshSurvey) -> Iterator[Finding]:
    """Items of `from` that do not know clients whom they mean, as a MeshIdentity names those."""
    names: dict[str, Names] = {}
    for policy in _permissions(survey):
        of_mesh = names.setdefault(policy.mesh, clients_by_name(survey.world, policy.mesh))
        for item in items(policy).from_:
            if (reason := _reason(survey.world, item, of_mesh)) is not None:
                yield finding_about(policy, reason)


def denied_and_allowed(survey: MeshSurvey) -> Iterator[Finding]:
    """Items of `from` that deny clients whom `rules` allow all the same."""
    names: dict[str, Names] = {}
    allowing_by_item: dict[PolicyItem, dict[Key, Permission]] = {}
    distinct = {permissions: inbound for inbound, permissions in judged_inbounds(survey)}
    for permissions, inbound in distinct.items():
        denying, mesh = tuple(_denying(survey, inbound)), inbound.dataplane.mesh
        if not denying:
            continue
        of_mesh = names.setdefault(mesh, clients_by_name(survey.world, mesh))
        allowing = tuple(_allowed_by_rules(permissions, trust_domains(survey, inbound)))
        for item in denying:
            clients = [certified_names(survey.world, client) for client in meant_by_tags(item, of_mesh)]
            for permission in allowing:
                if _allows_any(permission, item, clients):
                    allowing_by_item.setdefault(item, {}).setdefault(permission.origin.policy, permission)
    for item, by_policy in allowing_by_item.items():
        yield finding_about(item.policy, _allowed_all_the_same(item, tuple(by_policy.values())))


def _denying(survey: MeshSurvey, inbound: ProxyInbound) -> Iterator[PolicyItem]:
    for kind in judging(survey):
        rules = inbound.rules.get(kind)
        for tagged in () if rules is None else rules.from_(inbound.index).tagged:
            if _action(tagged.item) == "Deny":
                yield tagged.item


def _allowed_by_rules(permissions: Sequence[Permission], domains: tuple[str, ...]) -> Iterator[Permission]:
    """What `rules` allow, and no `deny` takes back."""
    for permission in permissions:
        is_of_rules = permission.verdict is Verdict.ALLOW and permission.origin.part == "rules"
        if is_of_rules and denier_of(permission, permissions, domains) is None:
            yield permission


def _allows_any(permission: Permission, item: PolicyItem, clients: Iterable[Sequence[str]]) -> bool:
    """Whether somebody whom an item denies is allowed. An item without tags denies everybody."""
    if not tags_of(item):
        return True
    return any(permission.is_for(names, permission.server_name) for names in clients)


def _allowed_all_the_same(item: PolicyItem, allowing: Sequence[Permission]) -> FindingReason:
    whose = origin_name(allowing[0].origin, allowing[0].line)
    more = f" and {len(allowing) - 1} more" if len(allowing) > 1 else ""
    text = f"does not deny those whom `rules` of {whose}{more} allow: it takes back what weaker items of `from` allow"
    return FindingReason("denied-and-allowed", text, item.origin.path, "deny them in `rules`, by `spiffeID`")


def _action(item: PolicyItem) -> str:
    action: str = item.layer.conf.get("action") or ""
    return action


def _permissions(survey: MeshSurvey) -> Iterator[Resource]:
    for mesh in survey.world.table("Mesh"):
        if len(survey.world.table("MeshIdentity", mesh.name)):
            for kind, policy in survey.policies.items():
                if policy.judges_every_client:
                    yield from (
                        permission for permission in survey.world.table(kind, mesh.name) if not is_shadow(permission)
                    )


def _reason(world: World, item: PolicyItem, names: Names) -> FindingReason | None:
    named = {client: workload_name(world, client) for client in meant_by_tags(item, names)}
    unknown_ones = [client for client, (identity, _) in named.items() if identity]
    if not unknown_ones:
        return None
    identity, spiffe_id = named[unknown_ones[0]]
    consequence = "so it denies nobody of them" if _action(item) == "Deny" else "so it lets nobody of them in"
    text = (
        f"does not know {_listed(unknown_ones)} by tags: certificates by MeshIdentity {identity} have"
        f" a SPIFFE ID alone, {consequence}"
    )
    hint = f"write `rules` with `spiffeID`, such as {spiffe_id}"
    return FindingReason("unknown-by-tags", text, item.origin.path, hint)


def _listed(clients: Sequence[Resource]) -> str:
    return clients[0].name if len(clients) == 1 else f"{clients[0].name} and {len(clients) - 1} more"
