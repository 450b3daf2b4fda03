"""Proxies are served over TLS, with tokens, as the settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import grpc
import pytest

from cp.ads.loop import DrainLoop
from cp.model.document import Document
from cp.serving.serve import ProxyDoor, ProxyServing, certificate_kept, proxies_served
from cp.serving.server_certificate import ServerCertificate, UnusableCertificate
from cp.settings import Settings, load
from cp.store.memory import MemoryStore
from cp.store.port import Put
from cp.translate.packing import CLUSTER
from tests.access import forge
from tests.ads.proxy import Proxy
from tests.ads.test_admission import DATAPLANES, MESHES, REVOCATIONS, WEB

LOCKED: Final = {"ads_tls": "on", "proxy_authentication": "dpToken", "ads_port": 0, "quiet": 0}


class Rig:
    """A control plane without an API, and its store."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = MemoryStore()
        self._revision = 0
        self.serving: ProxyServing
        self.certificate: ServerCertificate | None

    async def write(self, *documents: Document) -> None:
        await self.store.write(*map(Put, documents))

    async def __aenter__(self) -> Self:
        await self.write(*MESHES, *forge.signing_keys(), *DATAPLANES)
        async with AsyncExitStack() as stack:
            self.certificate = await stack.enter_async_context(certificate_kept(self.settings, is_owner=True))
            door = ProxyDoor(self.certificate)
            self.serving = await stack.enter_async_context(proxies_served(self.settings, self.store, 0, door=door))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def proxy(self, token: str = "", name: str = WEB, **options: Any) -> Proxy:
        trusted = self.certificate.current.trusted if self.certificate is not None else ""
        metadata = [("authorization", token)] if token else []
        return Proxy(self.serving.port, name, metadata, **{"trusted": trusted, **options})


def played(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(scene())


def token(**changes: Any) -> str:
    import time  # noqa: PLC0415  # the control plane has a real clock here

    now = time.time()
    return forge.token({**forge.DATAPLANE, "iat": now, "nbf": now - 5, "exp": now + 60, **changes})


def remove(*files: Path) -> None:
    for file in files:
        file.unlink()


def locked(folder: Path, **changes: Any) -> Settings:
    return load(work_dir=folder, **{**LOCKED, **changes})


def test_a_proxy_with_its_token_is_served_over_tls(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Rig(locked(tmp_path)) as rig, rig.proxy(token()) as proxy:
            await proxy.ask(CLUSTER)
            assert (await proxy.hear()).resources

    played(scene)


@pytest.mark.parametrize("trusted", ["", "another"])
def test_a_client_without_tls_or_with_another_authority_gets_nowhere(tmp_path: Path, trusted: str) -> None:
    async def scene() -> None:
        other = ""
        if trusted:
            async with certificate_kept(locked(tmp_path / "other"), is_owner=True) as certificate:
                assert certificate is not None
                other = certificate.current.trusted
        async with Rig(locked(tmp_path)) as rig, rig.proxy(token(), trusted=other) as proxy:
            assert (await proxy.end())[0] == grpc.StatusCode.UNAVAILABLE
            assert 'koguma_ads_streams_opened_total{stream="sotw"}' not in rig.serving.metrics.text().decode()

    played(scene)


def test_a_revocation_that_is_written_ends_the_stream(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Rig(locked(tmp_path)) as rig, rig.proxy(token()) as proxy:
            await proxy.ask(CLUSTER)
            await proxy.answer(await proxy.hear())
            await rig.write(forge.secret(REVOCATIONS, b"id-1", "default"))
            status, reason = await proxy.end()
            assert (status, "revoked" in reason) == (grpc.StatusCode.UNAUTHENTICATED, True)

    played(scene)


def test_a_certificate_that_changed_is_shown_to_new_connections_and_old_ones_stay(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Rig(locked(tmp_path)) as rig, rig.proxy(token()) as before:
            assert rig.certificate is not None
            await before.ask(CLUSTER)
            answer = await before.hear()
            remove(tmp_path / "koguma-cp-ca.crt", tmp_path / "koguma-cp.crt")
            rig.certificate.renew()
            rig.certificate.look()
            async with rig.proxy(token()) as after:
                await after.ask(CLUSTER)
                assert (await after.hear()).resources
            await before.answer(answer)
            await rig.write(forge.secret(REVOCATIONS, b"id-1", "default"))
            assert (await before.end())[0] == grpc.StatusCode.UNAUTHENTICATED  # it was there until now

    played(scene)


def test_on_loopback_nothing_is_locked_and_no_certificate_is_made(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Rig(load(work_dir=tmp_path)) as rig, rig.proxy() as proxy:
            await proxy.ask(CLUSTER)
            assert (await proxy.hear()).resources

    played(scene)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.1", "fd00::1", "::ffff:10.0.0.1", "node.example"])
def test_beyond_loopback_everything_is_locked_unless_it_is_said_otherwise(bind: str) -> None:
    settings = load(bind=bind)
    opened = load(bind=bind, ads_tls="off", proxy_authentication="none")

    assert (settings.serves_proxies_over_tls, settings.asks_proxies_for_tokens) == (True, True)
    assert (opened.serves_proxies_over_tls, opened.asks_proxies_for_tokens) == (False, False)


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1"])
def test_on_loopback_everything_is_open_unless_it_is_said_otherwise(bind: str) -> None:
    settings = load(bind=bind)
    locked_ = load(bind=bind, ads_tls="on", proxy_authentication="dpToken")

    assert (settings.serves_proxies_over_tls, settings.asks_proxies_for_tokens) == (False, False)
    assert (locked_.serves_proxies_over_tls, locked_.asks_proxies_for_tokens) == (True, True)


def test_a_name_for_proxies_that_the_certificate_does_not_have_is_told_at_the_start(tmp_path: Path) -> None:
    async def start(settings: Settings) -> None:
        async with certificate_kept(settings, is_owner=True):
            pass

    made = locked(tmp_path, xds_host="one.example")
    played(lambda: start(made))
    files = {"tls_certificate": tmp_path / "koguma-cp.crt", "tls_key": tmp_path / "koguma-cp.key"}
    other = locked(tmp_path, xds_host="two.example", **files)
    with pytest.raises(UnusableCertificate, match=r"koguma-cp\.crt is not for two\.example"):
        played(lambda: start(other))
