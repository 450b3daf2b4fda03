"""What is understood and not enforced: it is told of each, and really nothing that is served differs without it."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from cp.insight.inspect import affected_proxies, inspect_policies, inspect_rules
from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Destination, Key
from cp.policies import kinds
from cp.resources.capabilities import (
    CLIENTS,
    MISSING,
    ONLY_WITH_MTLS,
    WITHOUT_EFFECT,
    WORDS,
    MissingCapability,
    missing_parts,
    parts_with_mtls,
)
from cp.resources.capabilities import NAMES as ADDRESSES
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from cp.translate.view.services import endpoints_of
from tests.snapshots import policies

Data = dict[str, Any]
Place = tuple[str, str]

SPIFFE: Final = {"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}}
CA: Final = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
INBOUND: Final = {"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}
OUTBOUND: Final = {"port": 10080, "tags": {"kuma.io/service": "web"}}
NETWORKING: Final = {"address": "10.0.0.1", "inbound": [INBOUND], "outbound": [OUTBOUND]}
METRICS: Final = {"enabledBackend": "x", "backends": [{"name": "x", "type": "prometheus"}]}
SAME_FOR_ALL: Final = (
    *("connectionTimeout", "idleTimeout"),
    *("http.requestHeadersTimeout", "http.maxStreamDuration", "http.maxConnectionDuration"),
)
LIMIT: Final = {"local": {"http": {"requestRate": {"num": 1, "interval": "1s"}}}}
FAULT: Final = {"http": [{"abort": {"httpStatus": 500, "percentage": 10}}]}
NO_TEXT: Final = "//8="
RAW_ROUTES: Final = '{"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "x"}'
NOT_LOGGED: Final[Data] = {"backends": []}
LOGGED: Final = {"backends": [{"type": "File", "file": {"path": "/dev/stdout"}}]}


def networking(**changes: Any) -> Data:
    return {"networking": {**NETWORKING, **changes}}


def gateway(**listener: Any) -> Data:
    """A MeshGateway with a listener of which something is asked, and another."""
    listeners = [{"port": 81, "protocol": "HTTP", **listener}, {"port": 80, "protocol": "HTTP"}]
    return {"selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": {"listeners": listeners}}


def rules(default: Data, for_one: Data | None = None) -> Data:
    return of_sidecars({"default": default}, {"matches": [SPIFFE], "default": for_one or default})


def for_a_server_name(timeout: str) -> Data:
    """A timeout that cannot differ between clients, beside one that can."""
    section, _, name = timeout.rpartition(".")
    default: Data = {"http": {"requestTimeout": "9s"}}
    (default[section] if section else default)[name] = "9s"
    match = {"sni": {"type": "Exact", "value": "web.example"}}
    return of_sidecars({"default": {"http": {"requestTimeout": "8s"}}}, {"matches": [match], "default": default})


def of_sidecars(*items: Data) -> Data:
    return {"spec": {"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "rules": list(items)}}


def checked(**tcp: Any) -> Data:
    times = {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}
    everybody = [{"match": {"kuma.io/service": "*"}}]
    return {"sources": everybody, "destinations": everybody, "conf": {**times, "tcp": tcp}}


def metrics_over(mode: str) -> Data:
    return {"spec": {"default": {"backends": [{"type": "Prometheus", "prometheus": {"tls": {"mode": mode}}}]}}}


ASKING_FOR_MTLS: Final[dict[Place, Data]] = {
    ("MeshTrafficPermission", ""): {"spec": {"rules": [{"default": {"deny": [SPIFFE]}}]}},
    ("MeshTLS", ""): {"spec": {"rules": [{"default": {"mode": "Permissive"}}]}},
    ("MeshFaultInjection", "spec.rules[].matches"): rules(FAULT),
    ("MeshRateLimit", "spec.rules[].matches"): rules(LIMIT),
    ("MeshTimeout", "spec.rules[].matches"): rules(*({"http": {"requestTimeout": limit}} for limit in ("8s", "9s"))),
    ("MeshAccessLog", "spec.rules[].matches"): rules(LOGGED, NOT_LOGGED),
}
ASKING: Final[dict[Place, Data]] = {
    ("Mesh", "routing.zoneEgress"): {"routing": {"zoneEgress": True}, "mtls": CA},
    ("Mesh", "routing.defaultForbidMeshExternalServiceAccess"): {
        "routing": {"defaultForbidMeshExternalServiceAccess": True}
    },
    ("Mesh", "routing.localityAwareLoadBalancing"): {"routing": {"localityAwareLoadBalancing": False}},
    ("Mesh", "metrics"): {"metrics": METRICS},
    ("Mesh", "constraints.dataplaneProxy"): {
        "constraints": {"dataplaneProxy": {"requirements": [{"tags": {"team": "a"}}]}}
    },
    ("MeshIdentity", "spec.provider.type"): {
        "spec": {"selector": {"dataplane": {}}, "provider": {"type": "Spire", "spire": {}}}
    },
    ("MeshGateway", "conf.listeners[].crossMesh"): gateway(crossMesh=True, hostname="shop.mesh"),
    **{("MeshTimeout", f"spec.rules[].default.{timeout}"): for_a_server_name(timeout) for timeout in SAME_FOR_ALL},
    ("MeshRateLimit", "spec.rules[].default.local.tcp"): of_sidecars(
        {
            "matches": [{"sni": {"type": "Exact", "value": "web.example"}}],
            "default": {"local": {**LIMIT["local"], "tcp": {"connectionRate": {"num": 1, "interval": "1s"}}}},
        }
    ),
    ("Dataplane", "networking.listeners"): networking(
        listeners=[{"type": "ZoneIngress", "address": "10.0.0.1", "port": 10001, "name": "zi"}]
    ),
    ("Dataplane", "networking.address"): {"networking": {"address": "web.example", "inbound": [INBOUND]}},
    ("Dataplane", "networking.inbound[].serviceProbe"): networking(inbound=[{**INBOUND, "serviceProbe": {"tcp": {}}}]),
    ("Dataplane", "networking.transparentProxying.directAccessServices"): {
        "networking": {
            "address": "10.0.0.1",
            "inbound": [INBOUND],
            "transparentProxying": {"redirectPortOutbound": 15001, "directAccessServices": ["*"]},
        }
    },
    ("Dataplane", "probes"): {**networking(), "probes": {"port": 9000, "endpoints": []}},
    ("Dataplane", "metrics"): {**networking(), "metrics": {"type": "prometheus", "conf": {"port": 5670}}},
    ("HealthCheck", "conf.tcp.send"): checked(send=NO_TEXT),
    ("HealthCheck", "conf.tcp.receive[]"): checked(receive=["Zm9v", NO_TEXT]),
    ("ProxyTemplate", "conf"): {"conf": {"imports": ["ingress-proxy"], "modifications": []}},
    ("ProxyTemplate", "conf.resources[].resource"): {
        "conf": {"imports": ["default-proxy"], "resources": [{"name": "x", "version": "v1", "resource": RAW_ROUTES}]}
    },
    ("MeshMetric", "spec.default.backends[].prometheus.tls.mode"): metrics_over("ProvidedTLS"),
    ("MeshOpenTelemetryBackend", "spec.env"): {"spec": {"env": {"mode": "Required"}}},
}
"""For each thing that is not enforced, the fields of a document that asks for it."""

NAMES: Final = {"Mesh": "default", "Dataplane": "web", "MeshGateway": "edge"}


def document(kind: str, name: str, data: Data) -> Document:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    return Document(Key(kind, mesh.get("mesh", ""), name), {"type": kind, **mesh, "name": name, **data})


WITH_MTLS: Final = document("Mesh", "default", {"mtls": CA})


def asking(place: Place) -> Document:
    return document(place[0], NAMES.get(place[0], "x"), ASKING[place])


def world(*documents: Document) -> World:
    known = {one.key: one for one in (document("Mesh", "default", {}), document("Dataplane", "web", networking()))}
    made = World.of({**known, **{one.key: one for one in documents}}.values(), kinds(policies()))
    assert not [str(one) for one in made.findings if one.severity == "error"]
    return made


def told(made: World, key: Key) -> list[str]:
    return [one.path for one in lint(policies(), made) if one.resource == key and one.message.startswith(WORDS)]


EDGE: Final = document(
    "Dataplane",
    "edge",
    {"networking": {"address": "10.0.0.9", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}}},
)


def rows() -> list[tuple[Place, MissingCapability]]:
    return [((kind, row.field), row) for row in MISSING for kind in row.kinds if (kind, row.field) in ASKING]


def served(made: World) -> dict[str, Snapshot]:
    compiler = Compiler(policies())
    return {one.name: compiler.snapshot(made, one) for one in made.table("Dataplane", "default")}


def without(found: Document, part: str) -> list[Document]:
    """The document without a part; no document, where that is all of it."""
    if not part:
        return []
    data: Any = copy.deepcopy(dict(found.data))
    *parents, last = part.replace("[", ".[").split(".")
    inner = data
    for one in parents:
        inner = inner[int(one[1:-1]) if one.startswith("[") else one]
    del inner[int(last[1:-1]) if last.startswith("[") else last]
    return [Document(found.key, data)]


@pytest.mark.parametrize("row", MISSING, ids=lambda row: f"{row.kinds[0]} {row.field}")
def test_there_is_an_example_of_everything_that_is_not_enforced(row: MissingCapability) -> None:
    assert any((kind, row.field) in ASKING for kind in row.kinds)


@pytest.mark.parametrize("place", ASKING, ids=" ".join)
def test_what_is_not_enforced_is_told_where_it_is_asked_for(place: Place) -> None:
    found = asking(place)
    expected = [one.path or world(found).kinds[place[0]].root for one in missing_parts(place[0], found.data)]

    assert expected
    assert told(world(found), found.key) == expected


@pytest.mark.parametrize(("place", "row"), rows(), ids=[" ".join(place) for place, _ in rows()])
def test_nothing_that_is_served_differs_without_it(place: Place, row: MissingCapability) -> None:
    """Whoever builds the capability sees this fail, and takes the row out of the table."""
    found = asking(place)
    parts = [one.part for one in missing_parts(place[0], found.data) if one.sentence == row.sentence]
    others = [document("Mesh", "default", {"mtls": CA})] if row.part == "mtls" else []
    if row.capability == ADDRESSES:
        assert endpoints_of(world(found), "default", Destination("web")).endpoints == ()
        return

    assert parts
    for part in parts:
        beside = [EDGE, *([WITH_MTLS] if row.capability == CLIENTS else [])]
        assert served(world(found, *beside)) == served(world(*beside, *(without(found, part) or others)))


@pytest.mark.parametrize("profile", ["default-proxy", "gateway-proxy"])
def test_a_template_with_the_profile_of_a_proxy_is_told_nothing(profile: str) -> None:
    conf = {"imports": [profile], "modifications": [{"cluster": {"operation": "patch", "value": "name: x"}}]}
    template = document("ProxyTemplate", "x", {"conf": conf})

    assert told(world(EDGE, template), template.key) == []


def test_a_mesh_in_which_nothing_is_asked_for_is_told_nothing() -> None:
    assert told(world(), Key("Mesh", "", "default")) == []
    assert told(world(), Key("Dataplane", "default", "web")) == []
    meshes: list[Data] = [{"mtls": {"backends": CA["backends"]}}, {"policyEngine": "TargetRef"}, {"routing": {}}]
    for mesh in meshes:
        assert told(world(document("Mesh", "default", mesh)), Key("Mesh", "", "default")) == []


def only_with_mtls(made: World, key: Key) -> list[str]:
    """What lint says of a policy without mTLS, where that is why it has no effect."""
    return [one.path for one in lint(policies(), made) if one.resource == key and one.code == "mtls-off"]


@pytest.mark.parametrize("row", ONLY_WITH_MTLS, ids=lambda row: row.kinds[0])
def test_there_is_an_example_of_everything_that_needs_mtls(row: MissingCapability) -> None:
    assert all((kind, row.field) in ASKING_FOR_MTLS for kind in row.kinds)


@pytest.mark.parametrize("place", ASKING_FOR_MTLS, ids=" ".join)
def test_what_needs_mtls_is_told_where_there_is_none_and_nothing_that_is_served_differs_without_it(
    place: Place,
) -> None:
    found = document(place[0], "x", ASKING_FOR_MTLS[place])
    (part,) = parts_with_mtls(place[0], found.data)

    assert only_with_mtls(world(found), found.key) == [part.path or "spec"]
    assert served(world(found)) == served(world(*without(found, part.part)))


@pytest.mark.parametrize("place", ASKING_FOR_MTLS, ids=" ".join)
def test_what_needs_mtls_changes_what_is_served_where_there_is_mtls(place: Place) -> None:
    found = document(place[0], "x", ASKING_FOR_MTLS[place])
    (part,) = parts_with_mtls(place[0], found.data)

    assert only_with_mtls(world(found, WITH_MTLS), found.key) == []
    assert served(world(found, WITH_MTLS)) != served(world(*without(found, part.part), WITH_MTLS))


@pytest.mark.parametrize("place", ASKING_FOR_MTLS, ids=" ".join)
def test_what_needs_mtls_is_told_in_a_mesh_without_proxies_too(place: Place) -> None:
    found = document(place[0], "x", ASKING_FOR_MTLS[place])
    made = World.of([document("Mesh", "default", {}), found], kinds(policies()))

    assert len(only_with_mtls(made, found.key)) == 1


@pytest.mark.parametrize("place", ASKING_FOR_MTLS, ids=" ".join)
def test_inspection_says_in_force_of_what_needs_mtls_where_there_is_mtls_alone(place: Place) -> None:
    found = document(place[0], "x", ASKING_FOR_MTLS[place])
    (part,) = parts_with_mtls(place[0], found.data)

    for mesh, is_in_force in ((document("Mesh", "default", {}), False), (WITH_MTLS, True)):
        made = world(found, mesh)
        policy = made.get(found.key)
        assert policy is not None
        (proxy,) = affected_proxies(made, policy)
        concerned = [effect for effect in proxy.effects if part.covers(effect.setting.path)]
        assert concerned
        assert all(effect in proxy.effects_in_force for effect in concerned) is is_in_force
        assert all(effect.idle_reason.startswith(WITHOUT_EFFECT) for effect in concerned) is not is_in_force


def test_of_a_policy_whose_rules_differ_the_rule_for_some_clients_alone_has_no_effect_without_mtls() -> None:
    made = world(document("MeshFaultInjection", "x", ASKING_FOR_MTLS["MeshFaultInjection", "spec.rules[].matches"]))
    (policy,) = made.table("MeshFaultInjection", "default")
    (proxy,) = affected_proxies(made, policy)

    assert [one.setting.origin.index for one in proxy.effects_in_force] == [0]
    assert [one.setting.origin.index for one in proxy.idle_effects] == [1]


@pytest.mark.parametrize(
    ("found", "beside", "words"),
    [
        (document("MeshTrafficPermission", "x", ASKING_FOR_MTLS["MeshTrafficPermission", ""]), [], WITHOUT_EFFECT),
        (document("MeshTimeout", "x", for_a_server_name("idleTimeout")), [WITH_MTLS], WORDS),
    ],
)
def test_rules_and_policies_of_a_proxy_warn_of_what_has_no_effect(
    found: Document, beside: list[Document], words: str
) -> None:
    made = world(found, *beside)
    (web,) = made.table("Dataplane", "default")
    (of_kind,) = inspect_rules(made, web)["rules"]
    (selected,) = inspect_policies(made, web)["policies"]

    assert all(words in one for one in (*of_kind["warnings"], *selected["warnings"]))
    assert of_kind["warnings"]
    assert selected["warnings"]


def test_rules_and_policies_of_a_proxy_warn_of_nothing_where_there_is_mtls() -> None:
    made = world(document("MeshTrafficPermission", "x", ASKING_FOR_MTLS["MeshTrafficPermission", ""]), WITH_MTLS)
    (web,) = made.table("Dataplane", "default")

    assert [of_kind["warnings"] for of_kind in inspect_rules(made, web)["rules"]] == [[]]
    assert all("warnings" not in selected for selected in inspect_policies(made, web)["policies"])
