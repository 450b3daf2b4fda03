"""What goes wrong while clients write: control planes that are killed, a database that is, and cables that are cut."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from tests.support.cable import Cable, cable_to
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address
from tests.support.postgres import PostgresServer
from tests.support.waiting import eventually

SILENCE: Final = 1.0
"""Seconds for which a cable swallows what goes through it."""

PATIENCE: Final = 10.0
"""Seconds within which somebody writes, as clients do all the time."""

_COMMIT: Final = b"COMMIT;"

Fault = Callable[[], None]


class ThreadedCable:
    """A cable that is served in a thread of its own."""

    def __init__(self, cable: Cable, loop: asyncio.AbstractEventLoop) -> None:
        self._cable, self._loop = cable, loop
        self.address = cable.address

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._cable.cut)

    def cut_off_a_commit(self, *, arrives: bool) -> None:
        """Cut it when the next transaction is to be committed, before or after the server is told so."""
        is_cut = threading.Event()

        def cut(said: bytes) -> None:
            if _COMMIT in said and not is_cut.is_set():
                self._cable.cut()
                is_cut.set()

        if arrives:
            self._cable.after_sending = cut
        else:
            self._cable.before_sending = cut
        is_cut.wait(PATIENCE)  # where nobody writes, there is nothing to cut off

    def swallow(self) -> None:
        self._loop.call_soon_threadsafe(self._cable.swallow)

    def carry(self) -> None:
        """End what was swallowed from, and carry again."""
        self._loop.call_soon_threadsafe(self._cable.cut)
        self._loop.call_soon_threadsafe(self._cable.carry)

    def fall_silent(self) -> None:
        """Swallow everything for a while, and end what went through it."""
        self.swallow()
        time.sleep(SILENCE)  # how long it lasts is what is tried
        self.carry()


@contextmanager
def cable_in_a_thread(target: Address) -> Iterator[ThreadedCable]:
    cables, ending = list[ThreadedCable](), threading.Event()

    async def serve() -> None:
        async with cable_to(target) as cable:
            cables.append(ThreadedCable(cable, asyncio.get_running_loop()))
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        eventually(lambda: len(cables) > 0)
        yield cables[0]
    finally:
        ending.set()
        thread.join()


def faults_of(
    control_planes: Sequence[ControlPlane],
    server: PostgresServer | None,
    cables: Sequence[ThreadedCable],
    chance: Random,
) -> Mapping[str, Fault]:
    """What can go wrong, by its name. Each is over when everything works again."""
    faults = {
        "control plane killed": lambda: _killed(chance.choice(control_planes)),
        "control plane restarted": lambda: _restarted(chance.choice(control_planes)),
        "control plane hung": lambda: _hung(chance.choice(control_planes)),
    }
    if server is not None:
        faults |= {"database killed": lambda: _killed(server), "database restarted": lambda: _restarted(server)}
    if cables:
        faults |= {
            "cable cut": lambda: chance.choice(cables).cut(),
            "cable silent": lambda: chance.choice(cables).fall_silent(),
            "commit cut off": lambda: chance.choice(cables).cut_off_a_commit(arrives=True),
            "commit not told": lambda: chance.choice(cables).cut_off_a_commit(arrives=False),
        }
    return {name: _until_ready(fault, control_planes) for name, fault in faults.items()}


def _until_ready(fault: Fault, control_planes: Sequence[ControlPlane]) -> Fault:
    def happen() -> None:
        fault()
        for control_plane in control_planes:
            control_plane.ready(within=60)

    return happen


def _killed(process: ControlPlane | PostgresServer) -> None:
    process.kill()
    process.start()


def _restarted(process: ControlPlane | PostgresServer) -> None:
    process.stop()
    process.start()


def _hung(control_plane: ControlPlane) -> None:
    control_plane.hang()
    time.sleep(SILENCE)  # how long it lasts is what is tried
    control_plane.resume()


class Calamities:
    """Has one thing go wrong after the other, and counts them."""

    def __init__(self, faults: Mapping[str, Fault], chance: Random) -> None:
        self._faults, self._chance = faults, chance
        self.done: Counter[str] = Counter()

    def each_once(self) -> None:
        for name in self._faults:
            self.happen(name)

    def rage(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._chance.uniform(0.0, 1.5))  # a pace, not a wait for anything
            self.happen(self._chance.choice(list(self._faults)))

    def happen(self, name: str) -> None:
        self._faults[name]()
        self.done[name] += 1
