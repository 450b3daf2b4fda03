"""What is answered about builtin gateways: what holds at each listener, for its routes and for its clients."""

from __future__ import annotations

from cp.insight.inspect import AffectedProxy, affected_proxies
from cp.model.names import Key
from tests.rules.edge import EDGE
from tests.rules.worlds import world_of

TO_MESH = "to: [{targetRef: {kind: Mesh}, default: %s}]"
TO_WEB = "to: [{targetRef: {kind: MeshService, name: web}, default: %s}]"
FROM_MESH = "from: [{targetRef: {kind: Mesh}, default: %s}]"


def effects(spec: str, kind: str = "MeshTimeout") -> dict[tuple[str, str], str]:
    """What a policy does on the gateway: for each scope and field, why it has no effect there."""
    return {(str(effect.scope), effect.path): effect.idle_reason for effect in of_policy(spec, kind).effects}


def of_policy(spec: str, kind: str = "MeshTimeout") -> AffectedProxy:
    world = world_of(f"{EDGE}---\ntype: {kind}\nmesh: default\nname: x\nspec: {{{spec}}}\n")
    policy = world.get(Key(kind, "default", "x"))
    assert policy is not None
    (edge,) = (proxy for proxy in affected_proxies(world, policy) if proxy.dataplane.name == "edge")
    return edge


OF_ROUTE = "on listener 80 for *.example by MeshHTTPRoute shop to MeshService web:80"
OF_TCP = "on listener 9000 by MeshTCPRoute tcp to MeshService web:80"


def in_force(spec: str, kind: str = "MeshTimeout") -> set[str]:
    return {scope for (scope, _), reason in effects(spec, kind).items() if not reason}


def test_a_value_for_the_mesh_holds_where_a_route_leads_somewhere() -> None:
    answer = effects(TO_MESH % "{http: {requestTimeout: 3s}}")

    assert {scope for (scope, _), reason in answer.items() if not reason} == {
        "on listener 80 for *.example",
        OF_ROUTE,
    }
    assert answer["on listener 9000", "http.requestTimeout"] == "has no effect: no meaning where tcp is spoken"


def test_a_value_for_a_service_holds_for_the_routes_that_lead_to_it_alone() -> None:
    assert in_force(TO_WEB % "{http: {requestTimeout: 3s}}") == {OF_ROUTE}


def test_a_value_that_is_about_clusters_holds_for_the_cluster() -> None:
    answer = effects(TO_WEB % "{connectionTimeout: 3s}")

    assert {scope for (scope, _), reason in answer.items() if not reason} == {"to MeshService web:80"}
    assert answer[OF_ROUTE, "connectionTimeout"].startswith("has no effect on a listener: it is about the services")


def test_a_policy_for_a_listener_by_its_tags_holds_there_alone() -> None:
    top = "targetRef: {kind: MeshGateway, name: edge, tags: {at: %s}}, "
    to_mesh = TO_MESH % "{http: {requestTimeout: 3s}}"

    assert in_force(top % "http" + to_mesh) == {"on listener 80 for *.example", OF_ROUTE}
    assert in_force(top % "admin" + to_mesh) == set()


def test_what_holds_for_clients_holds_at_the_ports() -> None:
    answer = effects(FROM_MESH % "{idleTimeout: 7s}")

    assert answer == {
        ("on listener 80 from all", "idleTimeout"): "",
        ("on listener 9000 from all", "idleTimeout"): "",
    }


def test_what_a_policy_says_of_clients_is_not_in_force_where_it_does_nothing_for_those_of_gateways() -> None:
    backends = "{backends: [{type: File, file: {path: /dev/stdout}}]}"

    assert set(effects(FROM_MESH % backends, "MeshAccessLog").values()) == {
        "has no effect: on a gateway this policy says nothing about clients"
    }


def test_a_built_in_value_is_no_effect_of_a_policy() -> None:
    edge = of_policy(TO_MESH % "{http: {requestTimeout: 3s}}")

    assert {effect.path for effect in edge.effects} == {"http.requestTimeout"}
    assert not edge.overridden_effects


def test_the_routes_of_a_hostname_are_in_force_unless_a_narrower_pattern_takes_every_request() -> None:
    route = (
        "targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}, "
        "to: [{targetRef: {kind: Mesh}, hostnames: [%s], rules: [{matches: [{path: {type: PathPrefix, value: /}}], "
        "default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}}]}]"
    )

    assert in_force(route % "shop.example", "MeshHTTPRoute") == {"on listener 80 for shop.example"}
    assert in_force(route % '"*.example"', "MeshHTTPRoute") == {"on listener 80 for *.example"}


def test_routes_behind_those_of_a_narrower_hostname_are_not_in_force() -> None:
    everything = EDGE.replace("value: /cart", "value: /").replace(
        "hostnames: [shop.example]", 'hostnames: ["*.example"]'
    )
    wider = (
        "type: MeshHTTPRoute\nmesh: default\nname: x\nspec:\n"
        "  targetRef: {kind: MeshGateway, name: edge}\n"
        "  to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {type: PathPrefix, value: /}}],"
        " default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}}]}]\n"
    )
    world = world_of(f"{everything}---\n{wider}")
    policy = world.get(Key("MeshHTTPRoute", "default", "x"))
    assert policy is not None
    (edge,) = affected_proxies(world, policy)

    assert {str(effect.scope) for effect in edge.effects_in_force} == {"on listener 80 for admin.example"}
    assert {effect.idle_reason for effect in edge.idle_effects} == {
        "has no effect: routes for narrower hostnames take every request"
    }


def test_clusters_that_some_listeners_have_for_themselves_are_told_apart() -> None:
    breaker = "to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxRequests: 7}}}]"
    top = "targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}, "

    assert in_force(top + breaker, "MeshCircuitBreaker") == {"to MeshService web:80 (cluster …@*_example_80)"}
    assert in_force(breaker, "MeshCircuitBreaker") == {"to MeshService web:80"}


def test_a_value_that_takes_the_place_of_another_is_in_force_even_if_it_comes_to_nothing() -> None:
    logs = "---\ntype: MeshAccessLog\nmesh: default\nname: z\nspec: {to: [{targetRef: {kind: Mesh}, default: %s}]}\n"
    to_file = logs % "{backends: [{type: File, file: {path: /dev/stdout}}]}"
    to_nobody = (
        "{backends: [{type: OpenTelemetry, openTelemetry: "
        "{backendRef: {kind: MeshOpenTelemetryBackend, name: nobody}}}]}"
    )

    def reasons(*documents: str) -> set[str]:
        world = world_of(EDGE + "".join(documents) + (logs % to_nobody).replace("name: z", "name: a"))
        policy = world.get(Key("MeshAccessLog", "default", "a"))
        assert policy is not None
        (edge,) = (proxy for proxy in affected_proxies(world, policy) if proxy.dataplane.name == "edge")
        return {effect.idle_reason for effect in edge.effects if str(effect.scope) == OF_ROUTE}

    assert reasons(to_file) == {""}
    assert reasons() == {"has no effect on a listener of a gateway"}
