"""What is known of gRPC clients by what they say of themselves."""

from __future__ import annotations

import pytest

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Node
from cp.api.delivery_data import delivery_data
from cp.cli.proxies import delivery
from cp.model.names import Key
from cp.model.registration import CERTIFICATES, FETCHED
from cp.serving.delivery import Delivery, Presence, ProxyState

PLAIN: dict[str, str] = {}
CERTIFIED = {CERTIFICATES: "koguma"}
OTHER = {CERTIFICATES: "another"}
AGENT = {CERTIFICATES: FETCHED}


def seen(*streams: dict[str, str]) -> Presence:
    nodes = (Node("default.c", metadata=metadata) for metadata in streams)
    records = tuple(ConnectionRecord(node, "sotw", 0.0, None, 0.0, ()) for node in nodes)
    return Presence(ProxyState.ONLINE, 0.0, records)


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ((), None),
        ((AGENT,), None),
        ((PLAIN,), False),
        ((OTHER,), False),
        ((AGENT, PLAIN), False),
        ((CERTIFIED,), True),
        ((PLAIN, CERTIFIED), True),
    ],
)
def test_a_library_finds_certificates_if_it_says_so_and_who_fetches_them_says_nothing(
    streams: tuple[dict[str, str], ...], expected: bool | None
) -> None:
    assert seen(*streams).finds_certificates is expected


@pytest.mark.parametrize(
    ("streams", "expected"),
    [((CERTIFIED,), "so it calls over TLS"), ((PLAIN,), "so it speaks plain text"), ((), "")],
)
def test_inspection_says_what_a_client_speaks(streams: tuple[dict[str, str], ...], expected: str) -> None:
    standing = Delivery(Key("Dataplane", "default", "c"), seen(*streams), (), ())
    text = "\n".join(delivery(delivery_data(standing, needs_certificates=True)))

    assert expected in text
    assert ("certificates" in text) == bool(expected)
    assert "certificates" not in "\n".join(delivery(delivery_data(standing)))
