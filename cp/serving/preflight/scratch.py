"""`ScratchEnvoy`: an Envoy for a moment, that takes what it is shown over our own sessions, on a socket of its own.

It has no port and no environment, and what it is shown does nothing (`harmless`).
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cp.ads.connection import Connection
from cp.ads.hub import Hub, ProxyWatch
from cp.ads.server import ServerOptions, serving
from cp.ads.session.messages import Nack
from cp.translate.packing import PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from generators.bootstrap import ControlPlane, EnvoyIdentity, ListenAddress, bootstrap

_IDENTITY: Final = ("preflight", "scratch", "preflight")
_PROXY: Final = "preflight.scratch"
_SOCKET: Final = "ads"
_ROOTS: Final = "roots.pem"
_GRACE: Final = 0.2
_LOOK_EVERY: Final = 0.1
"""Seconds after which it is looked whether the process is still there."""

_MEMORY: Final = 2 * 1024**3
"""Bytes. A policy may ask for tables of any size, and what takes all memory ends others."""

_FLAGS: Final = ("--log-level", "critical", "--concurrency", "1", "--disable-hot-restart")


class EnvoyUnavailable(Exception):
    """There is no Envoy, or it does not start or answer: nobody knows what it would say."""


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """What an Envoy says to the resources that it was shown together."""

    nacks: tuple[tuple[str, Nack], ...]
    """With the type of the resources."""

    judged: frozenset[tuple[str, str]]
    """The types and names of the resources that it asked for. For others nothing that it has taken refers to them."""


class ScratchEnvoy:
    """One Envoy that runs, shown one set of resources after the other."""

    def __init__(self, hub: Hub, process: asyncio.subprocess.Process) -> None:
        self._hub = hub
        self._process = process

    @property
    def version(self) -> str:
        """The version that it says to be."""
        connections = self._hub.observer.of(_PROXY)
        return connections[0].node.version if connections else ""

    async def shown(self, resources: tuple[PackedResource, ...]) -> RoundAnswer:
        """What it says to some resources, once it has said something to all of them. Raises `EnvoyUnavailable`."""
        snapshot = Snapshot(SnapshotPart(resources))
        with self._hub.observer.watch() as watch:
            self._hub.publisher.publish(_PROXY, snapshot)
            connection = await self._answered(snapshot, watch)
        nacks = [(status.type_url, nack) for status in connection.session.statuses for nack in status.nacks]
        names = ((packed.type_url, packed.name) for packed in resources)
        return RoundAnswer(tuple(nacks), frozenset(name for name in names if connection.session.asks_for(*name)))

    async def _answered(self, snapshot: Snapshot, watch: ProxyWatch) -> Connection:
        """Its connection, once it has answered."""
        while self._process.returncode is None:
            for connection in self._hub.observer.of(_PROXY):
                if connection.session.is_at(snapshot) or connection.session.has_answered_all(snapshot):
                    return connection
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await watch.news()
        raise EnvoyUnavailable(f"it ended with status {self._process.returncode}")


def scratch_config(folder: Path) -> dict[str, Any]:
    """The configuration with which it starts. It has no file but those of its folder."""
    admin, roots = ListenAddress(socket=str(folder / "admin")), str(folder / _ROOTS)
    identity = EnvoyIdentity(*_IDENTITY, admin, system_ca=roots)
    return bootstrap(identity, ControlPlane(ListenAddress(socket=str(folder / _SOCKET))))


@asynccontextmanager
async def scratch_envoy(envoy: Path, roots: bytes) -> AsyncIterator[ScratchEnvoy]:
    """An Envoy for as long as the block lasts. Raises `EnvoyUnavailable` if it cannot be started.

    `roots` stand in for those that the machines of proxies trust, which this machine need not have.
    """
    with TemporaryDirectory(prefix="koguma-preflight-") as name:
        folder, hub = Path(name), Hub()
        config = folder / "envoy.json"
        config.write_text(json.dumps(scratch_config(folder)))
        (folder / _ROOTS).write_bytes(roots)
        async with serving(hub, ServerOptions(socket=str(folder / _SOCKET), grace=_GRACE), lambda: 0.0):
            process = await _started(envoy, config)
            try:
                yield ScratchEnvoy(hub, process)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _started(envoy: Path, config: Path) -> asyncio.subprocess.Process:
    """It cannot write to files, whatever it is shown."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            str(envoy),
            *("-c", str(config), *_FLAGS),
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            env={},
            cwd=config.parent,
            restore_signals=False,  # what it cannot write fails, and does not end it
        )
    except OSError as error:
        raise EnvoyUnavailable(f"{envoy} cannot be started: {error.strerror or error}") from None
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    return process
