"""What a workload calls whose machine redirects its traffic: by what its document and its Mesh say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cp.translate.view.proxies import inbounds, outbounds, unresolved
from cp.translate.view.vips import vips
from tests.random_mesh import document
from tests.view.meshes import called, dataplane, external, redirected, service, world

A, A_2, B, E = "MeshService a:80", "MeshService a:81", "MeshService b:80", "MeshExternalService e:443"
SERVICES = (service("a", 80, 81, team="red"), service("b", team="red"), external("e"), redirected("server", tag="b"))
TAGS = {"b", "client"}
REAL = {A, A_2, B, E}


def refs(*references: Mapping[str, Any]) -> dict[str, Any]:
    return {"reachableBackends": {"refs": list(references)}}


OF_A = {"kind": "MeshService", "name": "a"}


@pytest.mark.parametrize(
    ("mode", "said", "expected"),
    [
        (None, {}, TAGS | REAL),
        ("Everywhere", {}, TAGS | REAL),
        ("ReachableBackends", {}, TAGS),
        ("Exclusive", {}, REAL),
        (None, refs(OF_A), TAGS | {A, A_2}),
        ("ReachableBackends", refs(OF_A), TAGS | {A, A_2}),
        ("Exclusive", refs(OF_A), {A, A_2}),
        (None, refs({**OF_A, "port": 81}), TAGS | {A_2}),
        (None, refs({"kind": "MeshService", "labels": {"team": "red"}, "port": 80}), TAGS | {A, B}),
        (None, refs({"kind": "MeshExternalService", "name": "e"}), TAGS | {E}),
        (None, refs({**OF_A, "namespace": "elsewhere"}), TAGS),
        (None, {"reachableBackends": {}}, TAGS),
        (None, refs(), TAGS),
        (None, {"reachableServices": ["b"]}, {"b"}),
        (None, {"reachableServices": []}, TAGS | REAL),
        (None, {"reachableServices": ["b"], **refs(OF_A)}, {"b", A, A_2}),
        ("Exclusive", {"reachableServices": ["b"]}, set[str]()),
    ],
)
def test_who_is_reached(mode: str | None, said: dict[str, Any], expected: set[str]) -> None:
    mesh = {"meshServices": {"mode": mode}} if mode else {}

    assert called(world(*SERVICES, redirected(**said), mesh=mesh)) == expected


def test_what_it_lists_itself_is_replaced() -> None:
    client = redirected()
    listed = {**client.data["networking"], "outbound": [{"port": 10000, "tags": {"kuma.io/service": "other"}}]}

    assert called(world(*SERVICES, document("Dataplane", "client", networking=listed))) == TAGS | REAL


def test_its_own_inbound_is_no_outbound_of_its() -> None:
    vip = "241.0.0.1"
    documents = service("a", 80, 81, vip=vip), redirected(address=vip, port=80, tag="a"), redirected("other", tag="a")
    found = world(*documents)

    assert called(found, "client") == {"a", A_2}
    assert called(found, "other") == {"a", A, A_2}


def test_all_who_say_the_same_have_one_tuple_and_keep_it_while_services_stay() -> None:
    others = [redirected(f"p{n}", address=f"10.0.1.{n}", tag="client") for n in range(1, 20)]
    old = world(*SERVICES, redirected(), *others)
    known = outbounds(old, dataplane(old))
    sick = redirected("server", tag="b", ready=False)
    new = old.next({sick.key: sick}, 1)

    assert {id(outbounds(old, dataplane(old, other.key.name))) for other in others} == {id(known)}
    assert outbounds(new, dataplane(new)) is known
    relabelled = service("b", team="blue")
    newer = new.next({relabelled.key: relabelled}, 2)
    assert outbounds(newer, dataplane(newer)) is known, "another World, with the same outbounds"


def test_a_new_service_is_called_at_its_virtual_address() -> None:
    old = world(redirected())
    outbounds(old, dataplane(old))
    made = service("new")
    new = old.next({made.key: made}, 1)
    (found,) = [one for one in outbounds(new, dataplane(new)) if one.destination.is_real]
    ((_, address),) = vips(new, "default").services

    assert (found.address, found.port, found.is_bound) == (address, 80, False)


def test_two_meshes_do_not_see_each_other() -> None:
    elsewhere = document("MeshService", "a", spec={"ports": [{"port": 80}]})
    data = {**elsewhere.data, "mesh": "other"}
    other = type(elsewhere)(type(elsewhere.key)("MeshService", "other", "a"), data)

    assert called(world(other, redirected())) == {"client"}


@pytest.mark.parametrize(("said", "is_bound"), [({}, True), ({"redirectPortInbound": 15006}, False)])
def test_an_inbound_has_a_socket_unless_it_is_redirected_too(said: dict[str, Any], is_bound: bool) -> None:
    found = world(redirected(**said))

    assert [inbound.is_bound for _, inbound in inbounds(dataplane(found))] == [is_bound]


def test_what_it_says_it_reaches_and_is_not_there() -> None:
    said = refs(OF_A, {"kind": "MeshService", "name": "nobody"}, {**OF_A, "port": 82})
    found = world(*SERVICES, redirected(**said))
    told = {one.path: one.message for one in unresolved(found, dataplane(found))}

    assert told == {
        "networking.transparentProxying.reachableBackends.refs[1]": "there is no MeshService nobody in mesh default",
        "networking.transparentProxying.reachableBackends.refs[2].port": "MeshService a has no port 82; it has 80, 81",
    }
