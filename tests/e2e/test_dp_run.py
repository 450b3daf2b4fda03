"""`koguma dp run`: a proxy as an operator starts it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.secrecy.markers import CORE, markers_in
from tests.support import memory
from tests.support.client import call
from tests.support.collector import REFERENCE, Collector, resource
from tests.support.control_plane import KOGUMA
from tests.support.envoy import envoy_binary
from tests.support.line_sink import LineSink
from tests.support.loopback import Address, new_address
from tests.support.mesh import Document, Proxy, http_route, mesh_service, policy, prefix, route_item, rule, service_item
from tests.support.playground import Playground
from tests.support.processes import Running, has_ended
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.ready()
    return empty_mesh


def dp_run(mesh: Playground, proxy: Proxy, folder: Path) -> Running:
    (file := folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(proxy.document))
    command = [str(KOGUMA), "dp", "run", "--dataplane-file", str(file), "--envoy-path", str(envoy_binary())]
    return Running([*command, "--cp-address", mesh.control_plane.api.url], folder / f"{proxy.name}.log")


@pytest.fixture
def proxy(mesh: Playground, tmp_path: Path) -> Iterator[tuple[Proxy, Running]]:
    """A proxy whose Dataplane nobody has stored before."""
    proxy = Proxy("new", "new", backends=("backend",))
    with dp_run(mesh, proxy, tmp_path) as running:

        def serves() -> bool:
            running.check()
            return call(proxy.outbound()).status == 200

        eventually(serves, within=20)
        yield proxy, running


@pytest.mark.skipif(memory.IS_COVERED, reason="the agent has to trace its own lines here")
def test_an_agent_takes_little_memory_beside_its_envoy(proxy: tuple[Proxy, Running]) -> None:
    """Where a bare interpreter takes 9 MB, the 40 MB that are promised are more than four times that."""
    agent = psutil.Process(proxy[1].pid)
    (guard,) = [child for child in agent.children() if "cp.agent.guard" in child.cmdline()]
    bare = memory.of_a_bare_interpreter()

    assert memory.resident(agent.pid) < 3.5 * bare
    assert memory.resident(guard.pid) < 2 * bare


def test_lines_of_access_logs_go_to_their_addresses(
    mesh: Playground, proxy: tuple[Proxy, Running], tmp_path: Path
) -> None:
    """One service, one route of it with another log; neither line is left in the output, where all others are."""
    backend = proxy[0].outbound()
    status = [{"key": "path", "value": "%REQ(:PATH)%"}, {"key": "status", "value": "%RESPONSE_CODE%"}]
    with LineSink() as of_service, LineSink() as of_route:
        plain = over_tcp(of_service, type="Plain", plain='%REQ(:PATH)% "%RESPONSE_CODE%" %REQ(X-MISSING)%')
        item = route_item("special", over_tcp(of_route, type="Json", json=status))
        also = {"type": "File", "file": {"path": "/dev/stdout", "format": {"plain": "passed on %REQ(:PATH)%"}}}
        plain["backends"].append(also)
        route = http_route("special", "backend", rule(prefix("/special")))
        with mesh.having(route, policy("MeshAccessLog", "logs", service_item("backend", plain), item)):
            arrived(of_service, backend, "/usual")
            arrived(of_route, backend, "/special")

            assert of_service.lines[-1] == '/usual "200" -'
            assert {"path": "/special", "status": 200} in [json.loads(line) for line in of_route.lines]
            arrived(of_service, backend, "/end")
            assert not [line for line in of_service.lines if "/special" in line]
            assert not [line for line in of_route.lines if "/special" not in line]
            output = (tmp_path / "new.log").read_text()
            assert "passed on /usual" in output
            assert 'koguma":' not in output


@pytest.mark.long
def test_a_collector_of_lines_that_was_away_gets_what_was_written_meanwhile(
    mesh: Playground, proxy: tuple[Proxy, Running], tmp_path: Path
) -> None:
    backend = proxy[0].outbound()
    with LineSink() as sink:
        plain = over_tcp(sink, type="Plain", plain="%REQ(:PATH)%")
        with mesh.having(policy("MeshAccessLog", "logs", service_item("backend", plain))):
            arrived(sink, backend, "/before")
            sink.away()
            assert [call(backend, f"/away/{number}").status for number in range(20)] == [200] * 20
            eventually(lambda: f"access logs for {sink.address}: " in (tmp_path / "new.log").read_text())
            sink.open()

            eventually(lambda: [line for line in sink.lines if "away" in line] == [f"/away/{n}" for n in range(20)])


def pushed(**more: object) -> Document:
    otel = {"type": "OpenTelemetry", "openTelemetry": {"backendRef": REFERENCE, "refreshInterval": "1s"}}
    return {
        "type": "MeshMetric",
        "mesh": "default",
        "name": "pushed",
        "spec": {"default": {"backends": [otel], **more}},
    }


def test_metrics_are_pushed_to_a_collector(mesh: Playground, proxy: tuple[Proxy, Running]) -> None:
    """The proxy's own as its profile has them, and those of an application."""
    call(proxy[0].outbound())
    with HttpService("application") as application, Collector() as collector:
        told = {"name": "shop", "address": application.address.host, "port": application.address.port}
        profiles = {"appendProfiles": [{"name": "None"}], "include": [{"type": "Regex", "match": "_rq_(total|time)$"}]}
        with mesh.having(collector.resource("collector"), pushed(applications=[told], sidecar={"profiles": profiles})):
            eventually(lambda: len(collector.metrics) > 0, within=20)
            found = collector.metrics[-1]
            assert set(found) == {"envoy", "shop"}
            names = {family.name for family in found["envoy"]}
            assert "envoy_cluster_upstream_rq_total" in names
            assert not [name for name in names if not name.endswith(("_rq_total", "_rq_time"))]


@pytest.mark.long
@pytest.mark.usefixtures("proxy")
def test_metrics_are_pushed_where_the_collector_moves(mesh: Playground, tmp_path: Path) -> None:
    with Collector() as one, Collector() as other, mesh.having(one.resource("collector"), pushed()):
        eventually(lambda: len(one.metrics) > 0, within=20)

        mesh.control_plane.apply(other.resource("collector"))
        eventually(lambda: len(other.metrics) > 1, within=20)
        before = len(one.metrics)
        eventually(lambda: len(other.metrics) > 3, within=20)
        assert len(one.metrics) == before

        away = new_address()
        mesh.control_plane.apply(resource("collector", away))
        eventually(lambda: f"metrics for {away}: " in (tmp_path / "new.log").read_text(), within=20)


def over_tcp(sink: LineSink, **form: object) -> Document:
    return {"backends": [{"type": "Tcp", "tcp": {"address": str(sink.address), "format": form}}]}


def arrived(sink: LineSink, backend: Address, path: str) -> None:
    """Requests until there is a line about one."""

    def there() -> bool:
        call(backend, path)
        return any(path in line for line in sink.lines)

    eventually(there, pause=0.2)


def rejected_filter() -> Document:
    """A patch with a filter that Envoy rejects as it has no prefix for its statistics, and prints with its headers."""
    header = {"header": {"key": "authorization", "value": CORE}}
    filter_ = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "request_headers_to_add_when_not_enforced": [header, {"header": {"key": "x-url", "value": f"//u:{CORE}@h"}}],
        "descriptors": [{"entries": [{"key": "x-api-key", "value": CORE}]}],
    }
    value = json.dumps({"name": "rejected", "typed_config": filter_})
    added = {"httpFilter": {"operation": "AddFirst", "value": value}}
    target = {"targetRef": {"kind": "Mesh"}, "default": {"appendModifications": [added]}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "rejected", "spec": target}


def test_log_of_envoy_has_no_secret(mesh: Playground, proxy: tuple[Proxy, Running]) -> None:
    running = proxy[1]
    with mesh.having(rejected_filter()):
        eventually(lambda: "Proto constraint validation failed" in running.log.read_text())

    log = running.log.read_text()
    assert 'key: "authorization"' in log
    assert "[redacted]" in log
    assert not markers_in(log.encode())
    running.send(signal.SIGTERM)
    running.wait(15)
    assert "caught ENVOY_SIGTERM" in running.log.read_text()


def envoys(running: Running) -> list[psutil.Process]:
    return [child for child in psutil.Process(running.pid).children(recursive=True) if "envoy" in child.name()]


def test_it_joins_the_mesh_with_the_dataplane_of_its_file(mesh: Playground, proxy: tuple[Proxy, Running]) -> None:
    assert mesh.control_plane.find(proxy[0].document) is not None
    assert call(proxy[0].outbound()).service == "backend"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_envoy(proxy: tuple[Proxy, Running], number: signal.Signals) -> None:
    running = proxy[1]
    (envoy,) = envoys(running)

    running.send(number)

    running.wait(15)
    assert has_ended(envoy)


def test_an_envoy_that_dies_is_not_started_again(proxy: tuple[Proxy, Running]) -> None:
    running = proxy[1]
    (envoy,) = envoys(running)

    envoy.kill()

    assert running.wait(15) != 0
