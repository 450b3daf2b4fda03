"""MeshTrafficPermission: who may call an inbound.

Of clients by their tags (`from`):

    action                                what is done with them:
                                          Allow: RBAC.rules (ALLOW); AllowWithShadowDeny: also RBAC.shadow_rules;
                                          Deny: nothing, as nobody may call who is not allowed to

Of clients by their identity (`rules`), where `deny` goes before `allow`:

    deny                                  an RBAC of its own, before the other: rules (DENY)
    deny[].spiffeID                       Principal.authenticated: a URI of the client's certificate
    deny[].spiffeID.type
    deny[].spiffeID.value
    deny[].sni                            Permission.requested_server_name: what the client asked for
    deny[].sni.type
    deny[].sni.value
    allow                                 RBAC.rules (ALLOW)
    allow[].spiffeID
    allow[].spiffeID.type
    allow[].spiffeID.value
    allow[].sni
    allow[].sni.type
    allow[].sni.value
    allowWithShadowDeny                   RBAC.rules (ALLOW), RBAC.shadow_rules (DENY)
    allowWithShadowDeny[].spiffeID
    allowWithShadowDeny[].spiffeID.type
    allowWithShadowDeny[].spiffeID.value
    allowWithShadowDeny[].sni
    allowWithShadowDeny[].sni.type
    allowWithShadowDeny[].sni.value

With mTLS on and no policy nobody may call. Of the items by tags the strongest that is for a client counts, so an entry
leaves out those for whom a stronger one says something else: a Deny takes back what weaker items of `from` allow, and
nothing of `rules`. What `rules` say holds side by side: who is in a `deny` may not call, whoever else allows it.

Two filters say so, and not Envoy's matcher: its input for URIs is all URIs of a certificate in one text, so that no
exact name would be found in a certificate that has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from envoy.config.rbac.v3.rbac_pb2 import RBAC

from cp.model.violation import Violation, at
from cp.policies import ClientRule, ClientVerdict, Policy, Verdict, in_spec
from cp.resources import deprecated
from cp.resources.checks import absent, unwanted
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.limits import CONDITIONS_OF_PERMISSIONS
from cp.resources.matches import client_match
from cp.resources.schema import Schema
from cp.resources.spec import ClientMatch, PolicySpec, SpecItem, SpecRule
from cp.resources.targets import SUBSETS, AllowedTargets
from generators.drafts import ListenerDraft
from generators.envoy.permissions import PolicyTable, http_filters, network_filters
from generators.proxy import Inbound


class FromConf(Schema, frozen=True):
    action: Literal["Allow", "Deny", "AllowWithShadowDeny"] | None = None


class PermissionRuleConf(Schema, frozen=True):
    deny: list[ClientMatch] | None = None
    allow: list[ClientMatch] | None = None
    allow_with_shadow_deny: list[ClientMatch] | None = None


class Conf(Schema, frozen=True):
    """A merged conf, of `from` items (`action`) or of `rules` (the lists)."""

    action: Literal["Allow", "Deny", "AllowWithShadowDeny"] | None = None
    deny: list[ClientMatch] | None = None
    allow: list[ClientMatch] | None = None
    allow_with_shadow_deny: list[ClientMatch] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[Any] | None = None
    from_: list[SpecItem[FromConf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[PermissionRuleConf]] | None = None


TARGETS: Final = AllowedTargets(from_=SUBSETS)

_SHADOW: Final = (Verdict.ALLOW, Verdict.SHADOW_DENY)
_OF_ACTION: Final[Mapping[str, tuple[Verdict, ...]]] = {
    "Allow": (Verdict.ALLOW,),
    "AllowWithShadowDeny": _SHADOW,
    "Deny": (),
}
"""Whoever is not allowed may not call: there is nothing more to say of those that `from` denies."""

_OF_LIST: Final = {"deny": (Verdict.DENY,), "allow": (Verdict.ALLOW,), "allowWithShadowDeny": _SHADOW}


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.top_violations(spec, meta)
    yield from TARGETS.from_violations(spec)
    if spec.to:
        yield unwanted("to", "has no meaning: who is called decides who may call", "write `rules`")
    yield from spec.needs_one_of("rules", "from")
    yield from spec.rules_without("from")
    yield from spec.no_matches("write them in `allow`, `deny` or `allowWithShadowDeny`")
    for path, _, conf in spec.confs("from"):
        if conf is None or conf.action is None:
            yield absent(f"{path}.action", "must be set", "Allow, Deny or AllowWithShadowDeny")
    for path, _, conf in spec.confs("rules"):
        yield from at(path, _rule(conf or PermissionRuleConf()))


def _rule(conf: PermissionRuleConf) -> Iterator[Violation]:
    lists = {"deny": conf.deny, "allow": conf.allow, "allowWithShadowDeny": conf.allow_with_shadow_deny}
    if not any(lists.values()):
        yield absent("", "says nothing", "give it `allow`, `deny` or `allowWithShadowDeny`")
    for name, matches in lists.items():
        for index, match in enumerate(matches or ()):
            yield from at(f"{name}[{index}]", client_match(match))


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec, "write its items as `rules` that match clients by `spiffeID`")


class MeshTrafficPermission(Policy[Conf]):
    kind = Kind(
        name="MeshTrafficPermission",
        short="mtp",
        plural="meshtrafficpermissions",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(from_=True, rules=True, side_by_side=True),
        customary=(
            (r"^(spec\.rules\[\d+\])\.default$", r"\1"),
            (r"^(spec\.rules\[\d+\])\.default\.(deny|allow|allowWithShadowDeny)", r"\1.\2"),
        ),
    )
    order = 1100
    conf = Conf
    targets = TARGETS
    judges_every_client = True

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        """Write the filters before all others: who may not call shall not use up a limit, nor be given a fault."""
        if not draft.over_tls:
            return
        CONDITIONS_OF_PERMISSIONS.check(_conditions(rules))
        tables = {verdict: PolicyTable() for verdict in Verdict}
        mesh = draft.site.mesh if isinstance(draft.site, Inbound) else ""
        for index, verdict in self.verdicts(rules):
            tables[verdict.verdict].add(rules[index].policy, verdict.client, mesh, unless=verdict.unless)
        denied, shadow_denied = tables[Verdict.DENY], tables[Verdict.SHADOW_DENY]
        # Which authority signed such a certificate is known for the first of its names alone (record 0055).
        denied.add_names_of_several(_domains(draft.site))
        permissions = [RBAC(action=RBAC.DENY, policies=denied.policies)] if denied else []
        permissions.append(RBAC(action=RBAC.ALLOW, policies=tables[Verdict.ALLOW].policies))
        shadow = RBAC(action=RBAC.DENY, policies=shadow_denied.policies) if shadow_denied else None
        if draft.manager is not None:
            draft.http_filters[:0] = http_filters(permissions, shadow)
        else:
            draft.network_filters[:0] = network_filters(permissions, shadow, draft.listener.name)

    def verdicts(self, rules: Sequence[ClientRule[Conf]]) -> Iterator[tuple[int, ClientVerdict]]:
        """Of the rules by tags the first that fits counts; what the lists of the others say holds side by side."""
        by_tags: list[ClientRule[Conf]] = []
        for index, rule in enumerate(rules):
            if rule.conf.action is None:
                yield from ((index, verdict) for verdict in _of_lists(rule.conf))
            else:
                yield from ((index, verdict) for verdict in _of_action(rule, by_tags))
                by_tags.append(rule)


def _domains(site: object) -> list[str]:
    """How names in each of the trust domains begin."""
    return [name.value for name in site.tls.names] if isinstance(site, Inbound) and site.tls is not None else []


def _of_action(rule: ClientRule[Conf], stronger: Sequence[ClientRule[Conf]]) -> Iterator[ClientVerdict]:
    """What a rule by tags says of those for whom no stronger one says something else."""
    for verdict in _OF_ACTION[rule.conf.action or ""]:
        outranking = [other.match for other in stronger if verdict not in _OF_ACTION[other.conf.action or ""]]
        if not any(_tags(other).items() <= _tags(rule.match).items() for other in outranking):
            yield ClientVerdict(verdict, rule.match, "action", tuple(outranking))


def _conditions(rules: Sequence[ClientRule[Conf]]) -> int:
    """The conditions of all rules by tags at the most: each has one for each stronger rule with another verdict."""
    conditions, without = 0, dict.fromkeys(Verdict, 0)
    for rule in rules:
        if rule.conf.action is not None:
            verdicts = _OF_ACTION[rule.conf.action]
            conditions += sum(without[verdict] for verdict in verdicts)
            for verdict in without.keys() - set(verdicts):
                without[verdict] += 1
    return conditions


def _tags(client: Mapping[str, Any]) -> Mapping[str, str]:
    return client.get("tags") or {}


def _of_lists(conf: Conf) -> Iterator[ClientVerdict]:
    lists = {"deny": conf.deny, "allow": conf.allow, "allowWithShadowDeny": conf.allow_with_shadow_deny}
    for name, matches in lists.items():
        for index, match in enumerate(matches or ()):
            client = {field: value for field, value in msgspec.to_builtins(match).items() if value}
            yield from (ClientVerdict(verdict, client, f"{name}[{index}]") for verdict in _OF_LIST[name])


POLICY = MeshTrafficPermission()
