"""Resources that only draining listeners use: kept from the ACK of an edit for the drain time, and no longer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from hypothesis import given
from hypothesis import strategies as st

from cp.ads import draining
from cp.ads.draining import KEPT_TYPES, DrainingResources
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, TYPES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads.content import cluster, endpoints, listener, routes, secret, snapshot

HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
DRAIN_TIME = 8.0
NOW = 1_000_000_000.0


class Proxy:
    """What one proxy should have, edit by edit."""

    def __init__(self, name: str = "default.web", keeper: DrainingResources | None = None) -> None:
        self.now = 1000.0
        self.name = name
        self.keeper = keeper or DrainingResources(lambda: self.now)
        self.snapshot = Snapshot()

    def edit(self, *parts: SnapshotPart) -> Snapshot:
        self.snapshot = self.keeper.keep(self.name, self.snapshot, Snapshot(*parts))
        return self.snapshot

    def ack(self) -> None:
        self.keeper.start(self.name, DRAIN_TIME)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for proxy, kept in self.keeper.expired():
            assert proxy == self.name
            self.snapshot = self.keeper.with_draining(self.snapshot, kept)

    def names(self, type_url: str = CLUSTER) -> list[str]:
        return sorted(self.snapshot.names(type_url))


def part(*resources: PackedResource) -> SnapshotPart:
    return SnapshotPart(resources)


def web(name: str) -> Iterator[PackedResource]:
    yield from (cluster(name), endpoints(name), listener(f"out-{name}"), routes(f"to-{name}", name), secret(name))


def test_lost_resources_stay_without_listeners_and_secrets() -> None:
    proxy = Proxy()
    proxy.edit(part(*web("old")))

    proxy.edit(part(*web("new")))

    assert {url: len(proxy.names(url)) for url in TYPES if proxy.names(url)} == {
        CLUSTER: 2,
        ENDPOINTS: 2,
        ROUTES: 2,
        LISTENER: 1,
        SECRET: 1,
    }


def test_drain_time_begins_with_the_ack() -> None:
    proxy = Proxy()
    proxy.edit(part(cluster("old")))
    proxy.edit(part(cluster("new")))
    assert proxy.keeper.next_expiry() is None
    assert [resource.until for resource in proxy.keeper.of(proxy.name, NOW)] == [None]
    proxy.pass_time(1000)
    assert proxy.names() == ["new", "old"]

    proxy.ack()
    proxy.pass_time(DRAIN_TIME)
    assert proxy.names() == ["new", "old"]

    proxy.pass_time(DRAIN_TIME)
    assert proxy.names() == ["new"]
    assert (proxy.keeper.next_expiry(), list(proxy.keeper.of(proxy.name, NOW))) == (None, [])


def test_returning_resource_replaces_the_kept_one() -> None:
    proxy = Proxy()
    proxy.edit(part(cluster("a")))
    proxy.edit(part())
    proxy.ack()

    proxy.edit(part(cluster("a", 2)))
    assert list(proxy.snapshot.of(CLUSTER)) == [cluster("a", 2)]

    proxy.edit(part())
    assert list(proxy.snapshot.of(CLUSTER)) == [cluster("a", 2)]
    proxy.pass_time(2 * DRAIN_TIME)
    assert proxy.names() == ["a"], "the second removal was not ACKed"


def test_resource_that_moves_to_another_part_is_not_lost() -> None:
    proxy = Proxy()
    proxy.edit(part(cluster("a")), part(cluster("b")))

    assert proxy.edit(part(cluster("b")), part(cluster("a"))).draining == ()


def test_proxies_of_a_class_share_what_they_lose() -> None:
    keeper = DrainingResources(lambda: 1000.0)
    proxies = [Proxy(name, keeper) for name in ("a", "b")]
    first, second, third = part(cluster("x")), part(cluster("y")), part(cluster("z"))
    for shared in (first, second, third):
        for proxy in proxies:
            proxy.edit(shared, part(cluster(f"of-{proxy.name}")))

    (kept,), (kept_of_other,) = (proxy.snapshot.draining for proxy in proxies)
    assert sorted(kept.names(CLUSTER)) == sorted(kept_of_other.names(CLUSTER)) == ["x", "y"]
    assert kept is kept_of_other


def test_number_of_parts_does_not_grow_with_edits() -> None:
    proxy = Proxy()
    for number in range(200):
        proxy.edit(part(cluster(f"c{number}")))
        proxy.ack()
        proxy.pass_time(0.1)

    assert len(proxy.snapshot.draining) <= 6
    assert len(proxy.names()) > DRAIN_TIME / 0.1


def test_oldest_resources_are_dropped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "MOST_RESOURCES", 6)
    proxy = Proxy()
    for number in range(30):
        proxy.edit(part(cluster(f"c{number:02}")))
        proxy.ack()
        proxy.pass_time(1.0)

    assert 1 < len(proxy.names()) <= 7
    assert proxy.names()[-2:] == ["c28", "c29"]
    assert proxy.keeper.dropped > 0


def test_one_edit_is_never_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "MOST_RESOURCES", 10)
    monkeypatch.setattr(draining, "MOST_BYTES", 10)
    many = [cluster(f"c{number}") for number in range(50)]
    proxy = Proxy()
    proxy.edit(part(cluster("first")))
    proxy.edit(part(*many))
    proxy.edit(part())

    assert len(proxy.names()) == len(many)


HTTP2 = HttpProtocolOptions()
HTTP2.explicit_http_config.http2_protocol_options.SetInParent()
NEGOTIATED = HttpProtocolOptions()
NEGOTIATED.auto_config.SetInParent()


def real_cluster(name: str, options: HttpProtocolOptions | None = None, timeout: int = 5) -> PackedResource:
    message = Cluster(name=name)
    message.connect_timeout.seconds = timeout
    if options is not None:
        message.typed_extension_protocol_options[HTTP].Pack(options)
    return PackedResource.of(CLUSTER, name, message.SerializeToString(deterministic=True))


def test_cluster_keeps_http_options_while_listeners_drain() -> None:
    proxy = Proxy()
    proxy.edit(part(real_cluster("a", HTTP2)))
    for timeout in (6, 7):
        proxy.edit(part(real_cluster("a", timeout=timeout)))
        (sent,) = (Cluster.FromString(packed.body) for packed in proxy.snapshot.of(CLUSTER))
        assert sent.connect_timeout.seconds == timeout
        assert sent.typed_extension_protocol_options[HTTP].value == HTTP2.SerializeToString()
        proxy.ack()
    assert {resource.name for resource in proxy.keeper.of(proxy.name, NOW)} == {"a"}

    proxy.pass_time(2 * DRAIN_TIME)
    assert list(proxy.snapshot.of(CLUSTER)) == [real_cluster("a", timeout=7)]


def test_options_that_need_tls_are_not_kept() -> None:
    proxy = Proxy()
    proxy.edit(part(real_cluster("a", NEGOTIATED)))

    proxy.edit(part(real_cluster("a")))

    assert list(proxy.snapshot.of(CLUSTER)) == [real_cluster("a")]


def test_nacked_resources_are_not_kept() -> None:
    proxy, nacked = Proxy(), frozenset({(CLUSTER, "bad"), (CLUSTER, "a")})
    proxy.edit(part(cluster("bad"), cluster("good"), real_cluster("a", HTTP2)))
    after = Snapshot(part(real_cluster("a")))

    kept = proxy.keeper.keep(proxy.name, proxy.snapshot, after, lambda: nacked)
    assert sorted(packed.name for packed in kept.of(CLUSTER)) == ["a", "good"]
    assert real_cluster("a") in kept.of(CLUSTER)
    assert proxy.keeper.drop(proxy.name, nacked) is None
    assert proxy.keeper.drop(proxy.name, frozenset({(CLUSTER, "good")})) == ()


def test_kept_parts_are_freed() -> None:
    proxy = Proxy()
    old = part(*web("old"))
    proxy.edit(old)
    proxy.edit(part(*web("new")))
    (kept,) = map(weakref.ref, proxy.snapshot.draining)
    gone = weakref.ref(old)
    del old

    proxy.ack()
    proxy.pass_time(2 * DRAIN_TIME)
    gc.collect()

    assert (kept(), gone()) == (None, None)


names = st.sampled_from("abcd")
made = st.dictionaries(st.tuples(st.sampled_from((cluster, endpoints, routes)), names), st.integers(0, 2))
edits = st.lists(st.tuples(made, st.sets(names), st.booleans(), st.sampled_from((0.0, 3.0, 20.0))), max_size=8)


@given(edits)
def test_a_proxy_keeps_each_resource_for_the_drain_time(
    steps: list[tuple[dict[Any, int], set[str], bool, float]],
) -> None:
    proxy, due = Proxy(), dict[tuple[str, str], tuple[PackedResource, float | None]]()
    for resources, cut, acks, seconds in steps:
        before = {(p.type_url, p.name): p for url in KEPT_TYPES for p in _active(proxy.snapshot, url)}
        packed = [make(name, revision=revision) for (make, name), revision in resources.items()]
        proxy.edit(part(*(p for p in packed if p.name in cut)), part(*(p for p in packed if p.name not in cut)))
        active = {(p.type_url, p.name): p for p in packed}
        due = {key: kept for key, kept in due.items() if key not in active}
        due |= {key: (p, None) for key, p in before.items() if key not in active}
        if acks:
            proxy.ack()
            due = {key: (p, until or proxy.now + DRAIN_TIME) for key, (p, until) in due.items()}
        proxy.pass_time(seconds)

        has = {(p.type_url, p.name): p for url in KEPT_TYPES for p in proxy.snapshot.of(url)}
        assert sum(map(proxy.snapshot.count, KEPT_TYPES)) == len(has), "no name is there twice"
        assert active.items() <= has.items()
        must = {key: p for key, (p, until) in due.items() if until is None or until > proxy.now}
        may = {key: p for key, (p, until) in due.items() if until is None or until + DRAIN_TIME / 2 > proxy.now}
        assert must.items() <= has.items() - active.items() <= may.items() | must.items()
        due = {key: kept for key, kept in due.items() if key in has}


def _active(of: Snapshot, type_url: str) -> Iterable[PackedResource]:
    return (packed for part in of.active_parts for packed in part.of(type_url).values())


def test_snapshot_without_losses_stays_the_same_object() -> None:
    keeper, before = DrainingResources(lambda: 0.0), snapshot(cluster("a"))
    after = snapshot(cluster("a"), cluster("b"))

    assert keeper.keep("default.web", before, after) is after
