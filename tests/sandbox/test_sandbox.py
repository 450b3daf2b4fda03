"""The sandbox of preflight: what it is made of, when there is none, and how it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cp.serving.preflight import folders, launcher, sandbox
from cp.serving.preflight.preflight import Preflight
from cp.serving.preflight.sandbox import Sandbox, SandboxContents, SandboxUnavailable
from cp.serving.preflight.scratch import EnvoyUnavailable
from cp.serving.preflight.seccomp import UnknownArchitecture, seccomp_program
from tests.support.envoy import ROOT
from tests.support.namespaces import sandboxed_envoy
from tests.support.processes import has_ended
from tests.support.waiting import eventually

CHECK = """
import asyncio
from pathlib import Path
from cp.serving.preflight.sandbox import Sandbox
asyncio.run(Sandbox(Path({!r})).check())
"""
pytestmark = pytest.mark.envoy
IDLE = SandboxContents(("--config-yaml", "{}", "--disable-hot-restart"))
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"',
    "sh",
)
SYSTEM_PYTHON = "/usr/bin/python3"
AS_OTHERS = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(),
    reason="only root becomes another user, who needs a Python that every user may run",
)


def checked(path: Path) -> None:
    asyncio.run(Sandbox(path).check())


def checked_by_another(*prefix: str) -> subprocess.CompletedProcess[str]:
    """A check in a process of its own, by the machine's Python, which every user may run."""
    command = [*prefix, SYSTEM_PYTHON, "-B", "-c", CHECK.format(str(sandboxed_envoy()))]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": os.defpath}, cwd="/"
    )


# --- where there is one ---

KILLED = """
import asyncio, sys
from cp.serving.preflight.sandbox import Sandbox
from cp.serving.preflight.scratch import scratch_envoy
from pathlib import Path
async def run():
    async with scratch_envoy(Sandbox(Path(sys.argv[1])), b"", 60):
        print("runs", flush=True)
        await asyncio.Event().wait()
asyncio.run(run())
"""


def test_killed_preflight_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", KILLED, str(sandboxed_envoy())]
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd="/") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        started, left = psutil.Process(process.pid).children(recursive=True), set(tmp_path.iterdir())
        with monkeypatch.context() as patched:
            patched.setattr(folders, "_YOUNG", 0.0)
            folders.remove_leftovers()
        assert set(tmp_path.iterdir()) == left
        process.kill()
    eventually(lambda: all(map(has_ended, started)))
    assert len(left) == len(set(tmp_path.iterdir())) == 2

    folders.remove_leftovers()
    assert set(tmp_path.iterdir()) == left
    monkeypatch.setattr(folders, "_YOUNG", 0.0)
    checked(sandboxed_envoy())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_sandbox_proves_itself(mask: int) -> None:
    envoy, before = sandboxed_envoy(), os.umask(mask)
    try:
        checked(envoy)
    finally:
        os.umask(before)


@AS_OTHERS
def test_sandbox_needs_no_rights() -> None:
    ended = checked_by_another(*NOBODY)

    assert ended.returncode == 0, ended.stderr


NO_NETWORK = {"_NEW_USER | _NEW_NS | _NEW_NET |": "_NEW_USER | _NEW_NS |", "        _start_loopback()\n": ""}
NO_FILTER = {"        _filter_calls(": "        len("}
MORE_FILES = {'plan["binds"].items()': '{**plan["binds"], **{plan["probe"]["file"]: plan["probe"]["file"]}}.items()'}


@pytest.mark.parametrize(
    ("changes", "possible"),
    [
        (NO_NETWORK, "connect to a port of the machine"),
        (NO_FILTER, "start a process, run a program"),
        (MORE_FILES, "read a file of the machine"),
    ],
)
def test_weaker_sandbox_is_not_trusted(
    changes: dict[str, str], possible: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(launcher.__file__).read_text()
    for part, replacement in changes.items():
        assert text.count(part) == 1
        text = text.replace(part, replacement)
    (weaker := tmp_path / "launcher.py").write_text(text)
    monkeypatch.setattr(sandbox, "_LAUNCHER", weaker)

    with pytest.raises(SandboxUnavailable, match=f"from inside, one can still .*{possible}"):
        checked(sandboxed_envoy())


def test_program_inherits_nothing(tmp_path: Path) -> None:
    (secret := tmp_path / "secret").touch()

    async def files() -> list[str]:
        async with Sandbox(sandboxed_envoy()).running(IDLE, 30) as process:
            return [opened.path for opened in program_of(process.pid).open_files()]

    with secret.open() as opened:
        os.set_inheritable(opened.fileno(), True)
        assert str(secret) not in asyncio.run(files())


def test_others_go_first() -> None:
    async def standing() -> tuple[int | None, int, str]:
        async with Sandbox(sandboxed_envoy()).running(IDLE, 30) as process:
            inside = program_of(process.pid)
            return inside.nice(), os.sched_getscheduler(inside.pid), danger(inside)

    assert asyncio.run(standing()) == (min(19, os.nice(0) + 5), os.SCHED_BATCH, "1000")


def danger(process: psutil.Process) -> str:
    """How soon the kernel ends it where memory is short."""
    return Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()


# --- where there is none ---


@AS_OTHERS
def test_machine_without_namespaces_has_no_sandbox() -> None:
    ended = checked_by_another(*WITHOUT_NAMESPACES)

    assert "there can be no sandbox on this machine (clone: No space left on device)" in ended.stderr


def test_script_is_no_envoy(tmp_path: Path) -> None:
    (script := tmp_path / "envoy").write_text("#!/bin/sh\n")

    with pytest.raises(SandboxUnavailable, match="is no ELF binary; name Envoy itself"):
        checked(script)


def test_program_that_fails_is_reported() -> None:
    sandboxed_envoy()
    with pytest.raises(SandboxUnavailable, match="/bin/false --version ends with status 1 in the sandbox"):
        checked(Path("/bin/false"))


def test_unknown_architecture_has_no_filter() -> None:
    with pytest.raises(UnknownArchitecture, match="those of x86_64 and aarch64 are"):
        seccomp_program("riscv64")


def test_other_systems_have_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(SandboxUnavailable, match="on Linux only, and this is darwin"):
        checked(sandboxed_envoy())


def test_failed_check_is_repeated(tmp_path: Path) -> None:
    (envoy := tmp_path / "envoy").touch()
    preflight = Preflight(envoy, 10)

    with pytest.raises(EnvoyUnavailable):
        asyncio.run(preflight.check())
    envoy.unlink()
    envoy.symlink_to(sandboxed_envoy())
    asyncio.run(preflight.check())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here that knows its groups")
def test_drop_in_allows_the_sandbox() -> None:
    """All other calls are among those that the unit allows."""
    lines = (ROOT / "debian/koguma-cp/preflight.conf").read_text().splitlines()
    allowed = {name for line in lines if line.startswith("SystemCallFilter=") for name in line[17:].split()}
    judge = ["systemd-analyze", "syscall-filter", "@mount"]
    mounting = subprocess.run(judge, check=True, capture_output=True, text=True).stdout.split()

    assert "@mount" in allowed
    assert {"mount", "mount_setattr", "pivot_root", "umount2"} <= set(mounting)
    assert allowed >= {"capset", "landlock_restrict_self", "sched_setscheduler", "sethostname", "setpriority"}


# --- its end ---


def program_of(supervisor: int) -> psutil.Process:
    (inside,) = psutil.Process(supervisor).children()
    return inside


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a sandbox and tells the id of its supervisor."""
    code = (
        f"import asyncio, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from cp.serving.preflight.sandbox import Sandbox, SandboxContents\n"
        "async def main():\n"
        f"  contents = SandboxContents({IDLE.arguments!r})\n"
        f"  async with Sandbox(Path({str(sandboxed_envoy())!r})).running(contents, 60) as process:\n"
        "    print(process.pid, flush=True); await process.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("is_supervisor", [False, True])
def test_sandbox_ends_with_its_parents(starter: subprocess.Popen[str], is_supervisor: bool) -> None:
    assert starter.stdout is not None
    supervisor = int(starter.stdout.readline())
    inside = program_of(supervisor)

    os.kill(supervisor if is_supervisor else starter.pid, signal.SIGKILL)
    eventually(lambda: has_ended(inside))


def test_sandbox_ends_after_its_lifetime() -> None:
    async def status() -> int:
        async with Sandbox(sandboxed_envoy()).running(IDLE, 1) as process:
            return await process.wait()

    assert asyncio.run(status()) == -signal.SIGALRM


def test_abandoned_sandbox_ends() -> None:
    async def run(is_running: asyncio.Future[psutil.Process]) -> None:
        async with Sandbox(sandboxed_envoy()).running(IDLE, 30) as process:
            is_running.set_result(program_of(process.pid))
            await asyncio.Event().wait()

    async def abandoned() -> psutil.Process:
        is_running: asyncio.Future[psutil.Process] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run(is_running))
            await is_running
            running.cancel()
        return is_running.result()

    inside = asyncio.run(abandoned())
    eventually(lambda: has_ended(inside))
