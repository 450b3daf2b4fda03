"""What is answered about a proxy, and about a policy."""

from __future__ import annotations

from typing import Any

import pytest

from cp.cli import rule_tables
from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.insight.inspect import AffectedProxy, affected_proxies, inspect_policies, inspect_rules
from cp.model.names import Key
from cp.model.secret_names import identity_trust_key
from cp.resources.world import World
from cp.translate.proxy_class import ClassBuilder, ProxyClass
from tests.golden import Case, cases
from tests.growth import MOST, growth
from tests.rules.texts import (
    MESH,
    WHOLE_MESH,
    Data,
    gateway,
    hr,
    mesh_gateway,
    ms,
    policy,
    proxy,
    route,
    service,
    subset,
    text,
    timeout,
)
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import Question

CALLS: dict[str, Any] = {
    "outbound": [{"port": 10001, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}]
}
WEB = proxy(**CALLS)


def of_proxy(*some: Data, name: str = "web") -> dict[str, Any]:
    world = world_of(text(MESH, *some))
    return {found["type"]: found for found in inspect_rules(world, dataplane(world, name))["rules"]}


def of_policy(name: str, *some: Data) -> dict[str, AffectedProxy]:
    world = world_of(text(MESH, service("backend"), *some))
    found = world.get(Key("MeshTimeout", "default", name))
    assert found is not None
    return {one.dataplane.name: one for one in affected_proxies(world, found)}


def test_a_rule_names_the_stored_resource_and_the_items() -> None:
    (rule,) = of_proxy(WEB, service("backend"), timeout("t", ms("backend"), 1))["MeshTimeout"]["toResourceRules"]

    assert rule["resourceMeta"] == {"type": "MeshService", "mesh": "default", "name": "backend"}
    assert rule["origin"] == [{"resourceMeta": {"type": "MeshTimeout", "mesh": "default", "name": "t"}, "ruleIndex": 0}]


def test_kinds_that_do_not_select_the_proxy_are_not_there() -> None:
    assert of_proxy(WEB, timeout("t", WHOLE_MESH, 1, top=subset(team="b"))) == {}


def test_hashes_of_matches_are_explained() -> None:
    world = world_of(
        text(MESH, WEB, route("r"), timeout("t", WHOLE_MESH, {"http": {"requestTimeout": "1s"}}, top=hr("r")))
    )
    (found,) = inspect_rules(world, dataplane(world))["httpMatches"]

    assert found["match"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]


def test_each_listener_of_a_gateway_has_its_rules() -> None:
    listeners = [{"port": 80, "protocol": "HTTP", "tags": {"x": "1"}}, {"port": 81, "protocol": "HTTP"}]
    top = {"kind": "MeshGateway", "name": "edge", "tags": {"x": "1"}}
    answer = of_proxy(gateway(), mesh_gateway("edge", *listeners), timeout("t", WHOLE_MESH, 1, top=top), name="edge")

    assert [one["inbound"] for one in answer["MeshTimeout"]["gatewayToRules"]] == [{"port": 80}]


def test_policies_come_from_the_general_to_the_specific() -> None:
    world = world_of(
        text(
            MESH,
            WEB,
            timeout("a", WHOLE_MESH, 1),
            timeout("b", WHOLE_MESH, 1, top=subset(**{"kuma.io/service": "web"})),
        )
    )

    assert [one["name"] for one in inspect_policies(world, dataplane(world))["policies"]] == ["a", "b"]


def test_a_policy_tells_whom_it_selects() -> None:
    some = timeout("t", ms("backend"), 1, top=subset(**{"kuma.io/service": "web"}))

    assert list(of_policy("t", WEB, proxy("other"), some)) == ["web"]


def test_what_survives_of_it_is_told_place_by_place() -> None:
    found = of_policy("t", WEB, timeout("t", ms("backend"), {"http": {"requestTimeout": "1s"}}))["web"]

    assert [(str(one.scope), one.path, one.setting.value) for one in found.effects_in_force] == [
        ("to MeshService backend:http", "http.requestTimeout", "1s")
    ]
    assert found.overridden_effects == ()


def test_what_is_lost_of_it_is_told_with_who_took_it() -> None:
    conf = {"http": {"requestTimeout": "1s", "streamIdleTimeout": "5s"}}
    some = [timeout("z", ms("backend"), conf), timeout("a", ms("backend"), {"http": {"requestTimeout": "2s"}})]
    found = of_policy("z", WEB, *some)["web"]

    assert [one.path for one in found.effects_in_force] == ["http.streamIdleTimeout"]
    assert [
        (one.path, one.overridden_by and one.overridden_by.origin.policy.name) for one in found.overridden_effects
    ] == [("http.requestTimeout", "a")]


def of_nulls(name: str) -> AffectedProxy:
    """The levels of a service's timeout, with nulls of a stronger policy."""
    null, section = {"http": {"requestTimeout": None}}, ms("backend", sectionName="http")
    some = [
        route("r"),
        timeout("of-service", ms("backend"), {"http": {"requestTimeout": "1s"}}),
        timeout("of-section", section, {"http": {"requestTimeout": "2s"}}),
        timeout("of-route", hr("r"), {"http": {"requestTimeout": "3s"}}),
        timeout("null-of-section", section, null, top={"kind": "Dataplane", "name": "web"}),
        timeout("null-of-route", hr("r"), null, top={"kind": "Dataplane", "name": "web"}),
        timeout("null-for-nothing", ms("backend"), {"http": {"streamIdleTimeout": None}}),
        timeout("null-overridden", section, null, top={"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}),
        timeout("over-the-null", section, {"http": {"requestTimeout": "9s"}}, top=ms("web")),
    ]
    chosen = [*some[:4], *some[-2:]] if name == "null-overridden" else some[:-2]
    return of_policy(name, WEB, *chosen)["web"]


TO_BACKEND, BY_R = "to MeshService backend:http", "to MeshService backend:http by MeshHTTPRoute r"


def test_a_null_is_told_with_what_it_removes_and_what_holds_then() -> None:
    survives = [effect for effect in of_nulls("null-of-section").effects_in_force if str(effect.scope) == TO_BACKEND]

    ((effect),) = survives
    assert effect.setting.value is None
    assert [one.origin.policy.name for one in effect.removed_settings or ()] == ["of-section"]
    assert effect.replacement is not None
    assert effect.replacement.origin.policy.name == "of-service"


def test_a_null_of_a_route_is_told_on_that_route() -> None:
    (effect,) = of_nulls("null-of-route").effects_in_force

    assert str(effect.scope) == BY_R
    assert [one.origin.policy.name for one in effect.removed_settings or ()] == ["of-route"]
    assert effect.replacement is not None
    assert effect.replacement.origin.policy.name == "of-service"


def test_what_a_null_takes_away_is_told_with_the_null() -> None:
    (lost,) = of_nulls("of-route").overridden_effects

    assert lost.overridden_by is not None
    assert (lost.overridden_by.origin.policy.name, lost.overridden_by.value) == ("null-of-route", None)


def test_a_null_that_has_nothing_to_take_away_is_no_effect() -> None:
    found = of_nulls("null-for-nothing")

    assert (found.effects_in_force, found.overridden_effects) == ((), ())
    assert {effect.path for effect in found.idle_effects} == {"http.streamIdleTimeout"}
    assert {entry["field"] for entry in found.data["withoutEffect"]} == {"http.streamIdleTimeout"}


def test_a_null_under_a_stronger_value_is_overridden() -> None:
    (lost,) = [effect for effect in of_nulls("null-overridden").overridden_effects if str(effect.scope) == TO_BACKEND]

    assert lost.overridden_by is not None
    assert lost.overridden_by.origin.policy.name == "over-the-null"


def test_a_service_s_value_that_a_route_hides_is_lost_on_the_route_alone() -> None:
    some = [
        route("r"),
        timeout("s", ms("backend"), {"http": {"requestTimeout": "1s"}}),
        timeout("t", hr("r"), {"http": {"requestTimeout": "2s"}}),
    ]
    found = of_policy("s", WEB, *some)["web"]

    assert [str(one.scope) for one in found.effects_in_force] == ["to MeshService backend:http"]
    assert [str(one.scope) for one in found.overridden_effects] == ["to MeshService backend:http by MeshHTTPRoute r"]


def test_a_policy_for_a_route_that_is_nowhere_has_no_effect() -> None:
    """Route and timeout select different proxies (docs/concepts/routes.md#policies-on-a-route)."""
    some = [route("r", top=subset(team="b")), timeout("t", hr("r"), {"http": {"requestTimeout": "2s"}})]

    assert of_policy("t", WEB, *some)["web"].effects == ()


def test_the_answer_is_plain_data_with_file_and_line() -> None:
    yaml = """type: MeshTimeout
mesh: default
name: t
spec:
  to:
  - targetRef: {kind: Mesh}
    default:
      idleTimeout: 1s
"""
    world = world_of(text(yaml, MESH, service("backend"), WEB), "t.yaml")
    (found,) = affected_proxies(world, next(iter(world.table("MeshTimeout", "default"))))

    assert found.data["survives"] == [
        {"where": "to MeshService backend:http", "field": "idleTimeout", "value": "1s", "file": "t.yaml", "line": 8}
    ]


def test_permissions_are_told_by_their_clients() -> None:
    items = [{"targetRef": {"kind": "MeshSubset", "tags": {"env": "dev"}}, "default": {"action": "Allow"}}]
    world = world_of(text(MESH, WEB, policy("MeshTrafficPermission", "p", from_=items)))
    (found,) = affected_proxies(world, next(iter(world.table("MeshTrafficPermission", "default"))))

    assert [str(one.scope) for one in found.effects] == ["on inbound 80 from env=dev"]


IDENTITY: dict[str, Any] = {
    "type": "MeshIdentity",
    "mesh": "default",
    "name": "workloads",
    "spec": {
        "selector": {"dataplane": {}},
        "spiffeID": {"path": "/of-all"},
        "provider": {"type": "Bundled", "bundled": {"autogenerate": {"enabled": True}}},
    },
}


def permissions_by_tags(*, signs: bool, with_mtls: bool) -> AffectedProxy:
    """What is in force of a Deny by tags where a MeshIdentity selects everybody."""
    mtls = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
    of_mesh = {**MESH, **({"mtls": mtls} if with_mtls else {})}
    denied = {"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}, "default": {"action": "Deny"}}
    everybody = {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}
    world = world_of(text(of_mesh, WEB, IDENTITY, policy("MeshTrafficPermission", "p", from_=[everybody, denied])))
    if signs:
        pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
        root = TrustedRoot(fingerprint="f", certificate=pem, backend="workloads", since=0.0, lifetime=1.0)
        record = TrustRecord(roots=(root,), signer="f", domain="default.default.mesh.local")
        document = record_document(identity_trust_key("default", "workloads"), record)
        world = world.next({document.key: document}, world.revision)
    (found,) = affected_proxies(world, next(iter(world.table("MeshTrafficPermission", "default"))))
    return found


@pytest.mark.parametrize("with_mtls", [True, False])
def test_what_is_for_tags_that_no_certificate_has_is_not_in_force(*, with_mtls: bool) -> None:
    found = permissions_by_tags(signs=True, with_mtls=with_mtls)

    assert [one.setting.value for one in found.effects_in_force] == ["Allow"]
    assert ["certificates without tags" in one.idle_reason for one in found.idle_effects] == [True]


def test_what_is_for_tags_is_in_force_until_the_identity_signs() -> None:
    found = permissions_by_tags(signs=False, with_mtls=True)

    assert [one.setting.value for one in found.effects_in_force] == ["Deny", "Allow"]


def long_route(rules: int, *, elsewhere: bool) -> Data:
    made = route("r", "backend", *(f"/{number}" for number in range(rules)))
    target = {"kind": "MeshService", "name": "other" if elsewhere else "backend", "port": 80}
    for rule in made["spec"]["to"][0]["rules"]:
        rule["default"] = {"backendRefs": [target]}
    return made


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize(("kind", "size"), [("MeshHTTPRoute", 15), ("MeshTimeout", 60)])
def test_the_answer_costs_no_more_than_in_proportion_to_the_rules_of_a_route(
    kind: str, size: int, *, elsewhere: bool
) -> None:
    def world(rules: int) -> World:
        made = timeout("r", hr("r"), {"http": {"requestTimeout": "1s", "streamIdleTimeout": "1s"}})
        services = (service("backend"), service("other"))
        return world_of(text(MESH, WEB, *services, long_route(rules, elsewhere=elsewhere), made))

    def asked(world: World) -> None:
        found = world.get(Key(kind, "default", "r"))
        assert found is not None
        assert list(affected_proxies(world, found))

    assert growth(world, asked, size) < MOST


def test_a_route_says_for_a_service_what_its_rules_are_and_not_again_at_each_of_them() -> None:
    world = world_of(text(MESH, WEB, service("backend"), route("r", "backend", "/a", "/b")))
    (found,) = affected_proxies(world, next(iter(world.table("MeshHTTPRoute", "default"))))

    assert {str(one.scope) for one in found.effects} == {"to MeshService backend:http"}


def test_what_a_policy_comes_to_is_worked_out_once_for_proxies_that_are_alike() -> None:
    inbounds = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    alike = [proxy(f"web-{number}", inbounds=inbounds, **CALLS) for number in range(20)]
    found = of_policy("slow", timeout("slow", ms("backend"), 1), *alike, proxy("other", inbounds=inbounds))
    effects = {id(found[f"web-{number}"].effects) for number in range(20)}

    assert len(effects) == 1
    assert found["web-0"].effects != found["other"].effects


def test_what_proxies_that_are_alike_are_served_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked for what only it has: it could be that nothing can be told of it."""
    made: list[ProxyClass] = []
    build = ClassBuilder.build

    def counting(builder: ClassBuilder, *of_class: Any) -> ProxyClass:
        made.append(build(builder, *of_class))
        return made[-1]

    monkeypatch.setattr(ClassBuilder, "build", counting)
    inbounds = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    alike = [proxy(f"web-{number}", inbounds=inbounds, **CALLS) for number in range(20)]
    of_policy("slow", timeout("slow", ms("backend"), 1), *alike)

    assert len(made) == 1


def test_what_is_not_enforced_for_one_proxy_is_not_said_of_another_with_the_same_ports() -> None:
    """One is called at its inbounds; the other is a zone proxy, which is no such thing yet."""
    inbounds = [{"port": 80, "name": "in", "tags": {"kuma.io/service": "web"}}]
    listener = {"type": "ZoneIngress", "address": "10.0.0.9", "port": 80, "name": "in"}
    slow = policy("MeshTimeout", "slow", rules=[{"default": {"connectionTimeout": "1s"}}])
    zone = proxy("zone", inbounds=[], listeners=[listener])
    found = of_policy("slow", slow, proxy("web", inbounds=inbounds), zone)

    assert not found["web"].idle_effects
    assert not found["zone"].effects_in_force


def test_a_target_by_labels_is_no_rule_for_a_service_without_a_name() -> None:
    by_labels = [
        {"targetRef": {"kind": "MeshService", "labels": {"team": "a"}}, "default": {"connectionTimeout": "1s"}},
        {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "2s"}},
    ]
    world = world_of(text(MESH, WEB, policy("MeshTimeout", "t", to=by_labels)))
    shown = rule_tables.rules(inspect_rules(world, dataplane(world)), wide=False)

    assert "to all" in shown
    assert "kuma.io/service=" not in shown


PERMISSIONS = """
type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound:
    - {port: 80, tags: {kuma.io/service: web}}
    - {port: 81, tags: {kuma.io/service: admin}}
---
type: MeshTLS
mesh: default
name: strict-for-admin
spec:
  targetRef: {kind: Dataplane, name: web, sectionName: "81"}
  rules: [{default: {mode: Strict}}]
---
type: MeshTrafficPermission
mesh: default
name: a
spec:
  rules:
    - default: {deny: [{spiffeID: {type: Exact, value: spiffe://default/old}}]}
    - default: {allow: [{spiffeID: {type: Prefix, value: spiffe://default/}}]}
---
type: MeshTrafficPermission
mesh: default
name: b
spec:
  from:
    - targetRef: {kind: MeshSubset, tags: {team: red}}
      default: {action: Allow}
"""


def test_permissions_are_shown_one_by_one_with_their_lines() -> None:
    world = world_of(PERMISSIONS, "mesh.yaml")
    (web,) = world.table("Dataplane", "default")
    (of_kind,) = [one for one in inspect_rules(world, web)["rules"] if one["type"] == "MeshTrafficPermission"]

    (by_identity, _), (by_tags, _) = of_kind["inboundRules"], of_kind["fromRules"]
    origins = [(*rule["conf"], *rule["origin"]) for rule in by_identity["rules"]]
    assert [(list(conf), origin["ruleIndex"], origin["line"]) for conf, origin in origins] == [
        (["deny"], 0, line_of("    - default: {deny")),
        (["allow"], 1, line_of("    - default: {allow")),
    ]
    ((origin,),) = [rule["origin"] for rule in by_tags["rules"]]
    assert (origin["name"], origin["line"]) == ("b", line_of("    - targetRef: {kind: MeshSubset"))


def test_of_an_inbound_that_takes_plain_text_too_it_is_told_that_nobody_is_judged_there() -> None:
    world = world_of(PERMISSIONS)
    (web,) = world.table("Dataplane", "default")
    warnings = {one["type"]: one["warnings"] for one in inspect_rules(world, web)["rules"]}

    assert warnings == {
        "MeshTLS": [],
        "MeshTrafficPermission": [
            "Dataplane default/web: whoever speaks plain text is asked for no permission at port 80"
        ],
    }


def line_of(text: str) -> int:
    return PERMISSIONS[: PERMISSIONS.index(text)].count("\n") + 1


@pytest.mark.parametrize("case", [*cases("policies"), *cases("legacy"), *cases("proxies")])
def test_inspection_answers_for_every_case(case: Case) -> None:
    question = Question.of(case)
    world = question.world()
    proxy_of_case = world.get(Key("Dataplane", question.mesh, question.proxy))
    assert proxy_of_case is not None

    rules, matched = inspect_rules(world, proxy_of_case), inspect_policies(world, proxy_of_case)

    assert "legacyFailure" not in {**rules, **matched}
    for rule in rules.get("legacyRules", ()):
        assert all(isinstance(path, str) and path for path in rule["conf"])
