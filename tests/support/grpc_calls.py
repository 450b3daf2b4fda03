"""A gRPC client as a process of its own: it calls a target again and again, and writes down what comes of it.

Run as a program it is the client in Python; `tests/grpc_js/calls.js` is the one in Node.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import grpc
from grpc.experimental import insecure_channel_credentials

from tests.support.grpc_service import NAME
from tests.support.processes import Running
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
NODE_MODULES: Final = ROOT / ".grpc-js" / "node_modules"
GRPC_JS: Final = NODE_MODULES / "@grpc" / "grpc-js-xds"
LIBRARIES: Final = {
    "python": [sys.executable, "-m", "tests.support.grpc_calls"],
    "python with credentials": [sys.executable, "-m", "tests.support.grpc_calls", "with-credentials"],
    "node": ["node", str(ROOT / "tests" / "grpc_js" / "calls.js")],
}

MARK: Final = "= "
"""What a line begins with that says how a call ended; between them stands what the library has to say."""

_LONGEST: Final = 120.0
_PAUSE: Final = 0.02
_PATIENCE: Final = 20.0
"""How long a call would wait by itself."""


class Calls:
    """The calls of one client, one after the other, until it is closed."""

    def __init__(self, library: str, target: str, bootstrap: Path, log: Path) -> None:
        env = {"GRPC_XDS_BOOTSTRAP": str(bootstrap), "NODE_PATH": str(NODE_MODULES), "PYTHONPATH": str(ROOT)}
        self._log = log
        self._running = Running([*LIBRARIES[library], target], log, env)

    @property
    def answers(self) -> list[str]:
        """How every call ended so far: with the name of who answered, or with a status."""
        self._running.check()
        lines = self._log.read_text(errors="replace").splitlines()
        return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]

    def until(self, answer: str, times: int = 3, within: float = 30.0) -> list[str]:
        """Every answer, as soon as the last ones are these."""

        def seen() -> list[str]:
            answers = self.answers
            assert answers[-times:] == [answer] * times, f"{answers[-times:]}\n{self._running.tail()}"
            return answers

        return eventually(seen, within)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.stop()


def channel_to(target: str, credentials: str = "") -> grpc.Channel:
    """A channel that speaks plain text or, with credentials, what the control plane says."""
    if not credentials:
        return grpc.insecure_channel(target)
    fallback = insecure_channel_credentials()  # type: ignore[no-untyped-call]  # it has no types
    return grpc.secure_channel(target, grpc.xds_channel_credentials(fallback))


def main(*options: str) -> None:
    """Call until somebody ends it, or nobody can be waiting any more."""
    *credentials, target = options
    end = time.monotonic() + _LONGEST
    with channel_to(target, *credentials) as channel:
        name: Callable[..., bytes] = channel.unary_unary(NAME)
        while time.monotonic() < end:
            try:
                answer = name(b"", timeout=_PATIENCE).decode()
            except grpc.RpcError as error:
                answer = error.code().name
                sys.stdout.write(f"{error.details()}\n")
            sys.stdout.write(f"{MARK}{answer}\n")
            sys.stdout.flush()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
