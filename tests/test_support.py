"""What the tests with real Envoys stand on: it has to see what happens, and to leave nothing behind."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.bootstraps import static
from tests.support.client import Traffic, call, greeting
from tests.support.control_plane import KOGUMA, ControlPlane
from tests.support.envoy import Envoy
from tests.support.loopback import Address, new_address
from tests.support.processes import Ended, Running, RunningKoguma
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def service() -> Iterator[HttpService]:
    with HttpService("backend") as service:
        yield service


@pytest.fixture(scope="module")
def listener() -> Address:
    return new_address()


@pytest.fixture(scope="module")
def envoy(service: HttpService, listener: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    bootstrap = static(new_address(), listener, service.address, timeout="0.3s")
    with Envoy(bootstrap, tmp_path_factory.mktemp("envoy")) as envoy:
        yield envoy.ready()


@pytest.mark.envoy
def test_a_request_comes_through_and_is_counted(envoy: Envoy, listener: Address, service: HttpService) -> None:
    service.on("/seen")

    answer = call(listener, "/seen?a=b", "POST", {"x-one": "1"})

    assert (answer.status, answer.service) == (200, "backend")
    assert (answer.seen["method"], answer.seen["path"]) == ("POST", "/seen?a=b")
    assert answer.seen["headers"]["x-one"] == "1"
    assert service.hits("/seen") == 1
    assert envoy.stat("cluster.upstream.upstream_rq_200") >= 1


@pytest.mark.envoy
def test_a_slow_answer_is_cut_off_when_its_time_is_out(envoy: Envoy, listener: Address, service: HttpService) -> None:
    service.on("/slow", delay=5)

    answer = call(listener, "/slow")

    assert answer.status == 504
    assert answer.seconds == pytest.approx(0.3, abs=0.1)


@pytest.mark.envoy
def test_traffic_records_failures_with_their_time(envoy: Envoy, listener: Address, service: HttpService) -> None:
    service.on("/steady")
    with Traffic(listener, "/steady", per_second=200) as traffic:
        eventually(lambda: len(traffic.outcomes) > 20)
        assert not traffic.failures
        moment = time.monotonic()
        service.on("/steady", failures=3)
        eventually(lambda: len(traffic.since(moment)) > 20)

    assert [outcome.status for outcome in traffic.failures] == [503] * 3
    assert traffic.failures[-1] in traffic.since(moment)


def test_traffic_against_a_closed_port_fails_with_the_reason() -> None:
    with Traffic(new_address(), per_second=200) as traffic:
        eventually(lambda: len(traffic.failures) > 2)

    assert "Connection refused" in traffic.failures[0].error


@pytest.mark.envoy
def test_an_envoy_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = {**static(new_address(), new_address(), new_address()), "no_such_field": 1}
    with Envoy(broken, tmp_path) as envoy, pytest.raises(Ended, match="no_such_field"):
        envoy.ready()


@pytest.mark.envoy
def test_a_stopped_envoy_is_gone(service: HttpService, tmp_path: Path) -> None:
    with Envoy(static(new_address(), new_address(), service.address), tmp_path) as envoy:
        pid = envoy.ready().process.pid
        assert psutil.pid_exists(pid)

    assert not psutil.pid_exists(pid)


def test_a_process_that_does_not_listen_to_requests_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    with Running(["sh", "-c", script], tmp_path / "log") as running:
        eventually(lambda: "up" in running.tail())
        assert running.stop(within=0.2) == -9


@pytest.mark.parametrize(
    ("words", "code"),
    [(["version"], 0), (["run", "--store", "nonsense:"], 1), (["get", "a", "b", "--no-such-option"], 2)],
)
def test_a_koguma_that_was_forked_does_what_a_started_does(words: list[str], code: int, tmp_path: Path) -> None:
    started = Running([KOGUMA, *words], tmp_path / "started")
    forked = RunningKoguma([KOGUMA, *words], tmp_path / "forked")

    assert (started.wait(), forked.wait()) == (code, code)
    assert started.tail() == forked.tail() != ""


def test_a_koguma_that_was_forked_has_the_environment_and_the_folder_that_it_is_given(tmp_path: Path) -> None:
    environment = {"KOGUMA_BIND": "nowhere.invalid", "KUMA_GENERAL_WORK_DIR": "work"}
    with RunningKoguma([KOGUMA, "run"], tmp_path / "log", environment, cwd=tmp_path) as running:
        assert running.wait() == 1

    assert "nowhere.invalid" in running.tail()
    assert (tmp_path / "work").is_dir()


def test_a_koguma_that_was_forked_is_killed_and_tells_that_it_was(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as control_plane:
        process = control_plane.start().ready().process

        assert process.code is None
        assert psutil.Process(process.pid).is_running()
        assert process.kill() == process.code == -9
        with pytest.raises(Ended, match="ended with -9"):
            process.check()


def test_a_control_plane_that_does_not_become_ready_is_not_left_behind(tmp_path: Path) -> None:
    control_plane = ControlPlane(tmp_path, "nonsense:")

    with pytest.raises(Ended, match="there is no store 'nonsense:'"), control_plane:
        raise AssertionError("nobody gets here")
    assert control_plane._client.is_closed


def test_a_failing_service_fails_as_often_as_it_was_told(service: HttpService) -> None:
    service.on("/flaky", failures=2, failure=500)

    assert [call(service.address, "/flaky").status for _ in range(3)] == [500, 500, 200]
    assert service.hits("/flaky") == 3


def test_a_tcp_service_greets() -> None:
    with TcpService("v1") as service:
        assert greeting(service.address) == "v1"


def test_what_never_holds_is_reported_with_the_last_reason() -> None:
    def never() -> bool:
        assert [] == [1]
        return True

    with pytest.raises(AssertionError, match=r"not within 0.1 s: assert \[\] == \[1\]"):
        eventually(never, within=0.1)
