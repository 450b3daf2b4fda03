"""MeshTrafficPermission: who may call an inbound.

Of clients by their tags (`from`):

    action                                what is done with them:
                                          Allow: RBAC.rules; AllowWithShadowDeny: RBAC.rules, shadow_rules;
                                          Deny: nothing, as nobody may call who is not allowed to

Of clients by their identity (`rules`), where `deny` goes before `allow`:

    deny                                  RBAC.matcher
    deny[].spiffeID                       the URI of the client's certificate
    deny[].spiffeID.type
    deny[].spiffeID.value
    deny[].sni                            the server name that the client asked for
    deny[].sni.type
    deny[].sni.value
    allow                                 RBAC.matcher
    allow[].spiffeID
    allow[].spiffeID.type
    allow[].spiffeID.value
    allow[].sni
    allow[].sni.type
    allow[].sni.value
    allowWithShadowDeny                   RBAC.matcher, shadow_matcher
    allowWithShadowDeny[].spiffeID
    allowWithShadowDeny[].spiffeID.type
    allowWithShadowDeny[].spiffeID.value
    allowWithShadowDeny[].sni
    allowWithShadowDeny[].sni.type
    allowWithShadowDeny[].sni.value

With mTLS on and no policy nobody may call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from cp.model.violation import Violation, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import absent, unwanted
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Schema
from cp.resources.spec import ClientMatch, PolicySpec, SpecItem, SpecRule
from cp.resources.targets import SUBSETS, AllowedTargets


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
        policy=PolicyShape(from_=True, rules=True),
        customary=(
            (r"^(spec\.rules\[\d+\])\.default$", r"\1"),
            (r"^(spec\.rules\[\d+\])\.default\.(deny|allow|allowWithShadowDeny)", r"\1.\2"),
        ),
    )
    order = 1100
    conf = Conf
    targets = TARGETS


POLICY = MeshTrafficPermission()
