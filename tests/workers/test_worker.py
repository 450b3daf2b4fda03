"""The process of a worker, with this process at the other end of its link."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket, socketpair

from cp.serving.workers.messages import settings_message
from cp.settings import Settings
from koguma.v1 import workers_pb2 as pb

WITHIN = 30


@contextmanager
def worker() -> Iterator[tuple[subprocess.Popen[str], socket]]:
    end, worker_end = socketpair()
    command = (sys.executable, "-m", "cp.serving.workers.worker", str(worker_end.fileno()))
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with end, subprocess.Popen(command, pass_fds=(worker_end.fileno(),), text=True, **output) as process:  # type: ignore[call-overload]
        worker_end.close()
        end.settimeout(WITHIN)
        try:
            yield process, end
        finally:
            process.kill()


def framed(frame: pb.Frame) -> bytes:
    data = frame.SerializeToString()
    return len(data).to_bytes(4) + data


def read_frame(end: socket) -> pb.Frame:
    length = int.from_bytes(_read(end, 4))
    return pb.Frame.FromString(_read(end, length))


def _read(end: socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = end.recv(length - len(data))
        assert part, "the worker closed the link"
        data += part
    return data


def test_a_worker_ends_when_its_link_ends_before_it_was_told_to_serve() -> None:
    with worker() as (process, end):
        end.close()

        assert process.wait(WITHIN) == 0


def test_a_worker_that_receives_what_is_no_frame_says_so_and_ends() -> None:
    with worker() as (process, end):
        end.sendall(b"\xff" * 8)
        output, _ = process.communicate(timeout=WITHIN)

        assert process.returncode == 0
        assert "worker.link_broken" in output
        assert "a frame of 4294967295 bytes" in output


def test_a_worker_that_cannot_serve_answers_why() -> None:
    message = settings_message(Settings())
    message.store = "nowhere:"
    with worker() as (_, end):
        order = pb.Serve(worker=1, port=0, settings=message)
        end.sendall(framed(pb.Frame(number=7, request=pb.Request(serve=order))))

        answer = read_frame(end)

        assert (answer.number, answer.WhichOneof("content")) == (7, "error")
        assert "nowhere:" in answer.error.text
