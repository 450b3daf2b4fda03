"""What `koguma inspect dataplane NAME` prints of the state of a proxy."""

from __future__ import annotations

import time

import pytest

from cp.ads.draining import DrainingResource
from cp.api.delivery_data import delivery_data
from cp.cli.proxies import delivery
from cp.model.names import Key
from cp.serving.delivery import Delivery, Presence, ProxyState
from cp.translate.packing import CLUSTER, ROUTES

A = Key("Dataplane", "default", "a")
LATE = "instance cp-2 (https://cp-2:5682) serves revision 6, and not 7"


def printed(state: ProxyState, since: float | None, *late: str) -> list[str]:
    return list(delivery(delivery_data(Delivery(A, Presence(state, since, ()), (), late=late))))


def test_who_serves_a_proxy_less_than_all_is_named() -> None:
    assert printed(ProxyState.OUT_OF_SYNC, None, LATE) == [
        "Dataplane default/a: out of sync: what serves it is behind",
        "",
        LATE,
    ]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (ProxyState.ONLINE, "in sync for 5m"),
        (ProxyState.OUT_OF_SYNC, "out of sync for 5m: something is on its way to it"),
        (ProxyState.REFUSED, "out of sync for 5m: it refuses something"),
        (ProxyState.FAILED, "out of sync for 5m: by a fault of the control plane, a part could not be made for it"),
    ],
)
def test_each_state_of_a_connected_proxy_is_told_with_since_when(state: ProxyState, text: str) -> None:
    assert printed(state, time.time() - 300) == [f"Dataplane default/a: {text}"]


@pytest.mark.parametrize(
    ("until", "text"), [(1_800_000_000.0, "2027-01-15 08:00:00 (UTC)"), (None, "the proxy has ACKed the change")]
)
def test_draining_resources_are_counted(until: float | None, text: str) -> None:
    draining = (DrainingResource(CLUSTER, "old", 1_700_000_000.0), DrainingResource(ROUTES, "to-old", until))
    standing = Delivery(A, Presence(ProxyState.ONLINE, None, ()), (), draining=draining)

    assert list(delivery(delivery_data(standing)))[1:] == [
        "",
        f"draining: 2 resources for its old listeners, until {text}",
    ]
