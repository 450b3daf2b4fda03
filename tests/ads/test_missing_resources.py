"""Resources that a real Envoy waits for: it cannot be told that they do not exist (record 0099), or it has them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cp.ads.session import delta
from cp.translate.packing import ROUTES, SECRET
from tests.ads.resources import ca, certificate, cluster, endpoints, listener, routes
from tests.ads.test_real_envoy import KINDS, PROXY, Rig
from tests.support.authority import Authority, certificate_of, is_signed_by
from tests.support.client import call
from tests.support.loopback import new_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PATIENT = 60
"""Seconds, more than a test lasts."""

BASIS = routes("outbound", to="backend")


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(request.param, tmp_path, stack)


@pytest.fixture
def delta_rig(tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig("delta", tmp_path, stack)


def listeners(rig: Rig, state: str) -> int:
    return rig.envoy.stat(f"listener_manager.total_listeners_{state}")


def test_node_of_envoy_is_recognised(rig: Rig) -> None:
    assert rig.serving.seat(PROXY).node.is_envoy


def test_listener_without_routes_gets_ready_in_time(rig: Rig) -> None:
    address = new_address()
    rig.publish(BASIS, listener("out", address, routes="missing", patience=1))

    eventually(lambda: call(address).status == 404)


def test_report_of_missing_routes_blocks_a_listener(delta_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener next to it waits as long for a certificate, and gets ready."""
    monkeypatch.setattr(delta, "_ENVOY_AWAITS", frozenset({SECRET}))
    delta_rig.serving.stop()
    delta_rig.serve()
    delta_rig.publish(
        BASIS,
        listener("reported", new_address(), routes="missing", patience=1),
        listener("silent", new_address(), routes="outbound", secret="missing", patience=1),
    )

    eventually(lambda: listeners(delta_rig, "active") == 2)
    assert delta_rig.envoy.stat("http.reported.rds.missing.init_fetch_timeout") == 0
    assert listeners(delta_rig, "warming") == 1


def test_listener_waits_for_a_late_certificate(rig: Rig) -> None:
    address, authority = new_address(), Authority()
    more = (BASIS, listener("out", address, routes="outbound", secret="late", patience=PATIENT))
    rig.publish(*more)
    eventually(lambda: listeners(rig, "warming") == 1)
    assert listeners(rig, "active") == 1

    rig.publish(*more, certificate("late", authority.leaf("spiffe://default/web")))

    eventually(lambda: listeners(rig, "active") == 2)
    assert is_signed_by(certificate_of(address), authority.certificate)


def test_report_of_a_missing_certificate_opens_a_port_without(delta_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_ENVOY_AWAITS", frozenset({ROUTES}))
    delta_rig.serving.stop()
    delta_rig.serve()
    address = new_address()
    delta_rig.publish(BASIS, listener("out", address, routes="outbound", secret="late", patience=PATIENT))

    eventually(lambda: listeners(delta_rig, "active") == 2)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        certificate_of(address)


def test_removed_routes_stay_in_force(rig: Rig) -> None:
    """Envoy drops them with the listener that uses them."""
    rig.publish()
    rig.settled()

    assert call(rig.listener).status == 200


def test_changed_source_of_a_secret_is_in_force_after_a_reconnect(rig: Rig) -> None:
    """Another control plane may have requested the same secret in another way."""
    authority, address = Authority(), new_address()
    secrets = (ca("ca", authority.certificate), certificate("leaf", authority.leaf("spiffe://default/web")))
    more = (BASIS, endpoints("tls", rig.service.address), *secrets)
    before, after = (
        (
            cluster("tls", ca="ca", patience=patience),
            listener("in", address, routes="outbound", secret="leaf", patience=patience),
        )
        for patience in (PATIENT, PATIENT + 1)
    )
    rig.publish(*more, *before)
    rig.settled()
    rig.serving.stop()
    rig.serve()

    rig.publish(*more, *after)
    rig.settled()

    eventually(lambda: listeners(rig, "warming") == 0 == rig.envoy.stat("cluster_manager.warming_clusters"))
    assert is_signed_by(certificate_of(address), authority.certificate)


@pytest.mark.parametrize("rig", ["sotw"], indirect=True)
def test_changed_source_of_a_secret_is_in_force_on_one_stream(rig: Rig) -> None:
    """A delta request cannot say that Envoy has another subscription for a secret."""
    more = (BASIS, endpoints("tls", rig.service.address), ca("ca", Authority().certificate))
    rig.publish(*more, cluster("tls", ca="ca", patience=PATIENT))
    rig.settled()

    rig.publish(*more, cluster("tls", ca="ca", patience=PATIENT + 1))
    rig.settled()

    assert rig.envoy.stat("cluster_manager.warming_clusters") == 0
