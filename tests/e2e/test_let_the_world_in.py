"""The guide "Let the world in", word by word: its files are written, its commands run, and what they print compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.control_plane import KOGUMA
from tests.support.envoy import ROOT, envoy_binary
from tests.support.loopback import new_host
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

GUIDE: Final = ROOT / "docs/guides/let-the-world-in.md"
HERE: Final = "127.0.0.1"
_BLOCK: Final = re.compile(r"<!-- (file: (?P<file>\S+)|\w+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
_MARKED: Final = re.compile(r"<!-- (\w+)")


@dataclass(frozen=True, slots=True)
class Step:
    """A file to write, a command that stays, or commands to run with what they print."""

    kind: str
    text: str
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    for found in _BLOCK.finditer(page):
        kind = _MARKED.match(found[0])
        assert kind is not None
        yield Step(kind[1], found["text"], found["file"] or "")


@dataclass(slots=True)
class Reader:
    """Who follows the guide, in a folder, at an address that takes the place of 127.0.0.1."""

    folder: Path
    host: str
    stack: ExitStack
    stays: list[Running] = field(default_factory=list)

    def follow(self, guide: list[Step]) -> None:
        for step, after in zip(guide, [*guide[1:], Step("", "")], strict=True):
            text = step.text.replace(HERE, self.host)
            match step.kind:
                case "file":
                    (self.folder / step.file).write_text(text)
                case "stays":
                    self._stay(text)
                case "run":
                    expected = after.text.replace(HERE, self.host) if after.kind == "prints" else ""
                    eventually(lambda text=text, expected=expected: self._prints(text, expected), within=30, pause=0.2)  # type: ignore[misc]

    def _stay(self, text: str) -> None:
        program, *words = shlex.split(text)
        known = {"koguma": str(KOGUMA), "python": sys.executable}
        log = self.folder / f"{len(self.stays)}.log"
        running = Running([known[program], *words], log, self.environment, cwd=self.folder)
        self.stays.append(self.stack.enter_context(running))

    def _prints(self, commands: str, expected: str) -> bool:
        """Assert that commands print this. What was written before may not have reached the gateway yet."""
        for running in self.stays:
            running.check()
        ran = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}{ran.stderr}"
        assert expected in ran.stdout, ran.stdout
        return True

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,  # noqa: TID251  # the commands need what any shell has
            "PATH": f"{KOGUMA.parent}:{os.environ['PATH']}",  # noqa: TID251  # as above
            "PYTHONPATH": str(ROOT),
            "KOGUMA_BIND": self.host,
            "KOGUMA_ADDRESS": f"http://{self.host}:5681",
            "KOGUMA_ENVOY": str(envoy_binary()),
            "KUMA_GENERAL_WORK_DIR": str(self.folder),
            "COLUMNS": "200",
        }


@pytest.mark.long
def test_whoever_follows_the_guide_sees_what_it_says(tmp_path: Path) -> None:
    guide = list(steps(GUIDE.read_text()))
    assert {step.kind for step in guide} == {"file", "stays", "run", "prints"}

    with ExitStack() as stack:
        Reader(tmp_path, new_host(), stack).follow(guide)


def test_every_command_of_the_guide_is_run() -> None:
    text = GUIDE.read_text()
    run = sum(step.kind in {"run", "stays"} for step in steps(text))

    assert run == text.count("```sh")
