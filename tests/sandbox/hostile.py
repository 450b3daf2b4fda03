"""Hostile configurations, handed to an Envoy in the sandbox or, to see that they work, to one without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cp.serving.background import in_background
from cp.serving.preflight.sandbox import Sandbox, SandboxContents
from cp.serving.preflight.scratch import EnvoyUnavailable, ScratchEnvoy, scratch_envoy
from cp.translate.packing import PackedResource
from tests.sandbox.surroundings import SECRET, Surroundings
from tests.sandbox.ways import ESCAPED, Attempt, Way, cluster
from tests.support.envoy import envoy_binary
from tests.support.waiting import eventually_on_loop

_ROUNDS: Final = 5
"""Rounds that Envoy answers, as some things happen only some turns of its loop after it has taken a resource."""


class HostileSandbox(Sandbox):
    """The sandbox of a preflight, with a bootstrap configuration and flags that no preflight has."""

    def __init__(self, sandbox: Sandbox, attempt: Attempt) -> None:
        super().__init__(envoy_binary())
        self._sandbox, self._attempt = sandbox, attempt

    @asynccontextmanager
    async def running(self, contents: SandboxContents, lifetime: float) -> AsyncIterator[asyncio.subprocess.Process]:
        async with self._sandbox.running(_with(self._attempt, contents), lifetime) as process:
            yield process


class NoSandbox(Sandbox):
    """The same without a sandbox."""

    def __init__(self, attempt: Attempt, folder: Path) -> None:
        super().__init__(envoy_binary())
        self._attempt, self._folder = attempt, folder

    @asynccontextmanager
    async def running(self, contents: SandboxContents, lifetime: float) -> AsyncIterator[asyncio.subprocess.Process]:
        contents = _with(self._attempt, contents)
        (self._folder / "scratch").mkdir(parents=True)
        (self._folder / "ads").symlink_to(contents.sockets["/ads"])
        for path, text in contents.files.items():
            (self._folder / path[1:]).write_text(self._moved(text))
        arguments = map(self._moved, contents.arguments)
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            envoy_binary(), *arguments, stdin=quiet, stdout=quiet, stderr=quiet
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _moved(self, text: str) -> str:
        for path in ("/ads", "/roots.pem", "/envoy.json", "/scratch"):
            text = text.replace(f'"{path}', f'"{self._folder}{path}')
            text = f"{self._folder}{text}" if text == path else text
        return text


def _with(attempt: Attempt, contents: SandboxContents) -> SandboxContents:
    config = json.dumps(_merged(json.loads(contents.files["/envoy.json"]), attempt.bootstrap))
    without = {"--disable-hot-restart"} if "--use-dynamic-base-id" in attempt.flags else set()
    flags = [*(flag for flag in contents.arguments if flag not in without), *attempt.flags]
    return replace(contents, arguments=flags, files={**contents.files, "/envoy.json": config})


def _merged(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Static resources are added to those that there are, other parts are replaced."""
    static, more = config["staticResources"], changes.get("static_resources", {})
    merged = {
        **config,
        **changes,
        "static_resources": {**static, "clusters": static["clusters"] + more.get("clusters", [])},
    }
    return {
        name: value for name, value in merged.items() if name != "staticResources" and not _is_replaced(name, changes)
    }


def _is_replaced(name: str, changes: Mapping[str, Any]) -> bool:
    return name == "layeredRuntime" and "layered_runtime" in changes


class Hostilities:
    """Several attempts at once, each with surroundings of its own."""

    def __init__(self, ways: Iterable[Way], folder: Path, ads: Path | str = "/ads") -> None:
        self._ways = tuple(ways)
        self._around = {way.name: Surroundings(folder / way.name, ads) for way in self._ways}
        self.attempts = {way.name: way.attempt(self._around[way.name]) for way in self._ways}
        self.escaped: dict[str, list[str]] = {way.name: [] for way in self._ways}

    async def begin(self, sandbox: Sandbox, lifetime: float, *, are_awaited: bool) -> None:
        """Hand all of them to an Envoy. Raises `EnvoyUnavailable` if it ends before it has answered all of them."""
        for around in self._around.values():
            around.watch()
        resources = tuple(each for name, attempt in self.attempts.items() for each in attempt.resources(name))
        try:
            async with asyncio.timeout(lifetime), scratch_envoy(sandbox, b"", lifetime + 1) as envoy:
                if are_awaited:
                    async with in_background(self._show_for_a_while(envoy, resources)):
                        await eventually_on_loop(self._have_all_escaped, lifetime, pause=0.02)
                else:
                    await self._show(envoy, resources)
        finally:
            self._have_all_escaped()

    async def _show_for_a_while(self, envoy: ScratchEnvoy, resources: Iterable[PackedResource]) -> None:
        with suppress(EnvoyUnavailable):  # some end it after the fact
            await self._show(envoy, resources)

    async def _show(self, envoy: ScratchEnvoy, resources: Iterable[PackedResource]) -> None:
        for number in range(_ROUNDS):
            for _, nack in (await envoy.shown((*resources, _more(number)))).nacks:
                self._note_words(nack.text)

    def _have_all_escaped(self) -> bool:
        for name, around in self._around.items():
            self.escaped[name] += around.escapes()
        return all(self.escaped.values())

    def _note_words(self, text: str) -> None:
        """Envoy says in one text of each listener why it refuses it."""
        for line in text.removeprefix("Error adding/updating listener(s) ").split("\n"):
            if ESCAPED in line.partition("]:")[2] or SECRET in line:
                self.escaped[line.partition(":")[0]].append(line)

    def close(self) -> None:
        for around in self._around.values():
            around.close()


def _more(number: int) -> PackedResource:
    return Attempt(clusters=(cluster(),)).resources(f"round-{number}")[0]
