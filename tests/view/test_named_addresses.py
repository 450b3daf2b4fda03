"""The names that documents give to what is called by tags: hosts of ExternalServices, and VirtualOutbounds."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from cp.insight.lint import lint
from cp.model.document import Document, Source
from cp.model.names import Key
from cp.resources.world import World
from cp.rules.legacy.selectors import best_rank, fits
from cp.translate.view import named_addresses
from cp.translate.view.hostnames import hosts
from cp.translate.view.proxies import outbounds
from tests.snapshots import policies
from tests.view.meshes import dataplane, redirected, world

SERVICE: Final = {"name": "service", "tagKey": "kuma.io/service"}


def external(name: str, address: str, service: str = "", **networking: Any) -> Document:
    key = Key("ExternalService", "default", name)
    networking = {"address": address, **networking}
    tags = {"kuma.io/service": service or name}
    return Document(key, {"type": key.type, "mesh": "default", "name": name, "networking": networking, "tags": tags})


def outbound(
    name: str,
    host: str,
    port: str = "80",
    *parameters: dict[str, str],
    match: dict[str, str] | None = None,
    created: str = "",
) -> Document:
    key = Key("VirtualOutbound", "default", name)
    conf = {"host": host, "port": port, "parameters": [SERVICE, *parameters]}
    data = {"type": key.type, "mesh": "default", "name": name, "conf": conf}
    selectors = [{"match": match or {"kuma.io/service": "*"}}]
    return Document(key, {**data, "selectors": selectors}, Source(created=created))


def named(found: World, name: str = "client") -> dict[str, str]:
    """What a proxy can call by names, with ports: the tags behind them."""
    asking = dataplane(found, name)
    addresses = outbounds(found, asking)
    known = hosts(found, "default", addresses)
    names = {} if known is None else {address: host for host, address in known.names}
    return {
        f"{names.get(each.address, each.address)}:{each.port}": " ".join(
            [each.destination.service, *(f"{tag}={value}" for tag, value in each.destination.tags)]
        )
        for each in addresses
    }


def without(found: dict[str, str], *names: str) -> dict[str, str]:
    return {name: tags for name, tags in found.items() if not name.startswith(names)}


def test_an_external_service_has_its_own_host_and_the_name_of_its_tag() -> None:
    found = named(world(external("pay", "api.example.com:443"), redirected()))

    assert without(found, "client.mesh") == {
        "api.example.com:443": "pay",
        "api.example.com:80": "pay",
        "pay.mesh:443": "pay",
        "pay.mesh:80": "pay",
    }


def test_an_address_is_called_where_it_is_and_one_can_be_kept_out() -> None:
    hidden = external("hidden", "api.example.com:443", disableHostDNSEntry=True)
    found = named(world(external("db", "192.0.2.7:5432"), hidden, redirected()))

    assert without(found, "client.mesh", "db.mesh") == {
        "192.0.2.7:5432": "db",
        "hidden.mesh:443": "hidden",
        "hidden.mesh:80": "hidden",
    }


def test_two_at_one_host_share_its_name_and_the_first_has_a_port_that_both_want() -> None:
    found = named(world(external("a", "api.example.com:80"), external("b", "api.example.com:81"), redirected()))
    same = named(world(external("a", "api.example.com:81"), external("b", "api.example.com:81"), redirected()))

    assert (found["api.example.com:80"], found["api.example.com:81"]) == ("a", "b")
    assert (same["api.example.com:80"], same["api.example.com:81"]) == ("a", "a")


def test_a_virtual_outbound_names_what_has_its_tags() -> None:
    versions = outbound("versions", "{{.app}}.{{ .service }}.example", "8080", {"name": "app"}, match={"app": "*"})
    found = named(world(versions, redirected(), redirected("other", address="10.0.0.2", tag="other")))

    assert without(found, "client.mesh", "other.mesh") == {
        "client.client.example:8080": "client app=client",
        "other.other.example:8080": "other app=other",
    }


def test_an_external_service_is_chosen_by_its_service_alone() -> None:
    of_all = outbound("all", "{{.service}}.example")
    assert "pay.example:80" in named(world(of_all, external("pay", "api.example.com:443"), redirected()))


@pytest.mark.parametrize(
    "bad", [outbound("bad", "{{.service}}.example"), outbound("bad", "shop.example", "{{.app}}", {"name": "app"})]
)
def test_what_no_host_or_port_can_be_names_nothing(bad: Document) -> None:
    assert set(named(world(bad, redirected(tag="old_client")))) == {"old.client.mesh:80"}


def test_of_two_the_one_with_the_more_specific_selector_has_the_port_and_then_the_newest() -> None:
    wide = outbound("wide", "shop.example")
    other = {"name": "app"}
    narrow = outbound("narrow", "shop.example", "80", other, match={"kuma.io/service": "client", "app": "*"})
    old, new = (
        outbound("a", "shop.example", created="2024-01-01T00:00:00Z"),
        outbound("b", "shop.example", "80", other, created="2025-01-01T00:00:00Z"),
    )

    assert named(world(wide, narrow, redirected()))["shop.example:80"] == "client app=client"
    assert named(world(old, new, redirected()))["shop.example:80"] == "client app=client"
    assert named(world(new, old, redirected()))["shop.example:80"] == "client app=client"


def test_a_name_that_a_tag_has_already_gets_ports_beside_that_of_the_tag() -> None:
    same = outbound("same", "{{.service}}.mesh", "8080"), outbound("usual", "{{.service}}.mesh", "80", {"name": "app"})

    assert named(world(*same, redirected())) == {"client.mesh:80": "client", "client.mesh:8080": "client"}


def test_a_name_that_a_tag_has_anyhow_is_not_reported() -> None:
    same, taken = outbound("same", "{{.service}}.mesh"), outbound("taken", "{{.service}}.mesh", "80", {"name": "app"})
    found = lint(policies(), world(same, taken, redirected()))

    assert [finding.resource for finding in found if finding.code == "name-taken"] == [taken.key]


def test_of_two_tags_with_one_name_the_first_has_its_ports() -> None:
    more = outbound("more", "a.b.mesh", "8080", match={"kuma.io/service": "a_b"})
    found = world(more, redirected(tag="a.b"), redirected("other", address="10.0.0.2", tag="a_b"))
    known = hosts(found, "default", outbounds(found, dataplane(found)))
    assert known is not None

    at = {address.port: address.address for address in outbounds(found, dataplane(found)) if address.port == 8080}
    assert at == {8080: dict(known.names)["a.b.mesh"]}


def test_who_reaches_some_services_alone_knows_their_names_alone() -> None:
    services = external("pay", "pay.example:443"), external("mail", "mail.example:25")
    found = named(world(*services, outbound("all", "{{.service}}.test"), redirected(reachableServices=["pay"])))

    assert set(found.values()) == {"pay"}


def test_names_change_for_nobody_when_nothing_does() -> None:
    first = world(outbound("all", "{{.service}}.test"), external("pay", "pay.example:443"), redirected())
    before = outbounds(first, dataplane(first))
    other = redirected("other", address="10.0.0.2")

    after = first.next({other.key: other}, 1)
    assert outbounds(after, dataplane(after)) is before
    more = redirected("third", address="10.0.0.3", tag="third")
    assert "third.test:80" in named(after.next({more.key: more}, 2))


def test_a_virtual_outbound_asks_those_that_it_can_select(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(selectors: Any, tag_sets: Any) -> Any:
        asked.append(selectors)
        return best_rank(selectors, tag_sets)

    monkeypatch.setattr(named_addresses, "best_rank", counted)
    many = range(50)
    proxies = [redirected(f"p{n}", tag=f"s{n}") for n in many]
    outside = [external(f"e{n}", f"e{n}.example:443") for n in many]
    narrow = [outbound(f"v{n}", "{{.service}}.test", match={"kuma.io/service": f"s{n}"}) for n in many]

    ports = named_addresses.named_ports(world(*proxies, *outside, *narrow), "default")

    assert {port.name for port in ports} >= {f"s{n}.test" for n in many}
    assert len(asked) == len(many)


@pytest.mark.parametrize("seed", range(30))
def test_a_virtual_outbound_names_all_that_its_selectors_fit(seed: int) -> None:
    chance = Random(seed)
    services = ("a", "b", "c")
    proxies = [redirected(f"p{n}", tag=chance.choice(services)) for n in range(4)]
    outside = [external(name, f"{name}.example:443") for name in ("c", "d")]
    drawn = [
        chance.choice([{"kuma.io/service": chance.choice([*services, "d", "*"])}, {"app": chance.choice(services)}])
        for _ in range(chance.randint(1, 3))
    ]
    drawing = outbound("drawn", "{{.service}}.test")
    by_any = Document(drawing.key, {**drawing.data, "selectors": [{"match": match} for match in drawn]})
    here = world(*proxies, *outside, by_any)
    resource = here.get(by_any.key)
    assert resource is not None

    inbounds = [each.data["networking"]["inbound"][0] for each in proxies]
    called = [each["tags"] for each in (*inbounds, *(service.data for service in outside))]
    expected = {tags["kuma.io/service"] for tags in called if any(fits(match, tags) for match in drawn)}

    assert {port.destination.service for port in named_addresses.wanted_by(resource, here)} == expected
