"""In which order a proxy ends, and how long that takes."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field

import pytest

from cp.agent.admin import EnvoyAdmin
from cp.agent.drain import ProxyDrain

FAIL, ASK = "/healthcheck/fail", "/drain_listeners?graceful&inboundonly&skip_exit"
CLOSE = "/drain_listeners?inboundonly"


@dataclass
class Scene(EnvoyAdmin):
    """An Envoy with so many connections at each look, and the control plane; both write down what they are told."""

    connections: list[int] = field(default_factory=list)
    answers: bool = True
    reached: bool = True
    events: list[str] = field(default_factory=list)
    at_once: threading.Event = field(default_factory=threading.Event)
    listener: str = "inbound:10.0.0.1:80"

    def post(self, path: str) -> bool:
        self.events.append(path)
        return self.answers

    def get(self, path: str, patience: float = 1.0) -> bytes | None:
        if path.startswith("/listeners"):
            places = (
                (self.listener, "10.0.0.1", 80),
                ("inbound:[fd00::1]:80", "fd00::1", 80),
                ("out", "::", 9),
            )
            return json.dumps({"listener_statuses": [_listener(*place) for place in places]}).encode()
        count = self.connections.pop(0) if len(self.connections) > 1 else self.connections[0]
        self.events.append(f"{count} left")
        counted = {"10.0.0.1_80": count, "[fd00__1]_80": 0, "[__]_9": 7}
        stats = [{"name": f"listener.{name}.downstream_cx_active", "value": value} for name, value in counted.items()]
        return json.dumps({"stats": [*stats, {"histograms": {}}]}).encode()

    def announce(self, seconds: float) -> bool:
        self.events.append("callers")
        return self.reached

    def conclude(self) -> None:
        self.events.append("gone")

    def drain(self, seconds: float) -> list[str]:
        ProxyDrain(self, self, seconds, lambda _: None).run(self.at_once)
        return self.events


def _listener(name: str, address: str, port: int) -> dict[str, object]:
    return {"name": name, "local_address": {"socket_address": {"address": address, "port_value": port}}}


def test_callers_are_told_then_their_connections_end_then_nothing_is_accepted_then_it_goes() -> None:
    events = Scene(connections=[2, 1, 0]).drain(60)

    assert events == [FAIL, ASK, "callers", "2 left", "1 left", *["0 left"] * 5, CLOSE, "0 left", "gone"]


@pytest.mark.parametrize("connections", [0, 3])
@pytest.mark.parametrize(
    ("reached", "listener"), [(False, "inbound:10.0.0.1:80"), (True, "edge:HTTP:80"), (True, "edge:TLS:80")]
)
def test_where_callers_cannot_be_told_it_goes_on_to_the_end_of_its_time(
    connections: int, reached: bool, listener: str
) -> None:
    """The control plane is away, or they are clients of a gateway, from outside the mesh."""
    events = Scene(connections=[connections], reached=reached, listener=listener).drain(1)

    assert events[:3] == [FAIL, ASK, "callers"]
    assert events.index(CLOSE) >= 3 + 6, "looks each tenth of a second, for nine tenths of a second, on a busy machine"
    assert events[-1] == "gone"


def test_a_second_signal_ends_it_at_once() -> None:
    scene = Scene(connections=[3])
    scene.at_once.set()

    assert scene.drain(60) == [FAIL, "gone"]


def test_an_envoy_that_does_not_answer_has_nothing_to_drain() -> None:
    assert Scene(answers=False).drain(60) == [FAIL, "gone"]
