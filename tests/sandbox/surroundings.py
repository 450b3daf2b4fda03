"""`Surroundings`: files, sockets and a process that an Envoy is made to reach, and a watch that sees if it does."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_ALL_EVENTS: Final = 0xFFF
_EVENT: Final = struct.Struct("iIII")
SECRET: Final = "a secret of the machine"


class Surroundings:
    """One folder, with sockets of each kind at addresses of their own. The kernel tells of every use of the folder."""

    def __init__(self, folder: Path, ads: Path | str = "/ads") -> None:
        folder.mkdir(parents=True)
        self.folder, self.ads = folder, str(ads)
        self.secret, self.victim, self.new = folder / "secret", folder / "victim", folder / "new"
        self.secret.write_text(SECRET)
        self.victim.write_text("dear data")
        self.abstract = f"koguma-test-{os.urandom(6).hex()}"
        self._watch: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: list[socket.socket] = []

    @cached_property
    def tcp(self) -> int:
        """The port of a server on loopback."""
        server = self._kept(socket.create_server(("127.0.0.1", 0)))
        return int(server.getsockname()[1])

    @cached_property
    def udp(self) -> int:
        receiver = self._kept(socket.socket(type=socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        return int(receiver.getsockname()[1])

    @cached_property
    def stream(self) -> str:
        """The path of a server's socket."""
        return self._bound(socket.SOCK_STREAM, str(self.folder / "stream"))

    @cached_property
    def datagrams(self) -> str:
        return self._bound(socket.SOCK_DGRAM, str(self.folder / "datagrams"))

    @cached_property
    def listening_name(self) -> str:
        """The name of an abstract socket that listens."""
        return self._bound(socket.SOCK_STREAM, f"\0{self.abstract}")[1:]

    @cached_property
    def process(self) -> int:
        self._process = subprocess.Popen(["/bin/sleep", "600"])
        return self._process.pid

    def _bound(self, kind: socket.SocketKind, address: str) -> str:
        server = self._kept(socket.socket(socket.AF_UNIX, kind))
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        return address

    def _kept(self, opened: socket.socket) -> socket.socket:
        opened.setblocking(False)
        self._sockets.append(opened)
        return opened

    def watch(self) -> None:
        """From now on each use of the folder is an escape."""
        self._watch = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert _LIBC.inotify_add_watch(self._watch, str(self.folder).encode(), _ALL_EVENTS) >= 0

    def escapes(self) -> list[str]:
        """Everything that was reached."""
        return [*self._file_events(), *self._callers(), *self._ended(), *self._abstract_sockets()]

    def _file_events(self) -> Iterator[str]:
        assert self._watch is not None
        with suppress(BlockingIOError):
            events = os.read(self._watch, 65536)
            while events:
                _, mask, _, length = _EVENT.unpack_from(events)
                name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
                events = events[_EVENT.size + length :]
                yield f"file {name}: {mask:#x}"

    def _callers(self) -> Iterator[str]:
        for each in self._sockets:
            with suppress(BlockingIOError):
                if each.type == socket.SOCK_STREAM:
                    each.accept()[0].close()
                else:
                    each.recv(65536)
                yield f"call of {each.getsockname()!r}"

    def _ended(self) -> Iterator[str]:
        if self._process is not None and self._process.poll() is not None:
            yield "the process was ended"

    def _abstract_sockets(self) -> Iterator[str]:
        if f"@{self.abstract}-theirs" in Path("/proc/net/unix").read_text():
            yield "an abstract socket appeared"

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        if self._watch is not None:
            os.close(self._watch)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
