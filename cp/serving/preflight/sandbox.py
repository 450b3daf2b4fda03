"""`Sandbox`: runs a program that can reach nothing of this machine, whatever it is made to do. See record 0093."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import platform
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from cp.serving.preflight.folders import remove_leftovers, temporary_folder
from cp.serving.preflight.seccomp import EXEC_FD, UnknownArchitecture, seccomp_program

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_PROGRAM: Final = "/program"
_LIBRARIES: Final = "/lib"
_SCRATCH: Final = "/scratch"
_ELF: Final = b"\x7fELF"
_LONGEST_TEXT: Final = 16 * 1024
_PROBE_SECONDS: Final = 20

_HINT: Final = "see docs/guides/plan-a-change.md#where-there-is-no-sandbox"

LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "CORE": 1,  # with 0 the kernel still pipes a dump to a program, where one is set up for that
        "CPU": 60,
        "DATA": 2 * 1024**3,  # a policy may ask for tables of any size
        "FSIZE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NPROC": 256,
    }
)
"""Limits of the process, in bytes or seconds of processor time."""


class SandboxUnavailable(Exception):
    """There is no sandbox on this machine, or the program cannot run in it."""


@dataclass(frozen=True, slots=True)
class SandboxContents:
    """All that a program in a sandbox can reach, next to its libraries and the empty folder `/scratch`."""

    arguments: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by their paths inside."""

    sockets: Mapping[str, Path] = field(default_factory=dict)
    """Sockets of this machine by their paths inside."""


class Sandbox:
    """Runs one program. Before the sandbox is trusted, a probe tries to get out of it."""

    def __init__(self, program: Path, limits: Mapping[str, int] = LIMITS) -> None:
        self._program = program
        self._limits = limits
        self._trusted: tuple[int, ...] | None = None
        self._libraries: Mapping[str, str] = {}
        self.unavailable = ""
        """The reason why there was no sandbox when one was needed last; empty if there was one."""

    async def check(self) -> None:
        """Probe the sandbox, unless that was done for this version of the program. Raises `SandboxUnavailable`."""
        with self._failure_noted():
            identity = _identity(self._program)
            if identity != self._trusted:
                await asyncio.to_thread(remove_leftovers)
                self._libraries = await _libraries(self._program)
                await self._probe()
                await self._start_once()
                self._trusted, self.unavailable = identity, ""

    @asynccontextmanager
    async def running(self, contents: SandboxContents, lifetime: float) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the program for as long as the block lasts, at most `lifetime` seconds. Raises `SandboxUnavailable`."""
        await self.check()
        with self._failure_noted():
            async with self._launched(contents, lifetime) as process:
                yield process

    @contextmanager
    def _failure_noted(self) -> Iterator[None]:
        """Keep the reason of a failure, and probe again before the next use."""
        try:
            yield
        except SandboxUnavailable as error:
            self._trusted, self.unavailable = None, str(error)
            raise

    async def _probe(self) -> None:
        """Try to get out in each way that the launcher knows, from inside."""
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
            name = f"koguma-preflight-{os.urandom(8).hex()}"
            abstract.bind(f"\0{name}")
            abstract.listen()
            port = server.getsockname()[1]
            target = {"file": str(_LAUNCHER), "port": port, "name": name, "process": os.getpid(), "scratch": _SCRATCH}
            async with self._launched(SandboxContents(), _PROBE_SECONDS, target) as process:
                if status := await process.wait():
                    raise SandboxUnavailable(f"the probe of the sandbox ended with status {status}")

    async def _start_once(self) -> None:
        """Make sure that the program finds in the sandbox what it needs to start."""
        async with self._launched(SandboxContents(("--version",)), _PROBE_SECONDS) as process:
            if status := await process.wait():
                raise SandboxUnavailable(f"{self._program} --version ends with status {status} in the sandbox")

    @asynccontextmanager
    async def _launched(
        self, contents: SandboxContents, lifetime: float, probe: Mapping[str, Any] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        with temporary_folder() as root:
            plan = {**self._plan(contents, lifetime), "root": root, "probe": probe}
            process = await _launcher()
            try:
                await _must_start(process, plan)
                yield process
            finally:
                await _end(process)  # all of the sandbox ends with it

    def _plan(self, contents: SandboxContents, lifetime: float) -> dict[str, Any]:
        """Return the plan of the launcher."""
        try:
            program = seccomp_program(platform.machine())
        except UnknownArchitecture as error:
            raise SandboxUnavailable(str(error)) from None
        files = {_PROGRAM: str(self._program.resolve()), **self._libraries, "/dev/null": os.devnull}
        return {
            "parent": os.getpid(),
            "machine": platform.machine(),
            "lifetime": max(1, round(lifetime)),
            "program": _PROGRAM,
            "arguments": list(contents.arguments),
            "libraries": _LIBRARIES,
            "files": dict(contents.files),
            "binds": files | {path: str(source) for path, source in contents.sockets.items()},
            "scratch": _SCRATCH,
            "scratch_size": "size=1m,nr_inodes=64",
            "limits": dict(self._limits),
            "exec_fd": EXEC_FD,
            "seccomp": base64.b64encode(program).decode(),
        }


def _identity(program: Path) -> tuple[int, ...]:
    """Return numbers that differ for each version of a file. Raises `SandboxUnavailable`."""
    if sys.platform != "linux":
        raise SandboxUnavailable(f"there are sandboxes on Linux only, and this is {sys.platform}")
    try:
        with program.open("rb") as file:
            status, start = os.fstat(file.fileno()), file.read(len(_ELF))
    except OSError as error:
        raise SandboxUnavailable(f"{program} cannot be read: {error.strerror}") from None
    if start != _ELF:
        raise SandboxUnavailable(f"{program} is no ELF binary; name Envoy itself, not a script that starts it")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


async def _libraries(program: Path) -> dict[str, str]:
    """Have the loader list the shared libraries of a program. They and the loader are keyed by their paths inside."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"LD_TRACE_LOADED_OBJECTS": "1"},
        )
    except OSError as error:
        raise SandboxUnavailable(f"{program} cannot be started: {error.strerror}") from None
    assert process.stdout is not None  # noqa: S101  # narrows the type
    try:
        listed = await _text(process.stdout)
        await process.wait()
    finally:
        await _end(process)
    return dict(filter(None, map(_library, listed.splitlines())))


def _library(line: str) -> tuple[str, str] | None:
    """Parse `NAME => FILE (ADDRESS)`, or `FILE (ADDRESS)` for the loader, which stays at its path."""
    path, _, _ = line.strip().partition(" (")
    name, arrow, file = path.partition(" => ")
    inside = f"{_LIBRARIES}/{PurePosixPath(name).name}" if arrow else path
    source = file if arrow else path
    return (inside, source) if source.startswith("/") else None  # others are missing, or part of the kernel


async def _launcher() -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-B", str(_LAUNCHER)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
            restore_signals=False,  # what it cannot write fails, and does not end it
        )
    except OSError as error:
        raise SandboxUnavailable(f"{sys.executable} cannot be started: {error.strerror}") from None


async def _must_start(process: asyncio.subprocess.Process, plan: Mapping[str, Any]) -> None:
    """Wait until the program runs. Raises `SandboxUnavailable` with what the launcher says instead."""
    assert process.stdin is not None  # noqa: S101  # narrows the type
    assert process.stderr is not None  # noqa: S101  # narrows the type
    with suppress(ConnectionError):
        process.stdin.write(json.dumps(plan).encode())
        await process.stdin.drain()
    process.stdin.close()
    if reason := await _text(process.stderr):
        await process.wait()
        raise SandboxUnavailable(f"there can be no sandbox on this machine ({reason}); {_HINT}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()


async def _text(stream: asyncio.StreamReader) -> str:
    """Return the beginning of a text, once all of it is there."""
    text = b""
    while len(text) < _LONGEST_TEXT and (part := await stream.read(_LONGEST_TEXT)):
        text += part
    return text.decode(errors="replace").strip()
