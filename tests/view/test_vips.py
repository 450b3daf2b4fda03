"""Virtual addresses are a function of the World: the same everywhere, and as steady as names are."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from cp.model.names import Key
from cp.resources.world import World
from cp.translate.view.vips import VirtualAddresses, vips
from tests.random_mesh import document
from tests.view.meshes import external, redirected, service, world


def addresses(found: VirtualAddresses) -> dict[tuple[str, str], str]:
    return {(one.type, one.name): address for one, address in found.services} | {
        ("tag", name): address for name, address in found.tagged
    }


def test_each_kind_has_a_network_of_its_own() -> None:
    selector = {"meshService": {"matchLabels": {"a": "b"}}}
    zones = document("MeshMultiZoneService", "all", spec={"selector": selector, "ports": [{"port": 80}]})
    found = addresses(vips(world(service("a"), external("b"), zones, redirected(tag="c")), "default"))

    networks = {
        kind: IPv4Address(address) in IPv4Network(f"{first}.0.0.0/8")
        for (kind, _), address, first in [
            (of, found[of], first)
            for of, first in [
                (("MeshService", "a"), 241),
                (("MeshExternalService", "b"), 242),
                (("MeshMultiZoneService", "all"), 243),
                (("tag", "c"), 240),
            ]
        ]
    }
    assert networks == dict.fromkeys(["MeshService", "MeshExternalService", "MeshMultiZoneService", "tag"], True)


def test_many_services_have_many_addresses_that_a_host_can_have() -> None:
    """So many that some names come to the same place."""
    found = [address for _, address in vips(world(*(service(f"s{n}") for n in range(6000))), "default").services]

    assert len(set(found)) == 6000
    assert {int(address.rpartition(".")[2]) for address in found} == set(range(1, 255))


def test_names_alone_decide_and_not_who_was_there_first() -> None:
    names = [f"s{n}" for n in range(300)]
    grown = world(service("first"))
    for number, name in enumerate(reversed(names)):
        grown = grown.next({Key("MeshService", "default", name): service(name)}, number + 1)
        vips(grown, "default")
    grown = grown.next({Key("MeshService", "default", "first"): None}, 400)

    assert addresses(vips(grown, "default")) == addresses(vips(world(*map(service, names)), "default"))


def test_an_address_that_a_document_says_goes_first() -> None:
    """Whoever would have had it by its name gets another one; of two who say it the first has it."""
    usual = addresses(vips(world(service("b")), "default"))[("MeshService", "b")]
    said = world(service("b"), service("z", vip=usual), service("zz", vip=usual), external("e", vip="10.1.2.3"))
    found = addresses(vips(said, "default"))

    assert found[("MeshService", "z")] == usual
    assert found[("MeshExternalService", "e")] == "10.1.2.3"
    assert len(set(found.values())) == len(found)


_NO_ADDRESSES: Final[list[Any]] = [
    {"vips": [{"ip": "none"}]},
    {"vips": {}},
    {"vips": [7]},
    {"vips": [{"ip": 3}]},
    [],
    1,
]


def test_what_is_no_address_is_as_good_as_nothing() -> None:
    usual = addresses(vips(world(service("b")), "default"))
    for status in _NO_ADDRESSES:
        spec = {"ports": [{"port": 80}]}
        assert addresses(vips(world(document("MeshService", "b", spec=spec, status=status)), "default")) == usual


def test_an_endpoint_that_comes_or_goes_makes_nothing_new() -> None:
    old = world(service("a"), redirected("one", tag="a"), redirected("two", tag="a"))
    known = vips(old, "default")
    sick = redirected("two", tag="a", ready=False)

    assert vips(old.next({sick.key: sick}, 1), "default") is known
    assert vips(old.next({sick.key: None}, 1), "default") is known


def test_a_new_tag_leaves_the_real_services_as_they_are() -> None:
    old: World = world(service("a"), redirected("one", tag="a"))
    known = vips(old, "default")
    other = redirected("two", tag="b")
    found = vips(old.next({other.key: other}, 1), "default")

    assert found.services is known.services
    assert [name for name, _ in found.tagged] == ["a", "b"]
