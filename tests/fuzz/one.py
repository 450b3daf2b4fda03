"""One target for some seconds: `python -m tests.fuzz.one TARGET SECONDS FOLDER`. What it tried is its last line.

With atheris, inputs that reach new lines of ours are kept and changed further; without it, the corpus is changed
blindly.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.fuzz.inputs import FOLDER, inputs

HANGS_AFTER: Final = 5
"""Seconds for one input."""

_LONGEST: Final = 4096
_BRACKETS: Final = (b"{{", b"}}", b"[", b"]", b"{", b"}", b"(", b")")
_PIECES: Final = (*_BRACKETS, b"%", b"*a", b"&a", b": ", b"\n- ", b'"', b" " * 64, b"9" * 40)


def main() -> None:
    name, seconds, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if find_spec("atheris") is not None:
        _guided(name, seconds, folder)
    else:
        _blind(name, seconds, folder)


def _guided(name: str, seconds: int, folder: Path) -> None:
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["cp", "generators"]):
        target = import_module("tests.fuzz.targets").TARGETS[name]
    watch = [f"-timeout={HANGS_AFTER}", f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-rss_limit_mb=2048"]
    grown = folder / "grown"
    grown.mkdir(exist_ok=True)
    places = [f"-artifact_prefix={folder}/", "-print_final_stats=1", str(grown), str(FOLDER / name)]
    atheris.Setup([sys.argv[0], *watch, *places], target)
    atheris.Fuzz()


def _blind(name: str, seconds: int, folder: Path) -> None:
    target = import_module("tests.fuzz.targets").TARGETS[name]
    last, ends, count = folder / "crash-last", time.monotonic() + seconds, 0
    for data in _changed([path.read_bytes() for path in inputs(name)]):
        if time.monotonic() > ends:
            break
        last.write_bytes(data)
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        target(data)
        count += 1
    faulthandler.cancel_dump_traceback_later()
    last.unlink(missing_ok=True)
    sys.stderr.write(f"stat::number_of_executed_units: {count}\n")


def _changed(corpus: list[bytes]) -> Iterator[bytes]:
    chance = random.Random(0)  # no secret: the same inputs in each run
    while True:
        data = chance.choice(corpus)
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data) + 1)
            piece = chance.choice((*_PIECES, chance.randbytes(2))) * chance.choice((1, 1, 1, 50))
            data = data[:at] + piece + data[at + chance.randrange(3) :]
        yield data[:_LONGEST]


if __name__ == "__main__":
    main()
