"""A proxy receives the keys of a MeshGateway as soon as a selector matches it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.access.receivers import adds_receivers, has_keys, new_sender, new_senders
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.rules.matching.profile import gateways_alike

KINDS: Final = kinds(discover())
ZONED: Final = {"kuma.io/origin": "zone", "kuma.io/zone": "east"}


def gateway(*selectors: dict[str, str], labels: dict[str, str] | None = None, **tls: Any) -> Document:
    certificates = [tls or {"secret": "key"}]
    listener = {"port": 443, "protocol": "HTTPS", "tls": {"mode": "TERMINATE", "certificates": certificates}}
    data = {
        "type": "MeshGateway",
        "mesh": "default",
        "name": "edge",
        "labels": labels or {},
        "selectors": [{"match": {"kuma.io/service": "edge", **selector}} for selector in selectors],
        "conf": {"listeners": [listener]},
    }
    return Document(Key("MeshGateway", "default", "edge"), data)


def proxy(tags: dict[str, str], labels: dict[str, str] | None = None, kind: str = "BUILTIN") -> Document:
    net = {"address": "192.0.2.1", "gateway": {"type": kind, "tags": {"kuma.io/service": "edge", **tags}}}
    data = {"type": "Dataplane", "mesh": "default", "name": "p", "labels": labels or {}, "networking": net}
    return Document(Key("Dataplane", "default", "p"), data)


@pytest.mark.parametrize("tls", [{"secret": "key"}, {"inlineString": "key"}, {"inline": "a2V5"}])
def test_keys_are_named_or_inline(tls: dict[str, Any]) -> None:
    assert has_keys(gateway({}, **tls))
    assert adds_receivers(gateway({"a": "1"}, **tls), gateway({}, **tls))


def test_a_gateway_with_files_alone_has_no_keys_to_send() -> None:
    assert not has_keys(gateway({}, file="/etc/key.pem"))
    assert not adds_receivers(gateway({"a": "1"}, file="/x"), gateway({}, file="/x"))


@pytest.mark.parametrize(
    ("before", "after", "adds"),
    [
        (gateway({"a": "1"}), gateway({"a": "1"}), False),
        (gateway({"a": "1"}), gateway({"a": "1", "b": "2"}), False),
        (gateway({"a": "*"}), gateway({"a": "1"}), False),
        (gateway({"a": "1"}, {"b": "1"}), gateway({"b": "1"}), False),
        (gateway({"a": "1"}), gateway({}), True),
        (gateway({"a": "1"}), gateway({"a": "2"}), True),
        (gateway({"a": "1"}), gateway({"a": "*"}), True),
        (gateway({"a": "1"}), gateway({"a": "1"}, {"b": "1"}), True),
        (gateway({"a": "1"}, labels=ZONED), gateway({"a": "1"}), True),
        (gateway({"a": "1"}), gateway({"a": "1"}, labels=ZONED), False),
        (gateway({"a": "1"}, file="/x"), gateway({}), False),  # its writer names the Secret
        (None, gateway({}), False),
        (gateway({}), None, False),
    ],
)
def test_selectors_add_receivers_where_none_before_was_as_wide(
    before: Document | None, after: Document | None, *, adds: bool
) -> None:
    assert adds_receivers(before, after) is adds


def test_too_many_selectors_to_compare_count_as_wider() -> None:
    many = [{"a": str(number)} for number in range(400)]

    assert adds_receivers(gateway(*many, {"b": "*"}), gateway(*({**each, "b": "1"} for each in many)))


@pytest.mark.parametrize(
    ("before", "after", "senders"),
    [
        (None, proxy({"a": "1"}), 1),
        (proxy({"a": "1"}), proxy({"a": "1", "b": "2"}), 0),
        (proxy({"a": "2"}), proxy({"a": "1"}), 1),
        (proxy({"a": "1"}, kind="DELEGATED"), proxy({"a": "1"}), 1),
        (None, proxy({"a": "1"}, kind="DELEGATED"), 0),
        (None, proxy({"a": "2"}), 0),
    ],
)
def test_a_dataplane_has_new_senders_where_its_tags_begin_to_match(
    before: Document | None, after: Document, senders: int
) -> None:
    assert len(list(new_senders([gateway({"a": "1"})], before, after))) == senders


def test_a_changed_zone_brings_a_gateway_of_that_zone_near() -> None:
    gateways = [gateway({}, labels=ZONED)]
    east, west = ({"kuma.io/zone": zone} for zone in ("east", "west"))

    assert list(new_senders(gateways, proxy({}, west), proxy({}, east)))
    assert not list(new_senders(gateways, proxy({}, east), proxy({}, east)))
    assert not list(new_senders(gateways, None, proxy({}, west)))


TAGS: Final = st.dictionaries(st.sampled_from(["a", "b", "kuma.io/zone"]), st.sampled_from(["1", "2"]), max_size=2)
LABELS: Final = st.sampled_from([{}, ZONED, {"kuma.io/zone": "west"}, {"kuma.io/zone": "east"}])
SELECTORS: Final = st.dictionaries(st.sampled_from(["a", "b", "kuma.io/zone"]), st.sampled_from(["1", "2", "*"]))


@given(TAGS, LABELS, st.lists(SELECTORS, min_size=1, max_size=3), LABELS)
def test_whoever_a_gateway_configures_counts_as_a_receiver(
    tags: dict[str, str], labels: dict[str, str], selectors: list[dict[str, str]], gateway_labels: dict[str, str]
) -> None:
    sender, receiver = gateway(*selectors, labels=gateway_labels), proxy(tags, labels)
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    world = World.of([mesh, sender, receiver], KINDS)
    dataplane = world.get(receiver.key)
    assert dataplane is not None

    assert bool(list(new_senders([sender], None, receiver))) == bool(gateways_alike(world, dataplane))
    assert new_sender(world, dataplane) == ""
