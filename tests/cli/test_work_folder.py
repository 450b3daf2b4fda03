"""One proxy in a folder and on its ports, and what a killed one left there."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from cp.agent import guard, ports, supervise, work_folder
from cp.agent.lock_note import note
from cp.client.problem import Problem
from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.cli.test_dp import FakeEnvoy, dp_run, envoy, envoy_of, web  # noqa: F401  # fixtures
from tests.support.loopback import Address, new_address
from tests.support.processes import Running, has_ended
from tests.support.waiting import eventually

PATIENCE = 20.0


def test_a_second_one_in_a_folder_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    with (
        work_folder.folder_lock(tmp_path, PATIENCE, print),
        pytest.raises(Problem, match=r"is in use by another koguma dp run, process \d+"),
        work_folder.folder_lock(tmp_path, PATIENCE, print),
    ):
        pass


def test_an_envoy_that_is_draining_there_is_waited_for(tmp_path: Path) -> None:
    messages = list[str]()
    announced = threading.Event()

    def drain() -> None:
        with work_folder.folder_lock(tmp_path, PATIENCE, messages.append) as lock:
            note(lock, {"process": 1, "draining": 4711})
            holding.set()
            announced.wait(PATIENCE)

    def say(text: str) -> None:
        messages.append(text)
        announced.set()

    holding = threading.Event()
    thread = threading.Thread(target=drain)
    thread.start()
    holding.wait(PATIENCE)
    with work_folder.folder_lock(tmp_path, PATIENCE, say):
        thread.join(PATIENCE)

    assert messages == ["waiting: Envoy, process 4711, is draining, as its koguma dp run was killed"]


@contextmanager
def sleeping(*arguments: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *arguments])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_only_a_process_with_the_folders_bootstrap_configuration_is_its_envoy(tmp_path: Path) -> None:
    """The number of a process may be another one's by now."""
    arguments = ("--config-path", str(tmp_path / work_folder.BOOTSTRAP))
    with sleeping(*arguments) as orphan, sleeping("--config-path", "/elsewhere") as stranger:
        for pid, expected in ((orphan, orphan), (stranger, None)):
            with work_folder.envoy_note(tmp_path, pid):
                assert work_folder.orphan(tmp_path) == expected
    (tmp_path / "envoy.pid").write_text(f"{orphan}\n")
    assert work_folder.orphan(tmp_path) is None, "it has ended"


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_envoy_is_recognized_without_proc_by_ps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folder, "_PROC", tmp_path / "proc")

    with sleeping("--config-path", str(tmp_path / work_folder.BOOTSTRAP)) as envoy_pid, sleeping() as stranger:
        assert [work_folder.is_envoy(tmp_path, pid) for pid in (envoy_pid, stranger)] == [True, False]


def test_a_guard_ends_an_envoy_that_it_cannot_drain_and_nobody_else(tmp_path: Path) -> None:
    """What it is told to drain has no admin interface; of two processes one is the folder's."""
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    joining = {"mesh": "default", "name": "web", "work_dir": str(tmp_path)}
    with sleeping(str(tmp_path / work_folder.BOOTSTRAP)) as orphan, sleeping("/elsewhere") as stranger:
        for pid in (orphan, stranger):
            with pytest.raises(KeyError, match="admin"):
                guard._carry_out(
                    {
                        "envoy": pid,
                        "bootstrap": "{}",
                        "address": "http://127.0.0.1:9",
                        "joining": joining,
                        "credentials": {},
                        "seconds": 1,
                        "is_temporary": False,
                    },
                    lock,
                )
        eventually(lambda: psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE)  # the kernel takes its time
        assert psutil.Process(stranger).status() != psutil.STATUS_ZOMBIE
    os.close(lock)


@pytest.mark.parametrize("is_temporary", [True, False])
def test_guard_removes_temporary_folder(tmp_path: Path, is_temporary: bool) -> None:
    (folder := tmp_path / "work").mkdir()
    (folder / work_folder.BOOTSTRAP).write_text("{}")
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    with sleeping(str(folder / work_folder.BOOTSTRAP)) as orphan:
        orders = {
            "envoy": orphan,
            "joining": {"work_dir": str(folder)},
            "credentials": {},
            "is_temporary": is_temporary,
        }
        with pytest.raises(KeyError, match="address"):
            guard._carry_out(orders, lock)
    os.close(lock)
    assert folder.exists() is not is_temporary


def test_a_guard_says_that_it_drains_before_it_imports_what_that_takes() -> None:
    """Whoever starts just then is refused otherwise."""
    loaded = "import sys, cp.agent.guard; sys.exit(any(name in sys.modules for name in ('httpx', 'typer', 'yaml')))"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_a_lock_is_waited_for_that_a_killed_process_left_to_its_guard(tmp_path: Path) -> None:
    """The guard has not said yet that it drains."""
    with sleeping() as killed:
        pass
    looked = threading.Event()

    def hold() -> None:
        with work_folder.folder_lock(tmp_path, PATIENCE, print) as lock:
            note(lock, {"process": killed})
            holding.set()
            looked.wait(1)

    holding = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(PATIENCE)
    with work_folder.folder_lock(tmp_path, PATIENCE, print):
        thread.join(PATIENCE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_gets_the_signal_also_where_what_comes_before_fails() -> None:
    def ending(_at_once: threading.Event) -> None:
        raise RuntimeError("the control plane answers nonsense")

    handler_before = signal.getsignal(signal.SIGTERM)

    def ask() -> None:
        eventually(lambda: signal.getsignal(signal.SIGTERM) is not handler_before, PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)

    with supervise.started([sys.executable, "-c", "import time; time.sleep(5)"], {}) as child:
        asking = threading.Thread(target=ask)
        asking.start()
        assert supervise.run(child, ending) == 128 + signal.SIGTERM
        asking.join(PATIENCE)


def test_who_is_ended_in_the_middle_of_a_start_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            begun.append(self)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    handler_before = signal.getsignal(signal.SIGTERM)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    try:
        with pytest.raises(SystemExit), supervise.tidied_up(), supervise.started(command, {}):
            pytest.fail("it goes on")
        assert begun[0].poll() == -signal.SIGTERM
    finally:
        begun[0].kill()
    assert signal.getsignal(signal.SIGTERM) == handler_before


def test_a_process_that_does_not_end_when_it_is_asked_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_PATIENCE", 0.2)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        guard.end(process.pid)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_a_process_has_ended_though_its_parent_takes_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container often nobody does, and the next one must not wait for that."""
    monkeypatch.setattr(guard, "_PATIENCE", 2.0)
    sent = list[int]()
    kill = os.kill

    def noted(pid: int, number: int) -> None:
        sent.append(number)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", noted)
    with sleeping() as process:
        guard.end(process)

    assert [number for number in sent if number] == [signal.SIGTERM]


@contextmanager
def listening(address: Address, *, shares: bool) -> Iterator[None]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
        listener.bind(address)
        listener.listen()
        yield


@pytest.mark.parametrize("kind", ["inbound", "outbound"])
def test_a_port_that_another_proxy_would_share_is_refused(kind: str) -> None:
    address = new_address()
    document = {"networking": {"address": address.host, kind: [{"address": address.host, "port": address.port}]}}
    ports.must_not_be_shared(document)

    with listening(address, shares=True), pytest.raises(Problem, match=f"another proxy listens on {address}"):
        ports.must_not_be_shared(document)
    with listening(address, shares=False):
        ports.must_not_be_shared(document)  # Envoy cannot share it, and says so itself


def test_a_port_of_ip_6_is_shown_as_one_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_shared(_host: str, _port: int) -> bool:
        return True

    monkeypatch.setattr(ports, "_would_be_shared", is_shared)
    with pytest.raises(Problem, match=r"listens on \[::1\]:80, 10\.0\.0\.1:80,"):
        ports.must_not_be_shared(
            {"networking": {"inbound": [{"address": "::1", "port": 80}, {"address": "10.0.0.1", "port": 80}]}}
        )


@pytest.mark.parametrize("address", ["10.255.255.1", "::1", "", "no address", 7])
def test_what_cannot_be_listened_on_is_for_envoy_to_tell(address: object) -> None:
    ports.must_not_be_shared({"networking": {"address": address, "inbound": [{"port": 70000}, {"port": 1}, {}]}})


def test_an_envoy_that_was_left_without_anybody_is_ended_before_the_next_one_starts(
    koguma: Koguma,
    envoy: FakeEnvoy,  # noqa: F811
    web: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    command = [*dp_run(envoy, web), "--work-dir", tmp_path / "work"]
    with Running(command, tmp_path / "first.log", koguma.environment) as first:
        eventually(lambda: bool(envoy.record), PATIENCE)
        orphan = envoy_of(first)
        for process in [child for child in psutil.Process(first.pid).children() if "cp.agent.guard" in child.cmdline()]:
            process.kill()
        first.kill()
    assert orphan.is_running()
    Path(f"{envoy.path}.json").unlink()

    with Running(command, tmp_path / "second.log", koguma.environment) as second:
        eventually(lambda: bool(envoy.record), PATIENCE)
        assert f"draining Envoy, process {orphan.pid}, which a killed koguma dp run left here" in second.log.read_text()
        assert has_ended(orphan)
        assert dataplane()["name"] in second.log.read_text()


def test_the_next_one_starts_at_once_after_the_first_was_killed(
    koguma: Koguma,
    envoy: FakeEnvoy,  # noqa: F811
    web: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    command = [*dp_run(envoy, web), "--work-dir", tmp_path / "work"]
    with Running(command, tmp_path / "first.log", koguma.environment) as first:
        eventually(lambda: bool(envoy.record), PATIENCE)
        orphan = envoy_of(first)
        first.kill()
        with work_folder.folder_lock(tmp_path / "work", PATIENCE, print):
            assert has_ended(orphan)


def test_a_killed_koguma_takes_its_envoy_with_it(
    koguma: Koguma,
    envoy: FakeEnvoy,  # noqa: F811
    web: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    with Running(dp_run(envoy, web), tmp_path / "dp.log", koguma.environment) as running:
        eventually(lambda: bool(envoy.record), PATIENCE)
        orphan = envoy_of(running)
        running.kill()

    eventually(lambda: has_ended(orphan), PATIENCE)
    eventually(lambda: koguma("get", "dp", "web-1").status == 1, PATIENCE)
