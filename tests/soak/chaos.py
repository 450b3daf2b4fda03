"""What happens to a mesh in a bad hour: edits, many at once, restarts, a power cut, proxies that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

from cp.model.document import Document
from tests.random_mesh import HARMLESS, document, random_document
from tests.soak.crowd import Crowd
from tests.support.control_plane import ControlPlane
from tests.support.mesh import policy, service_item

BULK = 20
LEAVING = 10


def of_fake(number: int, chance: Random) -> Document:
    """A Dataplane of a proxy in the crowd: what random meshes have, under a name of its own."""
    made = random_document(chance, ("Dataplane",))
    return document("Dataplane", f"fake-{number}", networking=made.data["networking"])


def of_real(chance: Random) -> dict[str, Any]:
    """An edit that real callers notice, and that costs none of their requests."""
    http = {"requestTimeout": f"{chance.randrange(10, 30)}s", "streamIdleTimeout": f"{chance.randrange(60, 90)}s"}
    default = {"connectionTimeout": f"{chance.randrange(5, 10)}s", "http": http}
    return policy("MeshTimeout", "of-echo", service_item("echo", default))


def harmless(chance: Random) -> Document:
    """An edit that costs real callers nothing. A Mesh that suddenly demands mTLS would."""
    made = random_document(chance, HARMLESS)
    return Document(made.key, {name: value for name, value in made.data.items() if name != "mtls"})


class Chaos:
    """Counts what it did."""

    def __init__(self, control_plane: ControlPlane, crowd: Crowd, chance: Random) -> None:
        self._control_plane, self._crowd, self._chance = control_plane, crowd, chance
        self._there: dict[str, Document] = {}
        self.done: dict[str, int] = {}

    def rage(self, seconds: float, *, restarts: bool) -> None:
        """One thing after the other, for so long."""
        ways: list[Callable[[], None]] = [*[self._edit] * 20, *[self._remove] * 4, *[self._edit_real] * 4]
        ways += [*[self._edit_fake] * 10, self._bulk, self._leave]
        end = time.monotonic() + seconds
        next_restart = time.monotonic() + seconds / 6
        while time.monotonic() < end:
            if restarts and time.monotonic() > next_restart:
                next_restart += seconds / 3
                self._restart()
            self._chance.choice(ways)()
            time.sleep(self._chance.uniform(0.0, 0.2))  # a pace, not a wait for anything

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def _apply(self, made: Document) -> None:
        self._control_plane.apply(dict(made.data))
        if made.key.type != "Mesh":
            self._there[str(made.key)] = made

    def _edit(self) -> None:
        self._count("edits")
        self._apply(harmless(self._chance))

    def _edit_real(self) -> None:
        self._count("edits of the real service")
        self._control_plane.apply(of_real(self._chance))

    def _edit_fake(self) -> None:
        self._count("edits of fake proxies")
        number = self._chance.randrange(len(self._crowd.proxies))
        self._control_plane.apply(dict(of_fake(number, self._chance).data))

    def _remove(self) -> None:
        if self._there:
            self._count("deletions")
            gone = self._there.pop(self._chance.choice(list(self._there)))
            self._control_plane.delete(dict(gone.data))

    def _bulk(self) -> None:
        self._count("bulk edits")
        for _ in range(BULK):
            self._apply(harmless(self._chance))

    def _leave(self) -> None:
        self._count("departures")
        self._crowd.leave(self._chance.sample(self._crowd.proxies, min(LEAVING, len(self._crowd.proxies))))

    def _restart(self) -> None:
        """In order, or as a power cut would have it."""
        if self._chance.random() < 0.5:
            self._count("restarts")
            self._control_plane.stop()
        else:
            self._count("power cuts")
            self._control_plane.kill()
        self._control_plane.start().ready()
