"""What a gRPC client without a proxy calls, and by which names."""

from __future__ import annotations

from typing import Any

from cp.model.document import Document
from cp.translate.view.proxies import inbounds, outbounds, unresolved
from cp.translate.view.redirected import capture_of
from tests.random_mesh import document
from tests.view.meshes import dataplane, external, redirected, service, world

GRPC = {"koguma.io/client": "grpc"}


def client(*outbound: dict[str, Any], zone: str = "", networking: dict[str, Any] | None = None) -> Document:
    labels = GRPC | ({"kuma.io/zone": zone} if zone else {})
    said = {"address": "10.0.0.9", "outbound": list(outbound), **(networking or {})}
    return document("Dataplane", "client", labels=labels, networking=said)


def names(*documents: Document, mesh: dict[str, Any] | None = None) -> dict[str, str]:
    """Every name with the kind of what it means."""
    found = world(*documents, mesh=mesh)
    listed = outbounds(found, dataplane(found))
    kinds = {one: one.destination.identity.type if one.destination.identity else "tag" for one in listed}
    return {name: kind for one, kind in kinds.items() for name in one.names}


def test_a_service_is_called_by_name_and_port_and_by_its_name_where_it_has_one_port() -> None:
    found = names(service("a", 80), service("b", 80, 81), external("e"), client())

    assert found == {
        "a:80": "MeshService",
        "a": "MeshService",
        "b:80": "MeshService",
        "b:81": "MeshService",
        "e:443": "MeshExternalService",
        "e": "MeshExternalService",
    }


def test_a_name_means_the_real_service_before_the_tag() -> None:
    server = redirected("server", tag="a")

    assert names(server, client()) == {"a:80": "tag", "a": "tag"}
    assert names(server, service("a", 80), client()) == {"a:80": "MeshService", "a": "MeshService"}
    assert names(server, service("a", 81), client()) == {"a:81": "MeshService", "a": "MeshService", "a:80": "tag"}
    assert "a" not in names(server, service("a", 81, 82), client())


def test_of_one_name_in_several_zones_the_own_one_is_meant() -> None:
    def of_zone(zone: str) -> Document:
        labels = {"kuma.io/zone": zone, "kuma.io/display-name": "a"}
        return document("MeshService", f"a-{zone}", labels=labels, spec={"ports": [{"port": 80}]})

    found = world(of_zone("east"), of_zone("west"), client(zone="west"))
    (one,) = outbounds(found, dataplane(found))

    assert one.destination.identity is not None
    assert (one.destination.identity.zone, one.names) == ("west", ("a:80", "a"))


def test_it_calls_only_what_it_lists_if_it_lists_anything() -> None:
    listed = [{"port": 1, "backendRef": {"kind": "MeshService", "name": "b", "port": 81}}]
    twice = [*listed, {**listed[0], "port": 2}]

    assert set(names(service("a"), service("b", 80, 81), client(*listed))) == {"b:81", "b"}
    assert set(names(service("a"), service("b", 80, 81), client(*twice))) == {"b:81", "b"}
    assert set(names(service("a"), client({"port": 1, "tags": {"kuma.io/service": "t"}}))) == {"t:80", "t"}


def test_a_part_of_a_service_has_no_name() -> None:
    found = world(client({"port": 1, "tags": {"kuma.io/service": "t", "version": "v2"}}))
    (lost,) = unresolved(found, dataplane(found))

    assert outbounds(found, dataplane(found)) == ()
    assert (lost.path, lost.message) == (
        "networking.outbound[0].tags",
        "a gRPC client calls t as a whole, and not version=v2: say that in a MeshHTTPRoute",
    )


def test_it_reaches_what_it_says_it_reaches() -> None:
    said: dict[str, Any] = {
        "transparentProxying": {"reachableBackends": {"refs": [{"kind": "MeshService", "name": "a"}]}}
    }

    assert set(names(service("a"), service("b"), client(networking=said))) == {"a:80", "a"}
    assert names(service("a"), client(), mesh={"meshServices": {"mode": "ReachableBackends"}}) == {}


def test_nothing_reaches_it_through_a_proxy() -> None:
    inbound = [{"port": 9000, "tags": {"kuma.io/service": "shop"}}]
    said = {"inbound": inbound, "transparentProxying": {"redirectPortInbound": 15006}}
    found = world(client(networking=said))

    assert inbounds(dataplane(found)) == ()
    assert capture_of(found, dataplane(found)) is None


def test_clients_that_say_the_same_have_one_tuple_and_are_no_proxies() -> None:
    other = Document(client().key.__class__("Dataplane", "default", "other"), {**client().data, "name": "other"})
    proxy = redirected("proxy", tag="t")
    found = world(service("a"), client(), other, proxy)

    assert outbounds(found, dataplane(found)) is outbounds(found, dataplane(found, "other"))
    assert outbounds(found, dataplane(found)) != outbounds(found, dataplane(found, "proxy"))
