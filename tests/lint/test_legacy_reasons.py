"""Who takes the place of a legacy policy is told of each proxy, though proxies share what they are served."""

from __future__ import annotations

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from tests.rules.test_legacy import ANY, Tags, between, document, inbound
from tests.snapshots import policies

A: Tags = {"kuma.io/service": "a"}
B: Tags = {"kuma.io/service": "b"}


def proxy(service: str) -> Document:
    return document("Dataplane", service, {"networking": {"address": "10.0.0.1", "inbound": [inbound(80, service)]}})


def message(about: Document, *others: Document) -> str:
    """What is told of a policy, in a mesh with mTLS of two proxies that call nobody."""
    mtls = {"enabledBackend": "own", "backends": [{"name": "own", "type": "builtin"}]}
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default", "mtls": mtls})
    world = World.of([mesh, proxy("a"), proxy("b"), about, *others], kinds(policies()))
    (finding,) = (each for each in lint(policies(), world) if each.resource == about.key)
    return finding.message


def test_a_more_specific_policy_is_named_for_each_proxy() -> None:
    to_all, to_a, to_b = (
        between("TrafficPermission", name, [ANY], [to]) for name, to in (("all", ANY), ("a", A), ("b", B))
    )
    reasons = (f"at port 80: TrafficPermission {name} is more specific" for name in ("a", "b"))

    assert message(to_all, to_a, to_b) == f"holds nowhere: {'; '.join(reasons)}"


def test_a_policy_with_a_target_ref_is_named_that_selects_one_of_the_proxies() -> None:
    conf = {"http": {"requests": 1, "interval": "1s"}}
    local = {"http": {"requestRate": {"num": 1, "interval": "1s"}}}
    target = {"kind": "Dataplane", "labels": {"kuma.io/service": "b"}}
    newer = {"spec": {"targetRef": target, "rules": [{"default": {"local": local}}]}}
    of_b = document("MeshRateLimit", "newer", newer)
    labelled = document("Dataplane", "b", {**proxy("b").data, "labels": {"kuma.io/service": "b"}})

    assert "at port 80: MeshRateLimit newer says what holds" in message(
        between("RateLimit", "old", [ANY], [B], conf=conf), labelled, of_b
    )
