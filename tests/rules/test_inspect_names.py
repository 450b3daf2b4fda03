"""What a VirtualOutbound is shown to give to each proxy, and why it gives some of what it asks for to none."""

from __future__ import annotations

from typing import Any, Final

from cp.insight.inspect import affected_proxies, inspect_policies, inspect_rules
from cp.insight.inspect.affected import PolicyEffect
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from tests.view.meshes import dataplane, redirected, service, world
from tests.view.test_named_addresses import external, outbound

BY_APP: Final = {"name": "app"}


def effects(of: World, name: str = "names") -> dict[str, tuple[PolicyEffect, ...]]:
    """What a VirtualOutbound does, by the names of proxies."""
    policy = of.get(Key("VirtualOutbound", "default", name))
    assert policy is not None
    return {proxy.dataplane.name: proxy.effects for proxy in affected_proxies(of, policy)}


def reasons(of: World, name: str = "names") -> list[str]:
    """Why a VirtualOutbound does nothing at the client."""
    return [effect.idle_reason.removeprefix("has no effect: ") for effect in effects(of, name)["client"]]


def other(name: str, *, is_redirected: bool = False, **labels: str) -> Document:
    """A proxy without Envoy, or one to which nothing is redirected."""
    document = redirected(name, address="10.0.0.8", tag=name)
    networking = dict(document.data["networking"])
    if not is_redirected:
        del networking["transparentProxying"]
    return Document(document.key, {**document.data, "networking": networking, "labels": labels})


def test_each_proxy_with_redirected_traffic_has_the_names_with_the_tags_behind_them() -> None:
    names = outbound("names", "{{.app}}.{{.service}}.shop", "8080", BY_APP, match={"app": "*"})
    grpc = other("grpc", is_redirected=True, **{"koguma.io/client": "grpc"})
    told = effects(world(names, redirected(), redirected("web", address="10.0.0.2"), other("old"), grpc))

    assert told.keys() == {"client", "web"}
    assert told["client"] == told["web"]
    assert [(str(effect.scope).partition(" (")[0], effect.setting.value) for effect in told["client"]] == [
        ("at client.client.shop:8080", {"kuma.io/service": "client", "app": "client"}),
        ("at grpc.grpc.shop:8080", {"kuma.io/service": "grpc", "app": "grpc"}),
        ("at old.old.shop:8080", {"kuma.io/service": "old", "app": "old"}),
    ]
    assert not any(effect.idle_reason or effect.is_overridden for effect in told["client"])


def test_a_name_is_shown_with_its_address() -> None:
    (effect,) = effects(world(outbound("names", "shop.test"), redirected()))["client"]

    assert str(effect.scope).startswith("at shop.test:80 (240.")


def test_a_port_that_another_one_has_is_overridden() -> None:
    newer = outbound("newer", "shop.test", "80", BY_APP, created="2025-01-01T00:00:00Z")
    (effect,) = effects(world(outbound("names", "shop.test"), newer, redirected()))["client"]

    assert effect.overridden_by is not None
    assert effect.overridden_by.origin.policy == newer.key
    assert effect.overridden_by.value == {"kuma.io/service": "client", "app": "client"}


def test_an_external_service_comes_first() -> None:
    pay = external("pay", "shop.test:80")
    (of_client, of_pay) = effects(world(outbound("names", "shop.test"), pay, redirected()))["client"]

    assert of_client.overridden_by is not None
    assert of_pay.overridden_by is not None
    assert {of_client.overridden_by.origin.policy, of_pay.overridden_by.origin.policy} == {pay.key}


def test_of_two_destinations_of_its_own_the_first_has_the_name() -> None:
    told = effects(world(outbound("names", "shop.test"), redirected(), redirected("b", address="10.0.0.2", tag="b")))

    assert [effect.idle_reason for effect in told["client"]] == [
        "",
        "has no effect: it asks for this port for b, too, which comes first",
    ]


def test_the_name_and_port_of_a_tag_stay_with_the_tag() -> None:
    same, other = outbound("names", "{{.service}}.mesh"), outbound("other", "{{.service}}.mesh", "80", BY_APP)
    here = world(same, other, redirected())

    assert reasons(here) == ["it is so without it: kuma.io/service client has this name, and the port 80"]
    assert reasons(here, "other") == ["this is the port of kuma.io/service client, which has this name"]


def test_who_does_not_call_a_service_does_not_know_its_names() -> None:
    names = outbound("names", "{{.service}}.test", match={"kuma.io/service": "client"})
    listed = world(names, redirected(reachableServices=["web"]))
    exclusive = world(names, redirected(), mesh={"meshServices": {"mode": "Exclusive"}})

    assert reasons(listed) == [
        "`networking.transparentProxying.reachableServices` of the Dataplane does not list client"
    ]
    assert reasons(exclusive) == ["`meshServices.mode` of the Mesh is Exclusive: nothing is called by its tags"]


def test_a_hostname_of_a_service_stays_with_the_service() -> None:
    names = outbound("names", "web.svc.mesh.local", "8080")

    assert reasons(world(names, service("web", 80), redirected())) == ["the name leads to MeshService default/web"]


def test_a_proxy_has_its_names_among_its_policies_and_rules() -> None:
    here = world(outbound("names", "{{.service}}.mesh", "8080"), outbound("none", "{{.service}}.mesh"), redirected())
    client = dataplane(here)
    listed: list[dict[str, Any]] = inspect_policies(here, client)["policies"]
    (rule,) = inspect_rules(here, client)["legacyRules"]

    assert [(policy["name"], policy["inForce"]) for policy in listed] == [("names", True), ("none", False)]
    assert listed[1]["for"][0]["reason"].startswith("it is so without it")
    assert (rule["type"], rule["conf"]) == ("VirtualOutbound", {"conf": {"kuma.io/service": "client"}})
    assert rule["where"].startswith("at client.mesh:8080")
    assert "legacyRules" not in inspect_rules(world(other("client")), dataplane(world(other("client"))))
