"""Nothing that an operator writes takes anything from proxies that are at work."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.support.client import Traffic, call
from tests.support.loopback import Address
from tests.support.mesh import (
    MESH,
    Document,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    route_item,
    rule,
    service_item,
)
from tests.support.playground import Playground, settled, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

TIMEOUT = policy("MeshTimeout", "timeout", service_item("backend", request_timeout("2s")))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"), TIMEOUT)
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    eventually(lambda: timeouts(empty_mesh.envoys["frontend"]) == {"/": "2s"})
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound()


@pytest.fixture(autouse=True)
def traffic_goes_on(mesh: Playground, backend: Address) -> Iterator[Traffic]:
    """Requests all through each test, none of which may fail."""
    with Traffic(backend, per_second=100) as traffic:
        yield traffic
        eventually(lambda: len(traffic.outcomes) > 10)
    assert traffic.failures == []
    mesh.control_plane.process.check()


def still_served(mesh: Playground) -> None:
    """A good change is still taken up."""
    changed = policy("MeshTimeout", "timeout", service_item("backend", request_timeout("3s")))
    with mesh.having(changed):
        eventually(lambda: timeouts(mesh.envoys["frontend"])["/"] == "3s")
    eventually(lambda: timeouts(mesh.envoys["frontend"])["/"] == "2s")


def faulty(**spec: object) -> Document:
    return {**TIMEOUT, "spec": {**TIMEOUT["spec"], **spec}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (faulty(too=[]), "too"),
        (faulty(to="all"), "spec.to"),
        (faulty(to=[service_item("backend", request_timeout("soon"))]), "requestTimeout"),
        (faulty(to=[service_item("backend", {"connectionTimeout": "0s"})]), "connectionTimeout"),
        (faulty(to=[route_item("route", {"connectionTimeout": "1s"})]), "connectionTimeout"),
        ({**TIMEOUT, "name": "another"}, "name"),
    ],
    ids=["unknown-field", "wrong-type", "no-duration", "zero", "not-of-a-route", "another-name"],
)
def test_an_invalid_policy_is_refused_and_the_last_good_one_stays(
    mesh: Playground, document: Document, said: str
) -> None:
    where = f"/meshes/default/meshtimeouts/{TIMEOUT['name']}"
    before = settled(mesh.envoys["frontend"])

    answer = mesh.control_plane.put_at(where, document)

    assert answer.status_code == httpx.codes.BAD_REQUEST, answer.text
    assert said in answer.text
    assert settled(mesh.envoys["frontend"]) == before
    assert timeouts(mesh.envoys["frontend"]) == {"/": "2s"}


@pytest.mark.parametrize(
    ("where", "body", "status"),
    [
        ("/meshes/default/meshtimeouts/timeout", b"spec: [unclosed", 400),
        ("/meshes/default/meshtimeouts/timeout", b"\x00\xff\xfe", 400),
        ("/meshes/default/meshtimeouts/timeout", b"", 400),
        ("/meshes/default/meshtimeouts/timeout", b"#" * 20_000_000, 413),
        ("/meshes/default/meshtimeout/timeout", b"{}", 404),
        ("/meshes/elsewhere/meshtimeouts/timeout", json.dumps({**TIMEOUT, "mesh": "elsewhere"}).encode(), 404),
    ],
    ids=["not-yaml", "binary", "empty", "too-large", "unknown-kind", "unknown-mesh"],
)
def test_what_is_no_resource_is_refused(mesh: Playground, where: str, body: bytes, status: int) -> None:
    answer = mesh.control_plane.request("PUT", where, body)

    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    still_served(mesh)


def test_three_megabytes_in_an_unknown_field_are_refused_in_a_few_words(mesh: Playground) -> None:
    answer = mesh.control_plane.put({**TIMEOUT, "spec": {**TIMEOUT["spec"], "padding": "x" * 3_000_000}})

    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert "spec.padding" in answer.text
    assert len(answer.text) < 1000
    still_served(mesh)


def test_a_policy_of_many_items_is_taken_while_requests_go_on(mesh: Playground) -> None:
    items = [service_item(f"service-{number}", request_timeout("1s")) for number in range(1_000)]
    with mesh.having(policy("MeshTimeout", "large", *items)):
        still_served(mesh)


def test_a_route_to_nothing_answers_500_and_leaves_the_others_alone(mesh: Playground, backend: Address) -> None:
    route = http_route(
        "route",
        "backend",
        rule(prefix("/lost"), to={"no-such-service": 1}),
        rule(prefix("/half"), to={"no-such-service": 1, "backend": 1}),
        rule(prefix("/found"), to={"backend": 1}),
    )
    with mesh.having(route):
        eventually(lambda: call(backend, "/lost").status == 500)

        assert call(backend, "/found").status == 200
        assert {call(backend, "/half").status for _ in range(30)} == {200, 500}


def test_a_policy_about_nothing_that_exists_is_taken_and_does_nothing(mesh: Playground) -> None:
    before = settled(mesh.envoys["frontend"])
    about_nothing = policy(
        "MeshTimeout",
        "about-nothing",
        service_item("no-such-service", request_timeout("1s")),
        route_item("no-such-route", request_timeout("1s")),
    )
    with mesh.having(about_nothing):
        assert settled(mesh.envoys["frontend"]) == before
        still_served(mesh)


def test_an_outbound_to_nothing_takes_nothing_from_the_others(mesh: Playground, backend: Address) -> None:
    document = mesh.proxies["frontend"].document
    outbounds = document["networking"]["outbound"]
    nothing = {"kind": "MeshService", "name": "no-such-service", "port": 80}
    lost = {**outbounds[0], "port": outbounds[0]["port"] + 5000, "backendRef": nothing}
    networking = {**document["networking"], "outbound": [*outbounds, lost]}
    with mesh.having({**document, "networking": networking}):
        still_served(mesh)


def test_a_mesh_that_is_deleted_under_its_proxies_takes_nothing_from_them(mesh: Playground) -> None:
    answer = mesh.control_plane.request("DELETE", "/meshes/default")
    assert answer.status_code == httpx.codes.BAD_REQUEST, "a Mesh in use is not deleted by accident"
    still_served(mesh)

    documents = [mesh.control_plane.find(document) for document in (MESH, mesh_service("backend"), TIMEOUT)]
    proxies = [proxy.document for proxy in mesh.proxies.values()]
    mesh.control_plane.request("DELETE", "/meshes/default?cascade=true").raise_for_status()
    eventually(lambda: mesh.control_plane.find(MESH) is None)
    mesh.control_plane.process.check()

    mesh.control_plane.apply(*[document for document in documents if document], *proxies)
    eventually(lambda: mesh.control_plane.find(TIMEOUT) is not None)
    still_served(mesh)
