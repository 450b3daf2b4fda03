"""Reasons that lint gives are true of the mesh in which it gives them."""

from __future__ import annotations

import pytest

from cp.insight.lint import lint
from cp.model.violation import Finding
from tests.rules.worlds import world_of
from tests.snapshots import policies

MESH = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound:
    - {port: 10080, tags: {kuma.io/service: backend}}
    - {port: 10081, tags: {kuma.io/service: other}}
---
type: Dataplane
mesh: default
name: backend-1
networking:
  address: 10.0.0.2
  inbound:
    - {port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http}}
    - {port: 8081, tags: {kuma.io/service: other, kuma.io/protocol: http}}
  outbound: []
"""
SERVICES = """
---
type: MeshService
mesh: default
name: backend
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, name: http, targetPort: 8080, appProtocol: http}]
---
type: MeshService
mesh: default
name: redis
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, name: tcp, targetPort: 8080, appProtocol: tcp}]
"""
REAL = """
---
type: Dataplane
mesh: default
name: caller
networking:
  address: 10.0.0.3
  inbound: [{port: 8080, tags: {kuma.io/service: caller, kuma.io/protocol: http}}]
  outbound:
    - {port: 10080, backendRef: {kind: MeshService, name: backend, port: 80}}
    - {port: 10081, backendRef: {kind: MeshService, name: redis, port: 80}}
"""
ROUTE = """
---
type: MeshHTTPRoute
mesh: default
name: r
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules: [{matches: [{path: {type: PathPrefix, value: /a}}], default: {}}]
"""


def timeout(name: str, *items: str, meta: str = "") -> str:
    listed = "".join(f"    - {{targetRef: {target}, default: {default}}}\n" for target, default in map(_split, items))
    return f"\n---\ntype: MeshTimeout\nmesh: default\nname: {name}\n{meta}spec:\n  to:\n{listed}"


def _split(item: str) -> tuple[str, str]:
    target, _, default = item.partition(" => ")
    return target, default


def of(text: str, kind: str, name: str, mesh: str = MESH) -> list[Finding]:
    findings = lint(policies(), world_of(mesh + text))
    return [
        finding
        for finding in findings
        if finding.resource is not None and (finding.resource.type, finding.resource.name) == (kind, name)
    ]


def test_items_beside_one_for_a_route_are_for_real_services_alone() -> None:
    items = (
        "{kind: MeshService, name: backend} => {connectionTimeout: 2s}",
        "{kind: Mesh} => {connectionTimeout: 3s}",
        "{kind: MeshHTTPRoute, name: r} => {http: {requestTimeout: 2s}}",
    )
    findings = of(ROUTE + timeout("t", *items), "MeshTimeout", "t")
    messages = [finding.message for finding in findings]

    assert len(findings) == 2
    assert all("its others are for real services alone" in message for message in messages)
    assert {finding.hint for finding in findings} == {"write what is for the MeshHTTPRoute in a policy of its own"}


def test_a_service_of_another_namespace_is_not_the_one_that_is_called() -> None:
    labels = "labels: {k8s.kuma.io/namespace: kuma-system}\n"
    item = "{kind: MeshService, name: backend} => {connectionTimeout: 2s}"
    by_name = MESH.replace("    - {port: 10080, tags: {kuma.io/service: backend}}\n", "")
    (finding,) = of(SERVICES + REAL + timeout("t", item, meta=labels), "MeshTimeout", "t", by_name)

    assert "in the namespace kuma-system" in finding.message
    assert "without a namespace" in finding.message


def test_a_name_that_stands_in_another_namespace_alone_is_not_asked_back() -> None:
    service = SERVICES.replace(
        "name: backend\n", "name: b\nlabels: {kuma.io/display-name: shop, k8s.kuma.io/namespace: a}\n", 1
    )
    (finding,) = of(
        service + timeout("t", "{kind: MeshService, name: shop} => {connectionTimeout: 2s}"), "MeshTimeout", "t"
    )

    assert "there is no MeshService shop" in finding.message
    assert finding.hint == "what has this name is in another namespace or zone; choose it by `labels`"


def test_who_overrides_what_is_told_apart() -> None:
    general = timeout("general", "{kind: Mesh} => {connectionTimeout: 2s, idleTimeout: 9s}")
    first = timeout("for-backend", "{kind: MeshService, name: backend} => {connectionTimeout: 7s, idleTimeout: 7s}")
    other = timeout("for-other", "{kind: MeshService, name: other} => {connectionTimeout: 8s, idleTimeout: 9s}")
    (finding,) = of(general + first + other, "MeshTimeout", "general")

    assert "`connectionTimeout`, `idleTimeout` are overridden by MeshTimeout for-backend" in finding.message
    assert "`connectionTimeout` is overridden by MeshTimeout for-other" in finding.message
    assert "what else it says would hold without it" in finding.message
    assert "wherever it holds" not in finding.message


@pytest.mark.parametrize(("rivals", "is_counted"), [(3, False), (4, True)])
def test_overridden_counts_rivals_beyond_three(rivals: int, is_counted: bool) -> None:
    outbounds = [f"    - {{port: {10080 + n}, tags: {{kuma.io/service: s{n}}}}}\n" for n in range(rivals)]
    mesh = MESH.partition("  outbound:\n")[0] + "  outbound:\n" + "".join(outbounds)
    items = (f"{{kind: MeshService, name: s{n}}} => {{connectionTimeout: {n + 1}s}}" for n in range(rivals))
    text = "".join(timeout(f"for-s{n}", item) for n, item in enumerate(items))
    general = timeout("general", "{kind: Mesh} => {connectionTimeout: 9s}")
    (finding,) = of(general + text, "MeshTimeout", "general", mesh)

    assert "overridden by MeshTimeout for-s2" in finding.message
    assert ("and by" in finding.message, "and by 1 more" in finding.message) == (is_counted, is_counted)


@pytest.mark.parametrize(("routes", "is_hidden"), [(["a"], False), (["a", "all"], True)])
def test_service_value_is_hidden_only_by_all_routes(routes: list[str], is_hidden: bool) -> None:
    everything = ROUTE.replace("name: r\n", "name: all\n").replace("value: /a", "value: /")
    of_routes = (
        timeout(f"of-{name}", f"{{kind: MeshHTTPRoute, name: {name}}} => {{http: {{requestTimeout: 9s}}}}")
        for name in routes
    )
    text = SERVICES + REAL + ROUTE.replace("name: r\n", "name: a\n") + everything + "".join(of_routes)
    item = "{kind: MeshService, name: backend} => {http: {requestTimeout: 2s}}"
    findings = of(text + timeout("of-service", item), "MeshTimeout", "of-service")

    assert ("hidden-by-route" in {finding.code for finding in findings}) is is_hidden


@pytest.mark.parametrize(
    ("kind", "service", "expected"),
    [
        ("MeshTCPRoute", "redis", "every connection is closed"),
        ("MeshHTTPRoute", "backend", "every request is answered with 500"),
    ],
)
def test_weights_of_nothing_are_told_as_what_they_come_to(kind: str, service: str, expected: str) -> None:
    matches = "matches: [{path: {type: PathPrefix, value: /}}], " if kind == "MeshHTTPRoute" else ""
    route = f"""
---
type: {kind}
mesh: default
name: r
spec:
  to:
    - targetRef: {{kind: MeshService, name: {service}}}
      rules: [{{{matches}default: {{backendRefs: [{{kind: MeshService, name: {service}, port: 80, weight: 0}}]}}}}]
"""
    messages = [finding.message for finding in of(SERVICES + REAL + route, kind, "r") if finding.code == "zero-weights"]

    assert messages == [f"all weights are 0: {expected}"]


def test_a_mirror_that_is_missing_takes_no_share() -> None:
    route = """
---
type: MeshHTTPRoute
mesh: default
name: r
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default:
            filters:
              - type: RequestMirror
                requestMirror: {percentage: 10, backendRef: {kind: MeshService, name: nobody, port: 80}}
"""
    findings = [
        finding for finding in of(SERVICES + REAL + route, "MeshHTTPRoute", "r") if finding.code == "refers-to-nothing"
    ]

    assert [finding.message for finding in findings] == ["there is no MeshService nobody: no copies are sent"]


def test_of_an_item_without_effect_its_values_are_not_told_again() -> None:
    """The section without a meaning is no second thing to correct."""
    weak = timeout("weak", "{kind: MeshService, name: redis} => {http: {requestTimeout: 2s}}")
    strong = timeout("a-strong", "{kind: MeshService, name: redis} => {http: {requestTimeout: 3s}}")
    findings = of(SERVICES + REAL + weak + strong, "MeshTimeout", "weak")

    assert [finding.code for finding in findings] == ["overridden"]


BOTH_ROUTES = """
---
type: MeshHTTPRoute
mesh: default
name: weak
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: backend, port: 80}]}
---
type: MeshHTTPRoute
mesh: default
name: strong
spec:
  targetRef: {kind: Dataplane, name: caller}
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default:
            filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}]
---
type: MeshRetry
mesh: default
name: of-weak
spec:
  targetRef: {kind: Dataplane, name: caller}
  to:
    - targetRef: {kind: MeshHTTPRoute, name: weak}
      default: {http: {numRetries: 7}}
"""


def test_a_policy_for_a_route_that_only_contributes_to_a_rule_has_an_effect() -> None:
    """Of the weaker route the backends are left."""
    world = world_of(MESH + SERVICES + REAL + BOTH_ROUTES)

    assert not [
        str(finding) for finding in lint(policies(), world) if finding.resource and finding.resource.name == "of-weak"
    ]


def test_a_null_overrides_nothing_and_takes_away() -> None:
    weak = timeout("b-weak", "{kind: Mesh} => {http: {requestTimeout: 2s}}")
    null = timeout("a-null", "{kind: Mesh} => {http: {requestTimeout: null}, connectionTimeout: 2s}")
    (finding,) = of(weak + null, "MeshTimeout", "b-weak")

    assert "`http.requestTimeout` is overridden by a null of MeshTimeout a-null" in finding.message


def test_of_a_namespace_without_the_service_it_is_told_that_the_item_is_for_the_tag() -> None:
    (finding,) = of(
        timeout("t", "{kind: MeshService, name: backend, namespace: nosuch} => {connectionTimeout: 2s}"),
        "MeshTimeout",
        "t",
    )

    assert (finding.code, finding.path) == ("target-missing", "spec.to[0].targetRef.namespace")
    assert finding.message == (
        "there is no MeshService backend in the namespace nosuch: the item is for what is called by `kuma.io/service`"
    )


CANARY = """
---
type: MeshHTTPRoute
mesh: default
name: all-elsewhere
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: redis, port: 80}]}
---
type: MeshRetry
mesh: default
name: of-connections
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      default: {tcp: {maxConnectAttempt: 3}}
"""


def test_what_has_no_meaning_is_not_said_to_be_routed_elsewhere() -> None:
    only_caller = MESH[: MESH.index("---\ntype: Dataplane")]
    (finding,) = of(SERVICES + REAL + CANARY, "MeshRetry", "of-connections", only_caller)

    assert finding.code == "no-meaning"
    assert finding.message == "has no effect: `tcp` has no meaning where http is spoken, as with MeshService backend"
