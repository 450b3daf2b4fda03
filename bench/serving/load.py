"""The load: a thousand proxies in one process, each with a TCP connection and a stream of its own.

python -m bench.serving.load

It takes commands as lines of JSON and answers each with a line. Times are of the clock that all processes of a
machine share (`time.monotonic`).
"""

from __future__ import annotations

import gc
import json
import pickle
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.serving.certificates import certificates_in
from bench.serving.http2 import Connection, Ended
from bench.serving.proxies import Delta, Proxy, StateOfTheWorld
from bench.serving.reading import Heard, Reader
from cp.ads.server import SERVICE
from cp.translate.packing import SHORT

_AT_ONCE = 1 << 20
_PREFIX = 5
_SAID = 0  # standard input
_SOTW, _DELTA = f"/{SERVICE}/StreamAggregatedResources", f"/{SERVICE}/DeltaAggregatedResources"


class Stream:
    """The connection of a proxy."""

    def __init__(self, proxy: Proxy, reader: Reader) -> None:
        self.proxy = proxy
        self.heard: list[Heard] = []  # since `begin`
        self.last = 0.0  # when it answered last
        self.socket: socket.socket | None = None
        self._reader = reader
        self._connection: Connection | None = None
        self._hello: list[bytes] = []

    def prepare(self) -> None:
        self._hello = self.proxy.connect()

    def connect(self, port: int, path: str) -> socket.socket:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0)
        self._connection = Connection(path)
        for request in self._hello:
            self._connection.say(request)
        return self.socket

    def receive(self, data: memoryview) -> int:
        """Read what has arrived. Returns how many messages that were."""
        assert self._connection is not None
        messages = self._connection.hear(data)
        for message in messages:
            heard = self._reader.read(message, _PREFIX)
            self.heard.append(heard)
            for request in self.proxy.hear(heard):
                self._connection.say(request)
        return len(messages)

    def flush(self) -> bool:
        """Send what is queued. Returns whether all of it was sent."""
        assert self._connection is not None
        assert self.socket is not None
        out = self._connection.out
        try:
            while out:
                sent = self.socket.send(out)
                del out[:sent]
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        assert self.socket is not None
        self.socket.close()
        self.socket = None


class Load:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._streams: list[Stream] = []
        self._of: dict[int, Stream] = {}
        self._delta = False
        self._buffer = memoryview(bytearray(_AT_ONCE))
        self._news = 0.0  # when something came last
        self._recorded: dict[str, list[list[Heard]]] = {}

    # --- what it can be told ---

    def make(self, names: list[str], *, delta: bool) -> dict[str, Any]:
        """Create these proxies, without any resources."""
        self._delta = delta
        reader = Reader(delta=delta)
        kind = Delta if delta else StateOfTheWorld
        self._streams = [Stream(kind(name), reader) for name in names]
        self._recorded = {}
        return {"proxies": len(names)}

    def prepare(self) -> dict[str, Any]:
        """Build the first requests of the next streams, so that building them is not measured."""
        for stream in self._streams:
            stream.prepare()
        return self.begin()

    def connect(self, port: int) -> dict[str, Any]:
        for stream in self._streams:
            opened = stream.connect(port, _DELTA if self._delta else _SOTW)
            self._of[opened.fileno()] = stream
            self._epoll.register(opened, select.EPOLLIN)
            self._flush(opened.fileno(), stream)
        return {}

    def begin(self) -> dict[str, Any]:
        """Start counting."""
        for stream in self._streams:
            stream.heard, stream.last = [], 0.0
        self._news = 0.0
        return {"now": time.monotonic()}

    def settle(self, *, wants: str, least: int, quiet: float, within: float, times: int = 1) -> dict[str, Any]:
        """Run until all proxies are `ready`, or so many have `answered` so often, and no more messages arrive."""
        done: Callable[[Stream], bool] = _is_ready if wants == "ready" else partial(_was_spoken_to, times)
        open_until = time.monotonic() + within
        since = time.monotonic()
        while True:
            self._turn(0.02)
            now = time.monotonic()
            if now - max(self._news, since) >= quiet and sum(map(done, self._streams)) >= least:
                return self._counted()
            if now > open_until:
                return {"late": sum(map(done, self._streams)), **self._counted()}

    def heard(self) -> dict[str, Any]:
        """How many messages have come since `begin`."""
        return {"messages": sum(len(stream.heard) for stream in self._streams)}

    def disconnect(self) -> dict[str, Any]:
        for number, stream in self._of.items():
            self._epoll.unregister(number)
            stream.close()
        self._of.clear()
        return {}

    def record(self, name: str) -> dict[str, Any]:
        """Record under a name what each stream has received since `begin`."""
        self._recorded[name] = [stream.heard for stream in self._streams]
        return {}

    def write(self, path: str) -> dict[str, Any]:
        """Write the recordings since the last write to a file, each distinct run of bytes once."""
        runs: dict[int, tuple[int, bytes]] = {}
        scripts: dict[str, dict[str, list[tuple[str, bytes, list[int]]]]] = {}
        for name, recorded in self._recorded.items():
            scripts[name] = {}
            for stream, frames in zip(self._streams, recorded, strict=True):
                for run in (run for heard in frames for run in heard.runs):
                    runs.setdefault(id(run), (len(runs), run.data))
                scripts[name][stream.proxy.name] = [
                    (heard.type_url, heard.around, [runs[id(run)][0] for run in heard.runs]) for heard in frames
                ]
        Path(path).write_bytes(pickle.dumps(([data for _, data in runs.values()], scripts)))
        self._recorded = {}
        return {"runs": len(runs)}

    def held(self, name: str) -> dict[str, Any]:
        """The resources of a proxy by short type: names and versions."""
        (stream,) = (stream for stream in self._streams if stream.proxy.name == name)
        return {SHORT[type_url]: held for type_url, held in stream.proxy.held.items()}

    def certificates(self) -> dict[str, Any]:
        """What the certificates say that each proxy was sent since `begin`, by the proxy's name."""
        return {
            stream.proxy.name: [shown for heard in stream.heard for shown in certificates_in(heard, delta=self._delta)]
            for stream in self._streams
        }

    # --- the loop ---

    def run(self) -> None:
        """Serve the streams and carry out commands, one per line, until the input ends."""
        self._epoll.register(_SAID, select.EPOLLIN)
        while (line := self._next_line()) != "":
            command = json.loads(line)
            answer = getattr(self, command.pop("do"))(**command)
            print(json.dumps(answer), flush=True)

    def _next_line(self) -> str:
        while not self._turn(None):
            pass
        return sys.stdin.readline()

    def _turn(self, timeout: float | None) -> bool:
        """Serve the streams that have data. Returns whether there is a command on the input."""
        was_spoken_to = False
        for number, event in self._epoll.poll(timeout):
            if number == _SAID:
                was_spoken_to = True
                continue
            stream = self._of[number]
            if event & select.EPOLLIN:
                self._take(number, stream)
            elif event & select.EPOLLOUT:
                self._flush(number, stream)
            else:
                raise Ended(f"the connection of {stream.proxy.name} broke off")
        return was_spoken_to

    def _take(self, number: int, stream: Stream) -> None:
        assert stream.socket is not None
        count = stream.socket.recv_into(self._buffer)
        if count == 0:
            raise Ended(f"the server closed the connection of {stream.proxy.name}")
        try:
            messages = stream.receive(self._buffer[:count])
        except Ended as ended:
            raise Ended(f"{stream.proxy.name}: {ended}") from None
        self._flush(number, stream)
        if messages > 0:
            self._news = stream.last = time.monotonic()

    def _flush(self, number: int, stream: Stream) -> None:
        self._epoll.modify(number, select.EPOLLIN if stream.flush() else select.EPOLLIN | select.EPOLLOUT)

    def _counted(self) -> dict[str, Any]:
        messages: Counter[str] = Counter()
        resources: Counter[str] = Counter()
        size = removed = 0
        for heard in (heard for stream in self._streams for heard in stream.heard):
            kind = SHORT[heard.type_url]
            messages[kind] += 1
            resources[kind] += heard.resources
            removed += len(heard.removed)
            size += len(heard.around) + sum(len(run.data) for run in heard.runs)
        return {
            "last": [stream.last for stream in self._streams if stream.heard],
            "ready": sum(map(_is_ready, self._streams)),
            "messages": messages,
            "resources": resources,
            "removed": removed,
            "bytes": size,
            "cpu": time.process_time(),
        }


def _is_ready(stream: Stream) -> bool:
    return stream.proxy.is_ready


def _was_spoken_to(times: int, stream: Stream) -> bool:
    return len(stream.heard) >= times


if __name__ == "__main__":
    gc.disable()  # a thousand proxies hold much, and nothing in circles
    Load().run()
