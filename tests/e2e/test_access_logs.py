"""What proxies write down of requests and connections, and where."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import call, greeting
from tests.support.collector import REFERENCE, Collector
from tests.support.loopback import Address
from tests.support.mesh import Document, http_route, mesh_service, policy, prefix, route_item, rule, service_item
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ROUTE = "kri_mhttpr_default___special_"
WHO = "%KUMA_MESH% %KUMA_SOURCE_SERVICE% %KUMA_DESTINATION_SERVICE% %KUMA_TRAFFIC_DIRECTION%"
_numbers = count()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    route = http_route("special", "backend", rule(prefix("/special")))
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"), route)
    empty_mesh.service("backend")
    empty_mesh.service("other")
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", "backend", "other", "tag=backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / f"{next(_numbers)}.log"


def file(path: Path, **form: object) -> Document:
    return {"backends": [{"type": "File", "file": {"path": str(path), **({"format": form} if form else {})}}]}


def plain(path: Path, text: str) -> Document:
    return file(path, type="Plain", plain=text)


def of_inbound(service: str, default: Document) -> Document:
    target = {"kind": "MeshSubset", "tags": {"kuma.io/service": service}}
    spec = {"targetRef": target, "rules": [{"default": default}]}
    return {"type": "MeshAccessLog", "mesh": "default", "name": f"of-{service}", "spec": spec}


def of_outbound(*items: Document) -> Document:
    return policy("MeshAccessLog", "of-frontend", *items)


def lines(log: Path) -> list[str]:
    found = log.read_text().splitlines()
    assert found, f"{log} is empty"
    return found


def logged(log: Path, address: Address, path: str = "/") -> str:
    """The last line about a request for a path, sent as often as it takes."""

    def there() -> str:
        call(address, path)
        about = [line for line in lines(log) if path.strip("/") in line]
        assert about, f"{log} says nothing about {path}"
        return about[-1]

    return eventually(there)


def test_what_is_called_is_in_the_log(mesh: Playground, backend: Address, log: Path) -> None:
    form = f"{WHO} %REQ(:METHOD)% %REQ(:PATH)% %RESPONSE_CODE% 100% %NONSENSE%"
    with mesh.having(of_outbound(service_item("backend", plain(log, form)))):
        said = logged(log, backend, "/seen")
        call(mesh.proxies["frontend"].outbound("other"), "/other")

        assert said == "default frontend backend OUTBOUND GET /seen 200 100% %NONSENSE%"
        assert logged(log, backend, "/last").endswith("GET /last 200 100% %NONSENSE%")
        assert not [line for line in lines(log) if "/other" in line]


def test_a_service_by_its_tag_is_logged_as_is_usual(mesh: Playground, log: Path) -> None:
    item = {"targetRef": {"kind": "Mesh"}, "default": file(log)}
    with mesh.having(of_outbound(item)):
        said = logged(log, mesh.proxies["frontend"].outbound("tag=backend"), "/tagged")

        assert f'"frontend" "backend" "{mesh.proxies["frontend"].host}"' in said
        assert '] default "GET /tagged HTTP/1.1" 200 - 0 ' in said


def test_what_a_service_answers_is_in_its_own_log(mesh: Playground, backend: Address, log: Path) -> None:
    fields = [{"key": "who", "value": WHO}, {"key": "status", "value": "%RESPONSE_CODE%"}, {"key": "p", "value": "%%"}]
    with mesh.having(of_inbound("backend", file(log, type="Json", json=fields))):
        said = json.loads(logged(log, backend))

        assert said == {"who": "default unknown backend INBOUND", "status": 200, "p": "%"}


def test_connections_are_in_a_log(mesh: Playground, log: Path) -> None:
    proxy = mesh.proxies["echo"]
    with mesh.having(of_inbound("echo", file(log))):

        def there() -> str:
            greeting(proxy.inbound)
            return lines(log)[-1]

        assert f" default {proxy.host}(unknown)->{proxy.workload}(echo) took " in eventually(there)


def test_a_route_has_a_log_of_its_own(mesh: Playground, backend: Address, log: Path, tmp_path: Path) -> None:
    of_route = tmp_path / "route.log"
    item = route_item("special", plain(of_route, "%ROUTE_NAME% %REQ(:PATH)%"))
    with mesh.having(of_outbound(service_item("backend", plain(log, "%REQ(:PATH)%")), item)):
        assert logged(of_route, backend, "/special/one") == f"{ROUTE} /special/one"
        assert logged(log, backend, "/usual") == "/usual"
        logged(of_route, backend, "/special/end")
        assert not [line for line in lines(log) if line.startswith("/special")]
        assert not [line for line in lines(of_route) if "/special" not in line]


def test_a_route_can_be_kept_out_of_the_log(mesh: Playground, backend: Address, log: Path) -> None:
    silence = route_item("special", {"backends": []})
    with mesh.having(of_outbound(service_item("backend", plain(log, "%REQ(:PATH)%")), silence)):
        logged(log, backend, "/usual")
        call(backend, "/special")
        call(backend, "/end")
        eventually(lambda: "/end" in lines(log))

        assert "/special" not in lines(log)


def test_a_collector_is_sent_every_request(mesh: Playground, backend: Address, collector: Collector) -> None:
    otel = {
        "endpoint": str(collector.address),
        "body": {"kvlistValue": {"values": [{"key": "path", "value": {"stringValue": "%REQ(:PATH)%"}}]}},
        "attributes": [{"key": "who", "value": WHO}],
    }
    default = {"backends": [{"type": "OpenTelemetry", "openTelemetry": otel}]}
    with mesh.having(of_outbound(service_item("backend", default)), of_inbound("backend", default)):
        wanted = {"default frontend backend OUTBOUND", "default unknown backend INBOUND"}

        def there() -> bool:
            call(backend, "/collected")
            return {_attribute(record, "who") for record in collector.logs} == wanted

        eventually(there)
        assert {record.body.kvlist_value.values[0].value.string_value for record in collector.logs} == {"/collected"}


@pytest.mark.long
def test_a_collector_that_is_referred_to_can_move(mesh: Playground, backend: Address) -> None:
    otel = {"backendRef": REFERENCE, "body": "%REQ(:PATH)%", "attributes": [{"key": "who", "value": WHO}]}
    default = {"backends": [{"openTelemetry": otel}]}
    logs = (of_outbound(service_item("backend", default)), of_inbound("backend", default))
    with Collector() as one, Collector() as other, mesh.having(one.resource("collector"), *logs):
        collected(one, backend, "/first")
        mesh.control_plane.apply(other.resource("collector"))
        collected(other, backend, "/second")
        collected(other, backend, "/third")

        assert "/third" not in {record.body.string_value for record in one.logs}


def collected(collector: Collector, backend: Address, path: str) -> None:
    """Requests until both ends have told of one."""

    def there() -> bool:
        call(backend, path)
        of_path = [record for record in collector.logs if record.body.string_value == path]
        return {_attribute(record, "who").split()[-1] for record in of_path} == {"INBOUND", "OUTBOUND"}

    eventually(there)


def _attribute(record: Any, key: str) -> str:
    return next(str(pair.value.string_value) for pair in record.attributes if pair.key == key)
