"""A builtin gateway can have thousands of listeners, and as many policies that select some of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.gateway import carries
from cp.resources.world import World
from cp.rules.build import build
from cp.rules.matching import match
from cp.rules.matching.profile import ListenersByTags, listener_tags, listeners, profile
from tests.growth import MOST, growth

TAGS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
SELECTOR = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy*"), max_size=2)


MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


def document(type_: str, name: str, **fields: object) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


def gateway(of_gateway: dict[str, str], of_listeners: list[dict[str, str]]) -> Document:
    written = [{"port": 8000 + index, "protocol": "HTTP", "tags": tags} for index, tags in enumerate(of_listeners)]
    return document(
        "MeshGateway",
        "edge",
        selectors=[{"match": {"kuma.io/service": "edge"}}],
        tags=of_gateway,
        conf={"listeners": written},
    )


def proxy(tags: dict[str, str]) -> Document:
    networking = {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge", **tags}}}
    return document("Dataplane", "edge-1", networking=networking)


@given(TAGS, TAGS, st.lists(TAGS, min_size=1, max_size=4), SELECTOR)
def test_listeners_are_found_by_the_tags_that_they_carry(
    of_proxy: dict[str, str], of_gateway: dict[str, str], of_listeners: list[dict[str, str]], selector: dict[str, str]
) -> None:
    world = World.of([MESH, gateway(of_gateway, of_listeners), proxy(of_proxy)], kinds(discover()))
    (resource,), (dataplane,) = world.table("MeshGateway", "default"), world.table("Dataplane", "default")
    whole = profile(dataplane)
    each = [listener_tags(whole, resource, listener) for listener in listeners(resource)]

    chosen = ListenersByTags(resource).carrying(selector, whole.gateway_tags)

    assert chosen == tuple(index for index, tags in enumerate(each) if carries(tags, selector))


def with_a_policy_for_each_listener(size: int) -> World:
    names = [{"vhost": f"h{number}"} for number in range(size)]
    item = {"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "1s"}}}
    timeouts = (
        document("MeshTimeout", tags["vhost"], spec={"targetRef": target(tags), "to": [item]}) for tags in names
    )
    return World.of([MESH, gateway({}, names), proxy({}), *timeouts], kinds(discover()))


def target(tags: dict[str, str]) -> dict[str, object]:
    return {"kind": "MeshGateway", "name": "edge", "tags": tags}


def policies_of_each_listener(world: World) -> list[int]:
    (dataplane,) = world.table("Dataplane", "default")
    rules = build(world, match(world, dataplane)["MeshTimeout"], world.kinds["MeshTimeout"])
    return [len(rules.at_listeners([index]).matched) for index in range(len(rules.matched))]


def test_each_listener_has_the_policies_that_select_it() -> None:
    assert policies_of_each_listener(with_a_policy_for_each_listener(20)) == [1] * 20


def test_policies_of_listeners_are_found_in_proportion_to_their_number() -> None:
    assert growth(with_a_policy_for_each_listener, policies_of_each_listener, 300) < MOST
