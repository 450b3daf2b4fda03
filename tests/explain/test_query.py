"""How calls are written, and which outbound each means."""

from __future__ import annotations

from typing import Any

import pytest

from cp.insight.explain import AmbiguousCall, CallQuery, Explanation, explain, parse_call
from cp.model.names import Key
from cp.translate.compiler import Compiler
from tests.random_mesh import MESH, Mesh
from tests.snapshots import policies


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("GET http://backend:80/a?b=c", CallQuery("GET", "backend", 80, "/a?b=c")),
        ("post http://Backend/a", CallQuery("POST", "backend", None, "/a")),
        ("backend", CallQuery("GET", "backend", None, "/")),
        ("backend:81", CallQuery("GET", "backend", 81, "/")),
        ("backend?x", CallQuery("GET", "backend", None, "/?x")),
        ("/a", CallQuery("GET", "", None, "/a")),
        ("http://[::1]:80/a#part", CallQuery("GET", "::1", 80, "/a")),
        ("tcp://redis:6379", CallQuery("GET", "redis", 6379, "/", scheme="tcp")),
        ("http://backend/ä", CallQuery("GET", "backend", None, "/%C3%A4")),
        ("http://backend/%20a/../b", CallQuery("GET", "backend", None, "/%20a/../b")),
    ],
)
def test_a_call_is_parsed_with_defaults_for_what_it_leaves_out(call: str, expected: CallQuery) -> None:
    assert parse_call(call) == expected


def test_headers_are_written_as_for_curl() -> None:
    assert parse_call("/", ("X-Version: 2", "x-empty:")).headers == (("X-Version", "2"), ("x-empty", ""))


@pytest.mark.parametrize(
    ("call", "headers"),
    [("", ()), ("GET http://b/a b", ()), ("http://b:99999/", ()), ("http://b:port/", ()), ("/", ("no colon",))],
)
def test_an_invalid_call_is_answered_with_an_example(call: str, headers: tuple[str, ...]) -> None:
    with pytest.raises(AmbiguousCall) as error:
        parse_call(call, headers)

    assert "write for example" in error.value.hint


def test_a_host_is_that_of_the_url_alone() -> None:
    """A gateway tells listeners apart by it, before and after TLS; in a header it would be read by half."""
    with pytest.raises(AmbiguousCall, match="that of its URL"):
        parse_call("https://shop.example/", ("Host: blog.example",))


def service(name: str, *ports: int) -> dict[str, Any]:
    listed = [{"port": port, "targetPort": 9000, "appProtocol": "http"} for port in ports]
    spec = {"selector": {"dataplaneTags": {"kuma.io/service": name}}, "ports": listed}
    return {"type": "MeshService", "mesh": "default", "name": name, "spec": spec}


def client(*outbounds: dict[str, Any]) -> dict[str, Any]:
    inbound = [{"port": 9000, "tags": {"kuma.io/service": "web"}}]
    networking = {"address": "10.0.0.1", "inbound": inbound, "outbound": list(outbounds)}
    return {"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": networking}


def to(port: int, name: str, service_port: int, **where: Any) -> dict[str, Any]:
    return {"port": port, "backendRef": {"kind": "MeshService", "name": name, "port": service_port}, **where}


CLIENT = client(
    to(10080, "backend", 80),
    to(10081, "backend", 81),
    to(10082, "orders", 8080),
    {"port": 10083, "tags": {"kuma.io/service": "legacy_ns_svc_80"}},
    to(80, "orders", 8080, address="240.0.0.1"),
)
DOCUMENTS = (dict(MESH.data), service("backend", 80, 81), service("orders", 8080), CLIENT)


def explained(call: str, *documents: dict[str, Any]) -> Explanation:
    world = Mesh(documents or DOCUMENTS).world()
    dataplane = world.get(Key("Dataplane", "default", "web-1"))
    assert dataplane is not None
    return explain(Compiler(policies()), policies(), world, dataplane, parse_call(call))


@pytest.mark.parametrize(
    ("call", "port"),
    [
        ("http://backend:80/", 10080),
        ("http://backend/", 10080),
        ("http://backend:81/", 10081),
        ("http://backend:10081/", 10081),
        ("http://orders/", 80),
        ("http://orders:8080/", 10082),
        ("http://127.0.0.1:10082/", 10082),
        ("http://localhost:10082/", 10082),
        ("http://240.0.0.1/", 80),
        ("http://legacy_ns_svc_80/", 10083),
        ("http://legacy_ns_svc_80:80/", 10083),
        ("http://legacy.ns.svc.80.mesh/", 10083),
    ],
)
def test_an_outbound_is_found_by_its_service_or_its_address(call: str, port: int) -> None:
    outbound = explained(call).outbound
    assert outbound is not None
    assert outbound.port == port


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            "http://backing/",
            "no outbound for `backing`",
            "`backend:80` at 127.0.0.1:10080, `backend:81` at 127.0.0.1:10081",
        ),
        (
            "http://backend:8080/",
            "no outbound for `backend:8080`",
            "there is `backend:80` at 127.0.0.1:10080, `backend:81`",
        ),
        ("http://localhost:1/", "no outbound for `localhost:1`", "`orders:8080` at 127.0.0.1:10082"),
        ("http://localhost/", "`localhost` can be any of several outbounds", "`legacy_ns_svc_80` at 127.0.0.1:10083"),
        ("/a", "a call without a host can be any of several outbounds", "`orders:8080` at"),
    ],
)
def test_an_ambiguous_call_lists_the_outbounds_that_it_could_mean(call: str, message: str, hint: str) -> None:
    with pytest.raises(AmbiguousCall) as error:
        explained(call)

    assert message in error.value.message
    assert hint in error.value.hint


def test_a_proxy_with_one_outbound_needs_no_host() -> None:
    outbound = explained("/a", dict(MESH.data), service("orders", 8080), client(to(1, "orders", 8080))).outbound
    assert outbound is not None
    assert outbound.port == 1


def test_a_call_of_a_proxy_without_outbounds_is_an_error() -> None:
    with pytest.raises(AmbiguousCall, match="has no outbound"):
        explained("/a", dict(MESH.data), client())


def test_a_call_of_a_proxy_whose_outbounds_are_for_missing_services_is_an_error_that_says_so() -> None:
    with pytest.raises(AmbiguousCall, match="lead nowhere") as error:
        explained("/a", dict(MESH.data), client(to(1, "orders", 8080)))

    assert "no service that they name is there" in error.value.hint
