"""Which proxies Prometheus is told to ask."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from cp.access.rights import ADMIN, AccessRight, Rights, Subjects, Verb
from cp.api.authentication import AccessControl
from cp.policies import discover
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER
from tests.api.conftest import KINDS, Api, FixedState, Unit
from tests.random_mesh.words import document_of

PROMETHEUS = {"type": "Prometheus", "prometheus": {"port": 5670, "path": "/metrics"}}


def mesh(name: str = "default") -> dict[str, Any]:
    return {"type": "Mesh", "name": name}


def dataplane(name: str, mesh_name: str = "default", address: str = "192.0.2.1", **more: Any) -> dict[str, Any]:
    tags = {"kuma.io/service": name, "kuma.io/zone": "east", "team-name/x": "a"}
    networking = {"address": address, "inbound": [{"port": 8080, "tags": tags}], **more.pop("networking", {})}
    return {"type": "Dataplane", "mesh": mesh_name, "name": name, "networking": networking, **more}


def metric(*backends: dict[str, Any], mesh_name: str = "default", name: str = "all") -> dict[str, Any]:
    spec = {"targetRef": {"kind": "Mesh"}, "default": {"backends": list(backends)}}
    return {"type": "MeshMetric", "mesh": mesh_name, "name": name, "spec": spec}


def world(*documents: dict[str, Any]) -> World:
    return World.of(map(document_of, documents), KINDS)


def api_of(start: Unit, *documents: dict[str, Any], **changes: Any) -> Api:
    return start(state=FixedState(world(*documents)), **changes)


def targets(api: Api, query: str = "", **options: Any) -> list[dict[str, Any]]:
    answer = api.get(f"/_prometheus/targets{query}", **options).raise_for_status()
    assert answer.headers["content-type"] == "application/json"
    told: list[dict[str, Any]] = answer.json()
    return told


def test_a_proxy_with_metrics_is_told_with_where_it_is_and_what_it_is_called(start: Unit) -> None:
    api = api_of(start, mesh(), dataplane("web"), metric(PROMETHEUS))

    assert targets(api) == [
        {
            "targets": ["192.0.2.1:5670"],
            "labels": {
                "__metrics_path__": "/metrics",
                "mesh": "default",
                "dataplane": "web",
                "service": "web",
                "zone": "east",
                "__meta_kuma_label_kuma_io_service": "web",
                "__meta_kuma_label_kuma_io_zone": "east",
                "__meta_kuma_label_team_name_x": "a",
            },
        }
    ]


def test_a_proxy_is_asked_where_others_reach_it(start: Unit) -> None:
    behind = dataplane("web", networking={"advertisedAddress": "2001:db8::7"})
    api = api_of(start, mesh(), behind, metric(PROMETHEUS))

    assert [target["targets"] for target in targets(api)] == [["[2001:db8::7]:5670"]]


@pytest.mark.parametrize(
    "backends",
    [
        [],
        [{"type": "OpenTelemetry", "openTelemetry": {"endpoint": "collector:4317"}}],
        [{"type": "Prometheus", "prometheus": {"port": 5670, "path": "/m", "tls": {"mode": "ActiveMTLSBackend"}}}],
    ],
)
def test_who_has_no_page_of_metrics_is_not_asked(start: Unit, backends: list[dict[str, Any]]) -> None:
    api = api_of(start, mesh(), dataplane("web"), metric(*backends))

    assert targets(api) == []


def test_a_grpc_client_is_not_asked(start: Unit) -> None:
    client = dataplane("web", labels={"koguma.io/client": "grpc"})

    assert targets(api_of(start, mesh(), client, metric(PROMETHEUS))) == []


def test_whoever_is_told_of_is_served_a_listener_there_and_nobody_else_is(start: Unit) -> None:
    twice = metric(PROMETHEUS, {"type": "Prometheus", "prometheus": {"port": 5670, "path": "/other"}}, PROMETHEUS)
    bare = metric({"type": "Prometheus", "prometheus": {}}, name="bare")
    bare["spec"]["targetRef"] = {"kind": "Dataplane", "name": "bare"}
    documents = (mesh(), dataplane("web"), dataplane("bare", address="192.0.2.2"), twice, bare)
    of, compiler = world(*documents), Compiler(discover())
    served = {
        name.removeprefix("metrics:")
        for proxy in of.table("Dataplane", "default")
        for name in compiler.snapshot(of, proxy).names(LISTENER)
        if name.startswith("metrics:")
    }

    told = [target for entry in targets(api_of(start, *documents)) for target in entry["targets"]]
    assert (sorted(told), len(told)) == (sorted(served), 2)


def test_each_prometheus_is_told_of_its_own_and_of_what_is_for_all(start: Unit) -> None:
    mine = {"type": "Prometheus", "prometheus": {"port": 5671, "path": "/m", "clientId": "mine"}}
    api = api_of(start, mesh(), dataplane("web"), metric(PROMETHEUS, mine))

    def ports(query: str) -> list[str]:
        return [target.rpartition(":")[2] for entry in targets(api, query) for target in entry["targets"]]

    assert ports("") == ["5670", "5671"]
    assert ports("?client=mine") == ["5670", "5671"]
    assert ports("?client=other") == ["5670"]


def test_only_meshes_are_told_of_that_the_caller_may_look_into(start: Unit) -> None:
    group = Subjects(groups=frozenset({"mesh-system:unauthenticated"}))
    right = AccessRight(group, frozenset({Verb.READ}), frozenset({"shop"}), frozenset({"Dataplane", "Inspection"}))
    rights = Rights(Subjects(frozenset({ADMIN})), (right,))
    documents = (
        *(mesh(), dataplane("web"), metric(PROMETHEUS)),
        *(mesh("shop"), dataplane("cart", "shop"), metric(PROMETHEUS, mesh_name="shop")),
    )
    api = api_of(start, *documents, access=AccessControl(lambda: rights))

    assert [entry["labels"]["mesh"] for entry in targets(api, peer="192.0.2.7")] == ["shop"]
    assert [entry["labels"]["mesh"] for entry in targets(api, "?mesh=shop", peer="192.0.2.7")] == ["shop"]
    for query in ("?mesh=default", "?mesh=nowhere"):
        assert api.get(f"/_prometheus/targets{query}", peer="192.0.2.7").status_code == 401
    assert api.get("/_prometheus/targets?mesh=nowhere").status_code == 404
    assert [entry["labels"]["mesh"] for entry in targets(api, "?mesh=default")] == ["default"]


@pytest.mark.skipif(which("promtool") is None, reason="there is no promtool")
def test_promtool_reads_the_list(start: Unit, tmp_path: Path) -> None:
    odd = dataplane("web")
    odd["networking"]["inbound"][0]["tags"] |= {"0-digit.example/x": "b"}
    file, configuration = tmp_path / "targets.json", tmp_path / "prometheus.yml"
    file.write_text(json.dumps(targets(api_of(start, mesh(), odd, metric(PROMETHEUS)))))
    discovery = f"[{{job_name: koguma-proxies, file_sd_configs: [{{files: ['{file}']}}]}}]"
    configuration.write_text(f"scrape_configs: {discovery}")

    command = ["promtool", "check", "service-discovery", "--timeout=1s", str(configuration), "koguma-proxies"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert outcome.returncode == 0, outcome.stderr
    (told,) = json.loads(outcome.stdout)
    assert told["labels"]["dataplane"] == "web"
    assert told["discoveredLabels"]["__meta_kuma_label_0_digit_example_x"] == "b"
