"""What Envoys say of themselves, over the links that their agents hold: no port is open beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.model.envoy_questions import EnvoySubject
from tests.cli.conftest import Koguma
from tests.support import memory
from tests.support.client import call
from tests.support.mesh import MESH, Document, Proxy, mesh_service
from tests.support.playground import Playground, dp_run
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

CLUSTER = "kri_msvc_default___backend_main"
ASKED = "/meshes/default/dataplanes/new/_envoy"


@pytest.fixture(scope="module")
def agent(empty_mesh: Playground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """What `koguma dp run` has become, beside its Envoy."""
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.ready()
    proxy = Proxy("new", "new", backends=("backend",))
    with dp_run(empty_mesh, proxy, tmp_path_factory.mktemp("dp")) as running:

        def serves() -> bool:
            running.check()
            return call(proxy.outbound()).status == 200

        eventually(serves, within=20)
        eventually(lambda: is_linked(empty_mesh), within=20)
        empty_mesh.proxies["new"] = proxy
        yield running


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground, agent: Running) -> Playground:
    """A mesh with a proxy that `koguma dp run` has started."""
    return empty_mesh


def is_linked(mesh: Playground) -> bool:
    return mesh.control_plane.metrics()["koguma_agent_links"] > 0


def asked(mesh: Playground, subject: str, **parameters: str) -> Any:
    return mesh.control_plane.get(f"{ASKED}/{subject}", **parameters)


def test_an_envoy_tells_its_clusters_and_their_endpoints(mesh: Playground) -> None:
    clusters = {status["name"]: status for status in asked(mesh, "clusters")["cluster_statuses"]}

    (host,) = clusters["kri_msvc_default___backend_main"]["host_statuses"]
    assert host["health_status"]["eds_health_status"] == "HEALTHY"


def test_an_envoy_tells_the_stats_that_are_asked_for(mesh: Playground) -> None:
    stats = asked(mesh, "stats", filter=r"^cluster\.kri_msvc_default___backend_main\.upstream_rq_total$")["stats"]

    assert [stat["value"] > 0 for stat in stats] == [True]


def test_the_graph_says_which_calls_carry_traffic(mesh: Playground) -> None:
    requests = sent_by_graph(mesh)
    assert requests > 0

    for _ in range(3):
        assert call(mesh.proxies["new"].outbound()).status == 200

    eventually(lambda: sent_by_graph(mesh) >= requests + 3, within=10)


def sent_by_graph(mesh: Playground) -> int:
    """How many requests the proxy has sent to the service that it calls."""
    data = mesh.control_plane.get("/meshes/default/_graph", traffic="true")
    numbers = {service["name"]: number for number, service in enumerate(data["services"])}
    (group,) = (group for group in data["groups"] if numbers["new"] in group["callers"])
    assert data["traffic"]["answered"] == data["traffic"]["asked"] == 1
    ((split,),) = (route["splits"] for route in group["calls"][0]["routes"])
    assert split["to"] == numbers["backend"]
    requests: int = split["requests"]
    return requests


def test_an_envoy_tells_its_configuration_whole_or_by_type_and_name(mesh: Playground) -> None:
    whole = {entry["@type"].rpartition(".")[2] for entry in asked(mesh, "config_dump")["configs"]}
    assert {"BootstrapConfigDump", "ClustersConfigDump", "ListenersConfigDump", "EndpointsConfigDump"} <= whole

    listeners = asked(mesh, "config_dump", type="listeners")["configs"]
    assert [entry["active_state"]["listener"]["name"] for entry in listeners]
    (cluster,) = asked(mesh, "config_dump", type="clusters", filter="^kri_msvc_default___backend_main$")["configs"]
    assert cluster["cluster"]["name"] == "kri_msvc_default___backend_main"
    assert asked(mesh, "config_dump", type="clusters", filter="^nobody$") == {}


def test_an_envoy_tells_its_listeners_certificates_and_version(mesh: Playground) -> None:
    assert asked(mesh, "listeners")["listener_statuses"]
    assert "certificates" in asked(mesh, "certs")
    assert asked(mesh, "server_info")["state"] == "LIVE"


def test_an_expression_that_is_none_is_told_by_envoy(mesh: Playground) -> None:
    answer = mesh.control_plane.request("GET", f"{ASKED}/stats?filter=(")

    assert answer.status_code == 409
    assert "Envoy answers 400: Invalid re2 regex" in answer.json()["detail"]


def test_a_log_level_goes_back_by_itself(mesh: Playground) -> None:
    before = asked(mesh, "log_level")
    content = b'{"level": "debug", "validFor": "1s"}'
    headers = {"content-type": "application/json"}
    changed = mesh.control_plane.request("PUT", f"{ASKED}/log_level", content, **headers).raise_for_status().json()

    assert (before["level"], before["setBackIn"]) == ("warning", None)
    assert (changed["level"], changed["loggers"]) == ("debug", {})
    assert 0 < changed["setBackIn"] <= 1
    eventually(lambda: asked(mesh, "log_level") == before, within=10)
    (event,) = mesh.control_plane.events("envoy.log_level")
    assert (event["resource"], event["envoy_level"], event["seconds"]) == ("Dataplane default/new", "debug", 1.0)


def test_an_envoy_that_has_what_it_should_have_differs_in_nothing(mesh: Playground) -> None:
    answer = asked(mesh, "diff")

    assert answer["differences"] == []
    assert all(answer["compared"][type_] > 0 for type_ in ("clusters", "endpoints", "listeners", "routes"))


@pytest.mark.long
def test_an_envoy_that_speaks_mtls_differs_in_nothing_and_tells_its_certificate(mesh: Playground) -> None:
    backend = {"name": "ca-1", "type": "builtin"}
    with mesh.having(MESH | {"mtls": {"enabledBackend": "ca-1", "backends": [backend]}}):
        eventually(lambda: asked(mesh, "certs").get("certificates", []) != [], within=20)
        eventually(lambda: asked(mesh, "diff")["differences"] == [], within=10)
        assert asked(mesh, "diff")["compared"]["secrets"] > 0

        (own, *_) = [detail for found in asked(mesh, "certs")["certificates"] for detail in found.get("cert_chain", ())]
        assert {"uri": "spiffe://default/new"} in own["subject_alt_names"]
        secrets = json.dumps(asked(mesh, "config_dump", type="secrets"))
        assert "PRIVATE KEY" not in secrets
        shown = Koguma(mesh.control_plane.api.url)("inspect", "dataplane", "new", "--certificates").out
        assert "spiffe://default/new" in shown


def timeout_patch(connect_timeout: str) -> Document:
    """Envoy takes no cluster whose connect timeout is zero."""
    changes = [{"op": "replace", "path": "/connectTimeout", "value": connect_timeout}]
    change = {"cluster": {"operation": "Patch", "match": {"name": CLUSTER}, "jsonPatches": changes}}
    spec = {"targetRef": {"kind": "Dataplane", "name": "new"}, "default": {"appendModifications": [change]}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}


@pytest.mark.long
def test_what_an_envoy_refuses_is_told_with_what_it_has_and_should_have(mesh: Playground) -> None:
    with mesh.having(timeout_patch("7s")):
        eventually(lambda: asked(mesh, "diff")["differences"] == [], within=10)
        with mesh.having(timeout_patch("0s")):
            (difference,) = asked(mesh, "diff")["differences"]

            assert (difference["type"], difference["name"], difference["state"]) == ("clusters", CLUSTER, "different")
            assert difference["fields"] == [{"path": "connectTimeout", "wanted": "0s", "envoy": "7s"}]
            assert "ConnectTimeout" in difference["reason"], "Envoy's own words"


def test_an_envoy_is_asked_as_kumas_page_does_it(mesh: Playground) -> None:
    proxy = "/meshes/default/dataplanes/new"
    stats = mesh.control_plane.request("GET", f"{proxy}/stats").raise_for_status()

    assert stats.headers["content-type"].startswith("text/plain")
    assert f"cluster.{CLUSTER}.upstream_cx_total: " in stats.text
    assert f"{CLUSTER}::" in mesh.control_plane.request("GET", f"{proxy}/clusters").text
    assert mesh.control_plane.get(f"{proxy}/clusters", format="json")["cluster_statuses"]
    assert mesh.control_plane.get(f"{proxy}/xds")["configs"]


@pytest.mark.skipif(memory.IS_COVERED, reason="the agent has to trace its own lines here")
def test_an_agent_that_has_answered_takes_little_memory(mesh: Playground, agent: Running) -> None:
    for subject in EnvoySubject:
        asked(mesh, subject)

    assert memory.resident(agent.pid) < 3.5 * memory.of_a_bare_interpreter()


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def koguma(mesh: Playground) -> Koguma:
    return Koguma(mesh.control_plane.api.url)


def test_an_operator_reads_what_an_envoy_has(mesh: Playground, koguma: Koguma) -> None:
    assert call(mesh.proxies["new"].outbound()).status == 200
    clusters = koguma("inspect", "dataplane", "new", "--clusters").lines
    assert clusters[0].split()[:5] == ["CLUSTER", "ENDPOINT", "HEALTH", "REQUESTS", "ERRORS"]
    (row,) = [line.split() for line in clusters if line.startswith(CLUSTER)]
    assert (row[2], int(row[3]) > 0, row[4]) == ("healthy", True, "0")

    chosen = ("--filter", f"^cluster.{CLUSTER}.upstream_rq_(total|time)$")

    def stats() -> list[str]:
        return koguma("inspect", "dataplane", "new", "--stats", *chosen).lines

    eventually(lambda: len(stats()) == 3, within=15)  # Envoy counts in histograms every 5 seconds
    names = [line.split()[0] for line in stats()]
    assert names == ["NAME", f"cluster.{CLUSTER}.upstream_rq_time", f"cluster.{CLUSTER}.upstream_rq_total"]
    assert "P50 " in stats()[1]
    (sentence,) = koguma("inspect", "dataplane", "new", "--certificates").lines
    assert sentence == "its Envoy shows no certificate, and has none by which it trusts others"
    dump = yaml.safe_load(koguma("inspect", "dataplane", "new", "--config-dump", "--type", "routes").out)
    assert [entry["route_config"]["name"] for entry in dump["configs"]]


def test_an_operator_compares_what_an_envoy_has(mesh: Playground, koguma: Koguma) -> None:
    same = koguma("diff", "dataplane", "new")
    assert (same.status, same.out.startswith("Envoy has what it should have: ")) == (0, True)
    with mesh.having(timeout_patch("0s")):
        other = koguma("diff", "dataplane", "new")

        assert other.status == 1
        assert other.lines[0] == f"clusters {CLUSTER}: not as it should be"
        assert other.lines[1].startswith("  Envoy says: ")
        assert other.lines[2] == "  connectTimeout: should be 0s, is 5s"
        assert json.loads(koguma("diff", "dataplane", "new", "-o", "json").out)["differences"][0]["name"] == CLUSTER
    served = yaml.safe_load(koguma("render", "new", "--type", "clusters").out)
    real = yaml.safe_load(koguma("render", "new", "--type", "clusters", "--from-envoy").out)
    assert served.keys() == real.keys()


def test_an_operator_lets_an_envoy_log_more(koguma: Koguma) -> None:
    lines = koguma("log-level", "new", "debug", "--for", "1s").lines

    assert lines[0].startswith("the Envoy of new logs at level debug, and as before in ")
    eventually(lambda: koguma("log-level", "new").lines == ["the Envoy of new logs at level warning"], within=10)


@pytest.mark.long
def test_an_agent_that_was_killed_is_told_to_be_gone(mesh: Playground, tmp_path: Path) -> None:
    proxy = Proxy("dying", "dying")
    question = f"/meshes/default/dataplanes/{proxy.name}/_envoy/server_info"
    with dp_run(mesh, proxy, tmp_path) as running:
        eventually(lambda: mesh.control_plane.request("GET", question).is_success, within=20)
        running.kill()
        eventually(
            lambda: "no agent of Dataplane default/dying" in mesh.control_plane.request("GET", question).text, within=10
        )


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "dataplanes", "--stats"),
        ("inspect", "rules", "new", "--stats"),
        ("inspect", "dataplane", "new", "--stats", "--clusters"),
        ("inspect", "dataplane", "new", "--filter", "a"),
        ("inspect", "dataplane", "new", "--stats", "-f", "mesh.yaml"),
        ("log-level", "new", "loud"),
        ("diff", "dataplane"),
        ("diff", "yesterday"),
        ("render", "new", "--from-envoy", "--type", "runtime"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_usage(koguma: Koguma, words: tuple[str, ...]) -> None:
    assert koguma(*words).status == 2
