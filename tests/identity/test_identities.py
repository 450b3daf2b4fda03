"""Certificates of connected proxies: issued by the reconciler, renewed in time, and shown to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from cp.ads.connection import Connection
from cp.ads.hub import Hub
from cp.ads.session.messages import Node
from cp.identity.identities import MOST_CHARACTERS, MOST_NAMES, names_by_tags
from cp.identity.trust import TrustRecord, record_document
from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import trust_key
from cp.policies import discover, kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.identities import JITTER, RENEWED_AFTER, RETRIED_AFTER, Identities
from cp.serving.observe import Observer
from cp.serving.reconcile import Pace, Reconciler
from cp.store.memory import MemoryStore
from cp.store.port import Delete, Put
from cp.translate.compiler import CompiledProxy
from cp.translate.packing import SECRET
from generators.envoy.names import mesh_identity
from generators.envoy.permissions import uri_conditions
from tests.identity.meshes import CA as IS_AUTHORITY
from tests.identity.meshes import (
    NOW,
    PLAIN,
    dataplane,
    mesh,
    new_authority,
    pair_of,
    provided,
    proxy,
    trusting,
    world,
)
from tests.support.waiting import eventually_on_loop

DAY = 86_400.0
PAIR, CA = new_authority()
NAME = mesh_identity("default")
WEB = dataplane({"kuma.io/service": "web"})
API = dataplane({"kuma.io/service": "api"}, name="api-1")


@dataclass
class Rig:
    """A reconciler that issues certificates, on a clock of ours."""

    store: MemoryStore
    hub: Hub
    reconciler: Reconciler
    identities: Identities
    clock: list[float]
    woken: dict[str, int] = field(default_factory=dict)

    async def write(self, *documents: Document) -> None:
        await self.store.write(*map(Put, documents))
        await self.reconciler.current()

    def secret(self, name: str) -> Secret | None:
        snapshot = self.hub.observer.newest(f"default.{name}")
        packed = None if snapshot is None else snapshot.get(SECRET, NAME)
        return None if packed is None else Secret.FromString(packed.body)

    async def certificate(self, name: str, *, but: Secret | None = None) -> Secret:
        """What a proxy is served, once it is not the one that it had."""
        await eventually_on_loop(lambda: self.secret(name) is not None and self.secret(name) != but)
        found = self.secret(name)
        assert found is not None
        return found

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[None]:
        node = f"default.{name}"
        self.woken.setdefault(node, 0)

        def wake() -> None:
            self.woken[node] += 1

        with self.hub.streams.connected(Connection(Node(node), "sotw", _SESSION, wake)):
            yield


_SESSION: Any = SimpleNamespace(statuses=(), tallies=(), is_at=lambda _: True, is_settled=lambda *_: True)


def run(test: Callable[[Rig], Awaitable[None]], *documents: Document, chance: float = 0.0) -> None:
    async def whole() -> None:
        store, metrics, clock = MemoryStore(), Metrics(), [NOW]
        await store.write(*map(Put, documents))
        hub = Hub(metrics=metrics)
        identities = Identities(metrics, lambda: clock[0], lambda: chance)
        reconciler = Reconciler(store, hub, discover(), Pace(), identities=identities, checks_itself=True)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reconciler.run())
            with suppress(asyncio.CancelledError):
                await eventually_on_loop(lambda: reconciler.is_ready)
                await test(Rig(store, hub, reconciler, identities, clock))
            task.cancel()

    asyncio.run(whole())


def leaf(secret: Secret) -> x509.Certificate:
    return x509.load_pem_x509_certificate(secret.tls_certificate.certificate_chain.inline_string.encode())


def uris(secret: Secret) -> list[str]:
    names = leaf(secret).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


MESH = (provided(PAIR), trusting(CA), WEB, API)


def test_each_connected_proxy_gets_a_certificate_of_its_own() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"), rig.connected("api-1"):
            web, api = await rig.certificate("web-1"), await rig.certificate("api-1")

            assert uris(web)[0] == "spiffe://default/web"
            assert uris(api)[0] == "spiffe://default/api"
            assert web.tls_certificate.private_key != api.tls_certificate.private_key
            leaf(web).verify_directly_issued_by(CA.certificate)

    run(test, *MESH)


def test_beside_a_root_that_envoy_takes_for_it_an_authority_is_known_by_its_number() -> None:
    def number(others: str) -> int | None:
        numbers: list[int | None] = []

        async def test(rig: Rig) -> None:
            async with rig.connected("web-1"):
                issuer = leaf(await rig.certificate("web-1")).extensions.get_extension_for_class(
                    x509.AuthorityKeyIdentifier
                )
                numbers.append(issuer.value.authority_cert_serial_number)

        trust = {"trustDomain": "default", "caBundles": [{"type": "Pem", "pem": {"value": others}}]}
        key = Key("MeshTrust", "default", "others")
        document = Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "spec": trust})
        run(test, *MESH, document)
        return numbers[0]

    nameless = pair_of(ec.generate_private_key(ec.SECP256R1()), IS_AUTHORITY, subject=CA.certificate.subject)
    assert number(nameless.certificate.decode()) == CA.certificate.serial_number
    assert number(new_authority()[1].certificates) is None


def test_what_is_shown_of_a_configuration_has_no_key() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            await rig.certificate("web-1")

            snapshot = await rig.reconciler.snapshot(proxy(rig.reconciler.world), is_certified_client=False)
            assert snapshot.get(SECRET, NAME) is None
            assert len(snapshot) > 0

    run(test, *MESH)


def test_a_key_is_in_no_repr_and_in_no_line_of_the_log() -> None:
    async def test(rig: Rig) -> None:
        with structlog.testing.capture_logs() as logs:
            async with rig.connected("web-1"):
                served = await rig.certificate("web-1")
                await rig.write(Document(WEB.key, {**WEB.data, "labels": {"a": "b"}}))
                newest = rig.hub.observer.newest("default.web-1")
                assert newest is not None
                packed = newest.get(SECRET, NAME)
                facts = (rig.identities.certificate("default.web-1"), rig.identities._held, rig.identities._signers)
                text = repr((logs, packed, newest.parts, newest, facts, vars(rig.identities._signers)))

        keys = (served.tls_certificate.private_key.inline_bytes, PAIR.key)
        assert not [line for key in keys for line in key.decode().splitlines()[1:-1] if line in text]

    run(test, *MESH)


def test_an_edit_renews_no_certificate() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            before = await rig.certificate("web-1")
            await rig.write(Document(API.key, {**API.data, "labels": {"a": "b"}}))

            assert rig.secret("web-1") == before

    run(test, *MESH)


def test_a_renewal_is_for_one_proxy_alone_and_changes_nothing_but_its_certificate() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"), rig.connected("api-1"):
            await rig.certificate("api-1")
            rig.clock[0] += DAY / 2
            await rig.write(Document(WEB.key, {**WEB.data, "networking": _served("shop")}))
            web, api = await rig.certificate("web-1"), await rig.certificate("api-1")
            before, woken = rig.hub.observer.newest("default.api-1"), dict(rig.woken)
            assert before is not None

            rig.clock[0] = NOW + DAY * RENEWED_AFTER  # of the one that was issued first
            renewed = await rig.certificate("api-1", but=api)

            after = rig.hub.observer.newest("default.api-1")
            assert after is not None
            assert after.touched(before) == {SECRET}
            assert leaf(renewed).not_valid_after_utc.timestamp() == rig.clock[0] + DAY
            assert rig.woken == woken | {"default.api-1": woken["default.api-1"] + 1}
            assert rig.secret("web-1") == web

    run(test, *MESH)


def _served(service: str) -> dict[str, Any]:
    networking: dict[str, Any] = dataplane({"kuma.io/service": service}).data["networking"]
    return networking


def test_chance_decides_by_how_much_earlier_a_certificate_is_renewed() -> None:
    def renewal(chance: float) -> float:
        of = world(*MESH)
        identities = Identities(Metrics(), lambda: NOW, lambda: chance)
        identities.part(of, proxy(of))
        certificate = identities.certificate("default.web-1")
        assert certificate is not None
        assert certificate.renewal is not None
        return certificate.renewal - NOW

    assert renewal(0.0) == DAY * RENEWED_AFTER
    assert renewal(1.0) == pytest.approx(DAY * (RENEWED_AFTER - JITTER))


def test_a_proxy_whose_tags_change_gets_another_certificate() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"), rig.connected("api-1"):
            web, api = await rig.certificate("web-1"), await rig.certificate("api-1")
            await rig.write(Document(WEB.key, {**WEB.data, "networking": _served("shop")}))

            assert uris(await rig.certificate("web-1", but=web))[0] == "spiffe://default/shop"
            assert rig.secret("api-1") == api

    run(test, *MESH)


def test_another_signer_issues_all_certificates_anew() -> None:
    other_pair, other = new_authority()

    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            before = await rig.certificate("web-1")
            await rig.write(provided(other_pair))
            assert rig.secret("web-1") == before  # the record says that the old one signs

            await rig.write(trusting(other))
            leaf(await rig.certificate("web-1", but=before)).verify_directly_issued_by(other.certificate)

    run(test, *MESH)


def test_an_authority_whose_key_is_replaced_signs_until_the_new_one_does() -> None:
    other_pair, _ = new_authority()

    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            await rig.certificate("web-1")
            await rig.write(provided(other_pair))
            async with rig.connected("api-1"):
                leaf(await rig.certificate("api-1")).verify_directly_issued_by(CA.certificate)

    run(test, *MESH)


def test_nothing_is_issued_before_an_authority_signs() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            await eventually_on_loop(lambda: rig.hub.observer.newest("default.web-1") is not None)
            assert rig.secret("web-1") is None
            assert not rig.identities.faults

            await rig.write(trusting(CA))
            await rig.certificate("web-1")

    run(test, provided(PAIR), WEB)


def test_what_a_proxy_has_stays_while_nobody_can_sign_and_that_is_tried_again() -> None:
    _, other = new_authority()

    async def test(rig: Rig) -> None:
        with structlog.testing.capture_logs() as logs:
            async with rig.connected("web-1"):
                before = await rig.certificate("web-1")
                await rig.write(trusting(other))  # of which there is no key
                await eventually_on_loop(lambda: bool(rig.identities.faults))
                certificate = rig.reconciler.certificate("default.web-1")

                assert rig.secret("web-1") == before
                assert certificate is not None
                assert "is not there any more" in certificate.fault
                assert rig.hub.metrics.certificate_failures._value.get() >= 1
                assert [line["event"] for line in logs].count("certificate.failed") == 1

                await rig.write(trusting(CA))
                await eventually_on_loop(lambda: not rig.identities.faults)
                assert rig.secret("web-1") == before

    run(test, *MESH)


def test_a_failure_is_tried_again_after_some_seconds_also_if_nothing_changes() -> None:
    _, other = new_authority()
    of, clock, stopwatch = world(provided(PAIR), trusting(other), WEB), [NOW], [0.0]
    identities = Identities(Metrics(), lambda: clock[0], lambda: 0.0, lambda: stopwatch[0])
    identities.part(of, proxy(of))

    assert identities.due() == frozenset()
    clock[0] += 2 * RETRIED_AFTER
    assert identities.due() == frozenset(), "the clock was set"
    clock[0] -= 4 * RETRIED_AFTER
    stopwatch[0] += RETRIED_AFTER
    assert identities.due() == {"default.web-1"}
    identities.part(of, proxy(of))
    assert identities.due() == frozenset()


def test_a_name_that_no_certificate_can_have_is_a_fault_of_one_proxy() -> None:
    strange = dataplane({"kuma.io/service": "web"}, name="web-1")
    of = world(provided(PAIR), trusting(CA), strange, API)
    resource = proxy(of)
    resource.spec.net.inbound[0].tags["kuma.io/zone"] = "zürich"  # no document can say so
    identities = Identities(Metrics(), lambda: NOW, lambda: 0.0)

    assert len(identities.part(of, resource)) == 0
    assert len(identities.part(of, proxy(of, "api-1"))) == 1
    assert set(identities.faults) == {"default.web-1"}


@pytest.mark.parametrize(
    "tags",
    [
        [{"kuma.io/service": "web", "version": str(number)} for number in range(MOST_NAMES)],
        [{"kuma.io/service": "web", "version": "v" * MOST_CHARACTERS}],
    ],
)
def test_a_proxy_with_too_many_names_gets_no_certificate(tags: list[dict[str, str]]) -> None:
    of = world(provided(PAIR), trusting(CA), dataplane(*tags), API)
    identities = Identities(Metrics(), lambda: NOW, lambda: 0.0)

    assert len(identities.part(of, proxy(of))) == 0
    assert len(identities.part(of, proxy(of, "api-1"))) == 1
    assert "and a certificate at most" in identities.faults["default.web-1"]


def test_keys_of_proxies_that_left_are_kept_nowhere() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("api-1"):
            async with rig.connected("web-1"):
                before = await rig.certificate("web-1")
            await rig.write(Document(API.key, {**API.data, "labels": {"a": "b"}}))
            await eventually_on_loop(lambda: rig.identities.certificate("default.web-1") is None)
            left = rig.hub.publisher._state.snapshots["default.web-1"]

            assert left.get(SECRET, NAME) is None
            assert len(left) > 0
            async with rig.connected("web-1"):
                await rig.certificate("web-1", but=before)

    run(test, *MESH)


def test_a_proxy_of_which_nothing_can_be_made_gets_its_certificate_renewed_all_the_same() -> None:
    def broken(world: World, dataplane: Resource) -> CompiledProxy:
        raise RuntimeError("a fault of ours")

    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            before = await rig.certificate("web-1")
            served = rig.hub.observer.newest("default.web-1")
            rig.reconciler.lane("default").turns.compiler.proxy = broken  # type: ignore[method-assign]
            rig.clock[0] += DAY * RENEWED_AFTER
            await rig.certificate("web-1", but=before)

            newest = rig.hub.observer.newest("default.web-1")
            assert served is not None
            assert newest is not None
            assert newest.touched(served) == {SECRET}
            assert len(newest) == len(served)

    run(test, *MESH)


def test_a_mesh_without_mtls_has_no_certificates() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            await rig.certificate("web-1")
            await rig.write(PLAIN)
            await eventually_on_loop(lambda: rig.secret("web-1") is None)
            assert rig.identities.certificate("default.web-1") is None

    run(test, *MESH)


def test_a_certificate_that_ends_with_its_authority_is_issued_once() -> None:
    short_pair, short = new_authority(expiration="1h")
    of, clock = world(provided(short_pair), trusting(short), WEB), [NOW]
    identities = Identities(Metrics(), lambda: clock[0], lambda: 0.0)
    part = identities.part(of, proxy(of))
    clock[0] += 3_599

    assert identities.due() == frozenset()
    assert identities.part(of, proxy(of)) is part
    assert identities.remaining() == {"default": 1.0}
    assert 0 < identities.remaining_ratio()["default"] < 0.001


def test_what_is_told_of_a_certificate() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            served = await rig.certificate("web-1")
            presences = await Observer(rig.hub, rig.reconciler).presences([WEB.key, API.key])
            told = presences[WEB.key].certificate

            assert told is not None
            assert told.serial == f"{leaf(served).serial_number:x}"
            assert (told.mesh, told.backend, told.uris) == ("default", "ca-1", tuple(uris(served)))
            assert (told.issued, told.not_after, told.renewal) == (NOW, NOW + DAY, NOW + DAY * RENEWED_AFTER)
            assert (told.generation, told.fault) == (1, "")
            assert presences[API.key].certificate is None
            assert rig.hub.metrics.certificates._value.get() == 1

    run(test, *MESH)


def test_a_document_of_this_process_alone_is_there_in_the_next_world_too() -> None:
    async def test(rig: Rig) -> None:
        record = record_document(trust_key("default"), TrustRecord(callers=True))
        rig.reconciler.put_locally(record.key, record)
        await eventually_on_loop(lambda: rig.reconciler.world.get(record.key) is not None)
        await rig.write(WEB)
        assert rig.reconciler.world.get(record.key) is not None

        rig.reconciler.put_locally(record.key, None)
        await eventually_on_loop(lambda: rig.reconciler.world.get(record.key) is None)

    run(test, mesh())


def test_deleting_a_dataplane_leaves_its_proxy_what_it_has() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            before = await rig.certificate("web-1")
            await rig.store.write(Delete(WEB.key))
            await rig.reconciler.current()

            assert rig.secret("web-1") == before

    run(test, *MESH)


def test_of_a_proxy_whose_dataplane_is_gone_nothing_is_due() -> None:
    """Otherwise its key would be kept, and every look for what is due would name it, from its renewal on for ever."""

    async def test(rig: Rig) -> None:
        async with rig.connected("web-1"):
            before = await rig.certificate("web-1")
            await rig.store.write(Delete(WEB.key))
            await rig.reconciler.current()
            rig.clock[0] += 2 * DAY

            assert rig.identities.due() == frozenset()
            assert rig.identities.remaining() == {}
            assert rig.identities.certificate("default.web-1") is None

            await rig.write(WEB)
            await rig.certificate("web-1", but=before)

    run(test, *MESH)


@pytest.mark.parametrize("is_followed", [True, False])
def test_an_authority_that_has_expired_signs_nothing_more(*, is_followed: bool) -> None:
    short_pair, short = new_authority(expiration="1h")
    following, _ = new_authority()
    clock = [NOW]
    identities = Identities(Metrics(), lambda: clock[0], lambda: 0.0)
    before = world(provided(short_pair), trusting(short), WEB, API)
    part = identities.part(before, proxy(before))
    clock[0] += 3_600
    now = world(provided(following if is_followed else short_pair), trusting(short), WEB, API)

    assert identities.part(now, proxy(now)) is part
    identities.part(now, proxy(now, "api-1"))
    assert "has expired at 2027-01-15T09:00:00+00:00" in identities.faults["default.api-1"]


def test_the_names_in_a_certificate_are_those_by_which_permissions_know_a_proxy() -> None:
    networking = {"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "team": "red"}}]}
    web = Document(
        Key("Dataplane", "default", "web"),
        {"type": "Dataplane", "mesh": "default", "name": "web", "networking": networking},
    )
    (stored,) = World.of([web], kinds(discover())).table("Dataplane", "default")
    by_tags = {"tags": {"kuma.io/service": "web", "team": "red"}}

    names = names_by_tags(stored)

    conditions = list(uri_conditions(by_tags, "default"))
    assert len(conditions) == 2
    assert all(condition.holds(names) for condition in conditions)
    assert not any(condition.holds(names) for condition in uri_conditions({"tags": {"team": "blue"}}, "default"))
