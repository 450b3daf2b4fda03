"""A proxy over a limit has everything else: no command calls that a fault, and `--wait` ends with 0."""

from __future__ import annotations

import copy
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
BUILTIN = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
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


GATEWAY = {
    "type": "MeshGateway",
    "mesh": "default",
    "name": "edge",
    "selectors": [{"match": {"kuma.io/service": "edge"}}],
    "conf": {"listeners": [{"port": 8081, "protocol": "HTTP", "hostname": "a.example.com"}]},
}
AT_GATEWAY = {
    "type": "MeshHTTPRoute",
    "mesh": "default",
    "name": "routes",
    "spec": {
        "targetRef": {"kind": "MeshGateway", "name": "edge"},
        "to": [
            {
                "targetRef": {"kind": "Mesh"},
                "rules": [
                    {
                        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                        "default": {"backendRefs": [{"kind": "MeshService", "name": "api"}]},
                    }
                ],
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("limit", "proxy", "call", "end"),
    [
        ("BYTES_OF_OUTBOUNDS", "web-1", "GET http://api:10001/", "answers    500: MeshTimeout: policies and the"),
        ("BYTES_OF_OUTBOUNDS", "web-1", "tcp://db:10002", "nobody, and the connection is closed: policies and the"),
        ("BYTES_OF_BACKENDS", "web-1", "GET http://api:10001/", "answered with an error: over a limit, and nothing"),
        ("BYTES_OF_GATEWAY", "edge-1", "GET http://a.example.com:8081/", "answers      500: MeshTimeout: policies"),
    ],
)
def test_explain_says_what_is_left_out(  # noqa: PLR0917  # a case and three fixtures
    offline: Koguma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, proxy: str, call: str, end: str
) -> None:
    lowered(monkeypatch, limit, 1)
    database = dataplane("db-1", "default", "db")
    database["networking"]["inbound"][0]["tags"]["kuma.io/protocol"] = "tcp"
    web, edge = copy.deepcopy(WEB), copy.deepcopy(API)
    web["networking"]["outbound"].append({"port": 10_002, "tags": {"kuma.io/service": "db"}})
    edge |= {"name": "edge-1", "networking": {"address": "127.0.0.9", "gateway": BUILTIN}}
    file = tmp_path / "mesh.yaml"
    file.write_text(
        yaml.safe_dump_all([{"type": "Mesh", "name": "default"}, web, API, edge, database, GATEWAY, AT_GATEWAY])
    )

    explained = offline("explain", proxy, call, "-f", file)
    data = json.loads(offline("explain", proxy, call, "-f", file, "-o", "json").out)

    assert end in " ".join(explained.out.replace("\n", " ").split(" "))
    assert "LEFT OUT\n  over a limit" in explained.out
    assert ("one that every service has" in explained.out) == (limit == "BYTES_OF_BACKENDS")
    assert data["leftOut"][0].startswith("over a limit, and ")


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
