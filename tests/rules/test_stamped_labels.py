"""The labels and the tag that Kuma's control plane writes on what it stores choose here what they choose there."""

from __future__ import annotations

from typing import Any

import pytest

from cp.model.names import Key
from cp.resources.world import World
from cp.rules.matching.order import precedence
from cp.translate.view.dataplanes import ports
from tests.rules.texts import MESH, WHOLE_MESH, proxy, service, text, timeout
from tests.rules.worlds import rules_of, world_of

STAMPED = {
    "kuma.io/mesh": "default",
    "kuma.io/env": "universal",
    "kuma.io/origin": "zone",
    "kuma.io/zone": "default",
    "kuma.io/display-name": "backend",
}
WEB = proxy(inbounds=[{"port": 80, "tags": {"kuma.io/service": "web"}}])


def world(*documents: dict[str, Any]) -> World:
    return world_of(text(MESH, WEB, service("backend"), *documents))


def of_timeout(top: dict[str, Any], to: dict[str, Any]) -> World:
    return world(timeout("t", to, 3, top=top))


def rules(found: World) -> list[Any]:
    return list(rules_of(found, "MeshTimeout").to.all)


@pytest.mark.parametrize("label", [label for label in STAMPED if label != "kuma.io/display-name"])
def test_a_dataplane_is_chosen_by_a_label_that_kuma_writes(label: str) -> None:
    assert rules(of_timeout({"kind": "Dataplane", "labels": {label: STAMPED[label]}}, WHOLE_MESH))
    assert not rules(of_timeout({"kind": "Dataplane", "labels": {label: "other"}}, WHOLE_MESH))


@pytest.mark.parametrize("label", STAMPED)
def test_a_service_is_chosen_by_a_label_that_kuma_writes(label: str) -> None:
    chosen = rules(of_timeout(WHOLE_MESH, {"kind": "MeshService", "labels": {label: STAMPED[label]}}))

    assert [rule.identity.name for rule in chosen] == ["backend"]
    assert not rules(of_timeout(WHOLE_MESH, {"kind": "MeshService", "labels": {label: "other"}}))


def test_a_proxy_is_chosen_by_the_tag_that_kuma_writes() -> None:
    assert rules(of_timeout({"kind": "MeshSubset", "tags": {"kuma.io/zone": "default"}}, WHOLE_MESH))
    assert not rules(of_timeout({"kind": "MeshSubset", "tags": {"kuma.io/zone": "east"}}, WHOLE_MESH))


def test_endpoints_are_chosen_by_the_tag_that_kuma_writes() -> None:
    known = world().table("Dataplane", "default").derived(ports)

    assert len(known.tagged({"kuma.io/service": "web", "kuma.io/zone": "default"})) == 1
    assert not known.tagged({"kuma.io/service": "web", "kuma.io/zone": "east"})


@pytest.mark.parametrize("place", ["label", "tag"])
def test_what_was_written_counts_and_not_what_kuma_would_write(place: str) -> None:
    inbound = {"port": 80, "tags": {"kuma.io/service": "api"} | ({"kuma.io/zone": "east"} if place == "tag" else {})}
    labels = {"kuma.io/zone": "east"} if place == "label" else {}
    api = proxy("api", inbounds=[inbound], labels=labels)
    table = world(api).table("Dataplane", "default")

    assert [chosen.name for chosen in table.labelled({"kuma.io/zone": "east"})] == ["api"]
    assert len(table.derived(ports).tagged({"kuma.io/zone": "east"})) == 1


def test_they_change_neither_what_a_resource_is_called_nor_the_order_of_policies() -> None:
    found = world(timeout("t", WHOLE_MESH, 3), timeout("z", WHOLE_MESH, 3, labels={"kuma.io/origin": "zone"}))
    unlabelled, labelled = (found.get(Key("MeshTimeout", "default", name)) for name in ("t", "z"))

    assert unlabelled is not None
    assert labelled is not None
    assert (unlabelled.identity.zone, unlabelled.labels) == ("", {})
    assert precedence(labelled) < precedence(unlabelled)
