"""A proxy over a limit has everything else: no command calls that a fault, and `--wait` ends with 0."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import grpc
import pytest
import yaml
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from cp.ads.server import SERVICE
from cp.app import RunningControlPlane
from cp.translate.packing import CLUSTER, LISTENER
from tests.api.samples import dataplane
from tests.cli.conftest import Ended, Koguma
from tests.test_product_limits import lowered

WEB = dataplane("web-1", "default", "web", outbound=[{"port": 10_001, "tags": {"kuma.io/service": "api"}}])
API = dataplane("api-1", "default", "api")
LEFT_OUT = "over a limit, and nothing in place of"


def health_check(path: str) -> dict[str, Any]:
    item = {"targetRef": {"kind": "Mesh"}, "default": {"interval": "3s", "http": {"path": path}}}
    return {"type": "MeshHealthCheck", "mesh": "default", "name": "large", "spec": {"to": [item]}}


@contextmanager
def connected(running: RunningControlPlane) -> Iterator[None]:
    """For as long as the block lasts, web-1 is connected and accepts what it is sent."""
    requests: SimpleQueue[bytes | None] = SimpleQueue()

    def say(type_url: str, **fields: Any) -> None:
        requests.put(DiscoveryRequest(node=Node(id="default.web-1"), type_url=type_url, **fields).SerializeToString())

    def answer(responses: Iterable[bytes]) -> None:
        with suppress(grpc.RpcError):
            for response in map(DiscoveryResponse.FromString, responses):
                say(response.type_url, version_info=response.version_info, response_nonce=response.nonce)

    with grpc.insecure_channel(f"127.0.0.1:{running.ads_port}") as channel:
        stream: Any = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")
        say(CLUSTER)
        say(LISTENER)
        thread = Thread(target=answer, args=(stream(iter(requests.get, None)),))
        thread.start()
        yield
        requests.put(None)
    thread.join()


def test_wait_succeeds_over_a_limit(
    koguma: Koguma, running: RunningControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, "BYTES_OF_BACKENDS", 400)
    file = tmp_path / "check.yaml"

    def apply(*documents: dict[str, Any]) -> Ended:
        file.write_text(yaml.safe_dump_all(documents))
        return koguma("apply", "-f", file, "--wait")

    with connected(running):
        assert apply(WEB, API).status == 0
        large = health_check("/" + "x" * 500)
        for document in (large, large, health_check("/" + "y" * 600), health_check("/" + "z" * 600)):
            ended = apply(document)

            assert ended.status == 0, ended.err
            assert "Warning: default.web-1 is over a limit: a part of its configuration is left out" in ended.err
            assert "fault of" not in ended.out + ended.err
            assert LEFT_OUT in ended.err
        _no_answer_speaks_of_a_fault(koguma)
        ended = apply(health_check("/x"))
        assert (ended.status, ended.err) == (0, "")


def _no_answer_speaks_of_a_fault(koguma: Koguma) -> None:
    standing = koguma("inspect", "dataplane", "web-1")
    assert "Dataplane default/web-1: in sync for" in standing.out
    assert "but over a limit: a part of its configuration is left out" in standing.out
    assert LEFT_OUT in standing.out
    assert "Over limit" in koguma("inspect", "dataplanes").out
    effects = koguma("inspect", "meshhealthcheck", "large")
    assert "in force, if it is in a part that is not left out (over limit)" in effects.out
    explained = koguma("explain", "web-1", "GET http://api:10001/")
    answers = (koguma("inspect", "dataplane", "web-1", "-o", "json").out, standing.out, effects.out, explained.out)
    assert json.loads(answers[0])["status"] == "Over limit"
    assert not [answer for answer in answers if "fault of" in answer]
