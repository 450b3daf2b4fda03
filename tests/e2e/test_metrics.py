"""Metrics of a proxy as a collector gets them."""

import re
from typing import Any

import pytest

from tests.monitoring.expressions import expressions, metrics_of
from tests.support.client import Answer, call
from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

FAMILY = re.compile(r"^# TYPE (\S+) ", re.MULTILINE)
PART = re.compile(r"_(bucket|sum|count)$")
USED, UNUSED = "envoy_cluster_upstream_rq_total", "envoy_cluster_upstream_rq_tx_reset"


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    call(empty_mesh.proxies["frontend"].outbound(), "/")
    return empty_mesh


@pytest.fixture
def there(mesh: Playground) -> Address:
    """Where the frontend's metrics are to be had."""
    proxy = mesh.proxies["frontend"]
    return Address(proxy.host, proxy.port("metrics"))


def metrics(there: Address, path: str = "/metrics", sidecar: Any = None, applications: Any = None) -> Document:
    backend = {"type": "Prometheus", "prometheus": {"port": there.port, "path": path}}
    default = {"backends": [backend], "sidecar": sidecar, "applications": applications}
    given = {name: value for name, value in default.items() if value is not None}
    spec = {"targetRef": {"kind": "Dataplane", "name": "frontend"}, "default": given}
    return {"type": "MeshMetric", "mesh": "default", "name": "metrics", "spec": spec}


def profiles(*names: str, **selectors: list[tuple[str, str]]) -> Document:
    chosen = {name: [{"type": how, "match": text} for how, text in some] for name, some in selectors.items()}
    return {"profiles": {"appendProfiles": [{"name": name} for name in names], **chosen}}


def collected(there: Address, path: str = "/metrics") -> Answer:
    """What a collector gets, once there is something."""
    eventually(lambda: _status(there, path) == 200)
    return call(there, path)


def families(there: Address) -> set[str]:
    return set(FAMILY.findall(collected(there).body))


def _status(there: Address, path: str) -> int:
    try:
        return call(there, path).status
    except OSError:
        return 0


def test_a_port_and_a_path_tell_what_the_proxy_did_and_nothing_else(mesh: Playground, there: Address) -> None:
    with mesh.having(metrics(there, "/here")):
        answer = collected(there, "/here")

        assert USED in FAMILY.findall(answer.body)
        assert 'envoy_cluster_name="kri_msvc_default___backend_main"' in answer.body
        assert {_status(there, path) for path in ("/metrics", "/stats/prometheus", "/config_dump", "/here/x")} == {404}
        assert call(there, "/here", method="POST").status == 404
        assert call(there, "/here?format=json").body.startswith("# TYPE")
    eventually(lambda: _status(there, "/here") == 0)


@pytest.mark.parametrize("unused", [True, False])
def test_what_was_never_used_is_told_where_asked_for(mesh: Playground, there: Address, unused: bool) -> None:
    with mesh.having(metrics(there, sidecar={"includeUnused": unused})):
        assert (USED in families(there), UNUSED in families(there)) == (True, unused)


def test_everything_of_envoy_that_dashboards_and_alerts_name_is_told(mesh: Playground, there: Address) -> None:
    named = {name for _, expression in expressions() for name in metrics_of(expression) if name.startswith("envoy_")}
    with mesh.having(metrics(there, sidecar={"includeUnused": True})):
        page = families(there)

    assert len(named) > 10
    assert {PART.sub("", name) for name in named} <= page


def test_profiles_and_selectors_choose_by_the_names_that_prometheus_sees(mesh: Playground, there: Address) -> None:
    chosen = profiles(
        "Basic",
        exclude=[("Prefix", "envoy_server"), ("Contains", "_cx_"), ("Regex", "upstream_rq_(total|xx)$")],
        include=[("Exact", "envoy_server_live"), ("Regex", "^envoy_listener_manager_.*_[a-z]+ess$")],
    )
    with mesh.having(metrics(there, sidecar=chosen)):
        found = families(there)

    assert {"envoy_server_live", "envoy_listener_manager_lds_update_success"} <= found
    assert "envoy_cluster_upstream_rq_completed" in found
    assert not found & {"envoy_server_uptime", "envoy_cluster_upstream_cx_total", USED, "envoy_cluster_upstream_rq_xx"}
    assert not any(name.startswith("envoy_cluster_manager") for name in found)


def test_the_profile_none_leaves_what_is_included(mesh: Playground, there: Address) -> None:
    with mesh.having(metrics(there, sidecar=profiles("None", include=[("Exact", "envoy_server_live")]))):
        answer = collected(there)

    assert answer.body == "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"


def test_metrics_of_applications_stand_behind_those_of_the_proxy(mesh: Playground, there: Address) -> None:
    with HttpService("app") as up, HttpService("gone") as down:
        down.close()
        applications = [{"address": one.address.host, "port": one.address.port, "path": "/own"} for one in (down, up)]
        with mesh.having(metrics(there, applications=applications)):
            answer = collected(there)

    *of_proxy, of_application = answer.body.splitlines()
    assert USED in FAMILY.findall(answer.body)
    assert {line.partition("_")[0] for line in of_proxy} == {"# TYPE envoy", "envoy"}
    assert '"service": "app"' in of_application
    assert '"path": "/own"' in of_application
