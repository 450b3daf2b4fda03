"""A process that writes to a store of SQLite, and prints each revision once it is answered as stored.

The tests need it to have a second process, one to kill, and one whose disk is full.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from pathlib import Path

from cp.store.port import Unusable
from cp.store.sqlite import SqliteStore
from tests.store.harness import put


async def write(path: Path, name: str, turns: int) -> None:
    store = await SqliteStore.open(path)
    for turn in range(turns):
        revision = await store.write(put(f"{name}1", turn), put(f"{name}2", turn))
        print(revision, turn, flush=True)  # noqa: T201
    await store.close()


async def fill(path: Path, largest: int) -> None:
    """Write until the disk is full, then find all that was stored, then write again where there is room."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = await SqliteStore.open(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    turn = 0
    try:
        while True:
            await store.write(put(f"a{turn}", "x" * 10_000))
            turn += 1
    except Unusable as error:
        print("refused", error)  # noqa: T201
        told = store.refusal == str(error) != ""
    contents = await store.read()
    print("stored", len(contents.stored) == contents.revision == turn > 0)  # noqa: T201
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await store.write()
    told = told and store.refusal != ""
    print("again", await store.write(put("b")) == turn + 1)  # noqa: T201
    print("told", told and store.refusal == "")  # noqa: T201
    await store.close()


if __name__ == "__main__":
    _, how, file, *arguments = sys.argv
    if how == "write":
        asyncio.run(write(Path(file), arguments[0], int(arguments[1])))
    else:
        asyncio.run(fill(Path(file), int(arguments[0])))
