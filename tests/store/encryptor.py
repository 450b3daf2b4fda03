"""A process that encrypts a store, and after each step waits to be told to go on: for tests that kill it between."""

from __future__ import annotations

import sys
from pathlib import Path

from cp.store.encrypting import encrypt_all
from tests.store.secrets import NEW, OLD, codec


def wait(rows: int) -> None:
    print(rows, flush=True)  # noqa: T201
    if not sys.stdin.readline():
        raise SystemExit


if __name__ == "__main__":
    encrypt_all(Path(sys.argv[1]), codec(NEW, OLD), step=1, progress=wait)
