"""Single rules of single kinds, each in a sentence."""

from __future__ import annotations

import pytest

from cp.model.source import LEGACY_POLICIES
from cp.resources.checks import regex
from cp.resources.hostname_generator import Template, render
from cp.resources.legacy import LEGACY_KINDS
from cp.resources.schema import Schema
from cp.resources.spiffe import is_spiffe_id
from cp.resources.telemetry import Url, is_collector_address
from tests.resources.reading import accepted, every_kind, policy, read, refused, warned

DATAPLANE = "type: Dataplane\nmesh: default\nname: a\nnetworking: {address: 10.0.0.1, %s}\n"


def test_every_kind_is_found_by_each_of_its_names_alone() -> None:
    kinds = every_kind()
    names = [name.lower() for kind in kinds.values() for name in {kind.name.lower(), kind.plural, kind.short}]

    assert len(set(names)) == len(names)
    assert all(kinds.find(name) is kind for kind in kinds.values() for name in (kind.name, kind.plural, kind.short))


def test_every_schema_is_frozen() -> None:
    every_kind()  # imports them all
    schemas = [Schema]
    for schema in schemas:
        schemas += schema.__subclasses__()

    assert len(schemas) > 100
    assert [schema for schema in schemas if not schema.__struct_config__.frozen] == []


def test_a_mesh_has_the_authority_that_is_enabled() -> None:
    backend = "{name: ca, type: builtin, dpCert: {rotation: {expiration: 1d}}}"
    mesh = accepted(f"type: Mesh\nname: a\nmtls: {{enabledBackend: ca, backends: [{backend}]}}\npolicyEngine: Legacy\n")

    assert mesh.spec.authority.name == "ca"
    assert mesh.spec.policy_engine == "Legacy"
    assert accepted("type: Mesh\nname: a\n").spec.authority is None


def test_the_section_of_an_inbound_is_its_name_or_its_port() -> None:
    first, second = accepted(DATAPLANE % "inbound: [{port: 80}, {port: 81, name: x}]").spec.networking.inbound

    assert (first.section, second.section) == ("80", "x")


@pytest.mark.parametrize(
    ("admin", "networking", "clashes"),
    [
        (80, "inbound: [{port: 80}]", False),
        (80, "inbound: [{port: 80, address: 127.0.0.1}]", True),
        (80, "inbound: [{port: 81, serviceAddress: 127.0.0.1, servicePort: 80}]", True),
        (80, "outbound: [{port: 80, tags: {kuma.io/service: a}}]", True),
    ],
)
def test_envoy_s_admin_interface_needs_a_port_of_its_own(admin: int, networking: str, clashes: bool) -> None:
    found = refused(DATAPLANE % f"admin: {{port: {admin}}}, {networking}")

    assert found == (["networking.admin.port"] if clashes else [])


def test_the_section_of_a_service_s_port_is_its_name_or_its_number() -> None:
    service = accepted(policy("MeshService", "{ports: [{port: 80, name: http}, {port: 81}]}")).spec

    assert [port.section for port in service.ports] == ["http", "81"]


def test_two_ports_of_a_service_have_two_names_and_numbers() -> None:
    ports = "{ports: [{port: 80, name: a}, {port: 80, name: b}, {port: 81, name: a}]}"

    assert refused(policy("MeshService", ports)) == ["spec.ports[1].port", "spec.ports[2].name"]


def test_an_unknown_protocol_of_a_service_is_warned_of() -> None:
    assert warned(policy("MeshService", "{ports: [{port: 80, appProtocol: htpp}]}")) == ["spec.ports[0].appProtocol"]


@pytest.mark.parametrize(
    ("address", "paths"),
    [
        ("httpbin.org:443", []),
        ("10.0.0.1:80", []),
        ("[::1]:80", []),
        ("httpbin.org", ["networking.address"]),
        ("httpbin.org:0", ["networking.address"]),
        ("ht tp:80", ["networking.address"]),
        ("web:80", ['tags["kuma.io/service"]']),
    ],
)
def test_an_external_service_has_a_host_and_a_port(address: str, paths: list[str]) -> None:
    text = "type: ExternalService\nmesh: default\nname: a\ntags: {kuma.io/service: web}\n"

    assert refused(f'{text}networking: {{address: "{address}"}}\n') == paths


@pytest.mark.parametrize(
    ("address", "port", "paths"),
    [
        ("unix:///run/a.sock", None, []),
        ("unix://a.sock", None, ["address"]),
        ("example.com", 443, []),
        ("example.com", None, ["port"]),
        ("a b", 443, ["address"]),
    ],
)
def test_an_endpoint_outside_the_mesh(address: str, port: int | None, paths: list[str]) -> None:
    given = f"{{address: '{address}'" + (f", port: {port}}}" if port else "}")
    spec = f"{{match: {{port: 80}}, endpoints: [{given}]}}"

    assert refused(policy("MeshExternalService", spec)) == [f"spec.endpoints[0].{path}" for path in paths]


def test_a_socket_cannot_stand_beside_a_name() -> None:
    """Envoy resolves the names of a cluster, and then passes over its sockets."""
    endpoints = "[{address: a.example.com, port: 80}, {address: 'unix:///run/a.sock'}, {address: 10.0.0.1, port: 80}]"
    fixed = "[{address: 'unix:///run/a.sock'}, {address: 10.0.0.1, port: 80}]"

    assert refused(policy("MeshExternalService", f"{{match: {{port: 80}}, endpoints: {endpoints}}}")) == [
        "spec.endpoints[1].address"
    ]
    assert refused(policy("MeshExternalService", f"{{match: {{port: 80}}, endpoints: {fixed}}}")) == []


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("{secret: ca}", ""),
        ("{inline: Y2E=}", ""),
        ("{inline: not base64}", ".inline"),
        ("{file: /etc/ca.pem}", ""),
        ("{file: ca.pem}", ".file"),
        ("{secret: ca, file: /etc/ca.pem}", ""),
    ],
)
def test_where_a_certificate_comes_from(source: str, path: str) -> None:
    spec = f"{{match: {{port: 80}}, tls: {{enabled: true, verification: {{caCert: {source}}}}}}}"
    found = refused(policy("MeshExternalService", spec))

    both = "secret" in source and "file" in source
    assert found == ([f"spec.tls.verification.caCert{path}"] if path or both else [])


def test_the_one_port_of_a_service_outside_is_called_by_its_number() -> None:
    (port,) = accepted(policy("MeshExternalService", "{match: {port: 443, protocol: http}}")).spec.ports

    assert (port.section, port.speaks) == ("443", "http")


def test_host_names_are_made_from_a_template() -> None:
    fields = {".DisplayName": "web", ".Zone": "east"}

    assert render("{{ .DisplayName }}.{{ .Zone }}.local", fields) == "web.east.local"
    assert render('{{label "team"}}.local', fields, {"team": "shop"}) == "shop.local"
    with pytest.raises(Template):
        render('{{ label "other" }}.local', fields, {"team": "shop"})


@pytest.mark.parametrize(
    ("template", "is_valid"),
    [("{{ .Name }}.mesh", True), ("{{ .Nam }}.mesh", False), ("{{ .Name }}_x", False), ("", False)],
)
def test_a_template_leads_to_the_name_of_a_host(template: str, is_valid: bool) -> None:
    text = f"type: HostnameGenerator\nname: a\nspec: {{selector: {{meshService: {{}}}}, template: '{template}'}}\n"

    assert (refused(text) == []) is is_valid


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("/a.*", True),
        (r"\d+\pL", True),
        (r"[[:alpha:]]+", True),
        (r"\(\?=", True),
        ("(?i)a", True),
        ("(", False),
        ("a)", False),
        ("[a", False),
        ("*a", False),
        ("(?=a)", False),
        ("(?<!a)", False),
        (r"(a)\1", False),
        ("a++", False),
        ("(" * 200, False),
        ("a" * 5000, False),
    ],
)
def test_regular_expressions_are_those_of_envoy(value: str, is_valid: bool) -> None:
    assert (list(regex("value", value)) == []) is is_valid


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("spiffe://mesh", True),
        ("spiffe://mesh/web", True),
        ("spiffe://mesh/", False),
        ("spiffe://mesh/../a", False),
        ("spiffe://Mesh/a", False),
        ("http://mesh/a", False),
    ],
)
def test_spiffe_ids(text: str, is_one: bool) -> None:
    assert is_spiffe_id(text) is is_one


def test_urls_are_taken_apart() -> None:
    assert Url.parse("http://user:pw@agent:8126/a?b") == Url("http", "agent", 8126, "user:pw", "/a?b")
    assert Url.parse("agent:8126") is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a:80", True), ("http://a.b", True), ("127.0.0.1:80", True), ("a.b", True), ("a", False), ("a_b", False)],
)
def test_places(text: str, is_one: bool) -> None:
    assert is_collector_address(text) is is_one


@pytest.mark.parametrize(
    ("size", "is_valid"), [(65537, True), (2, True), (65536, False), (1, False), (0, False), (5000011, True)]
)
def test_a_maglev_table_has_a_prime_size(size: int, is_valid: bool) -> None:
    conf = f"{{loadBalancer: {{type: Maglev, maglev: {{tableSize: {size}}}}}}}"
    spec = f"{{to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}"

    assert (refused(policy("MeshLoadBalancingStrategy", spec)) == []) is is_valid


@pytest.mark.parametrize(
    ("sizes", "is_valid"),
    [
        ("minRingSize: 10, maxRingSize: 10", True),
        ("minRingSize: 11, maxRingSize: 10", False),
        ("maxRingSize: 1023", False),
        ("maxRingSize: 8000001", False),
        ("minRingSize: 8000001", False),
    ],
)
def test_a_ring_is_as_large_as_its_minimum_at_least(sizes: str, is_valid: bool) -> None:
    conf = f"{{loadBalancer: {{type: RingHash, ringHash: {{{sizes}}}}}}}"
    spec = f"{{to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}"

    assert (refused(policy("MeshLoadBalancingStrategy", spec)) == []) is is_valid


def test_a_tcp_route_has_one_rule() -> None:
    rule = "{default: {backendRefs: [{kind: MeshService, name: b}]}}"
    spec = f"{{to: [{{targetRef: {{kind: MeshService, name: a}}, rules: [{rule}, {rule}]}}]}}"

    assert refused(policy("MeshTCPRoute", spec)) == ["spec.to[0].rules"]


def test_a_status_may_be_written_as_a_number() -> None:
    conf = "{http: {retryOn: [503, '504', 5xx]}}"
    resource = accepted(policy("MeshRetry", f"{{to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}"))

    assert resource.spec.to[0].default.http.retry_on == ["503", "504", "5xx"]


@pytest.mark.parametrize("kind", ["MeshGRPCRoute", "MeshTLSRoute"])
def test_kinds_of_routes_that_are_not_there_are_refused_by_name(kind: str) -> None:
    """Of the kinds of routes in document 004 (record 0024) there are those of HTTP and TCP."""
    target = f"{{to: [{{targetRef: {{kind: {kind}, name: a}}, default: {{http: {{requestTimeout: 1s}}}}}}]}}"

    (unknown,) = read(policy(kind, "{}")).findings()
    assert (unknown.code, kind in unknown.message) == ("invalid", True)
    assert refused(policy("MeshTimeout", target)) == ["spec.to[0].targetRef.kind"]


def test_every_legacy_policy_is_one_in_all_lists() -> None:
    known = every_kind()
    by_shape = {name for name, kind in known.items() if kind.legacy is not None}

    assert by_shape | {"VirtualOutbound", "MeshGatewayRoute"} == LEGACY_POLICIES
    assert {kind.name for kind in LEGACY_KINDS} | {"ProxyTemplate"} == LEGACY_POLICIES
