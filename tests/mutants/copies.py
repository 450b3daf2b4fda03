"""`WorkingCopy`: a copy of the working tree in which a module can be changed and tests run."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.operators import Mutant

_MADE: Final = (".venv", ".envoy", ".envoys", ".stubs", ".grpc-js", "cp/gui", "gui/node_modules", "protos/generated")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
_MARKS: Final = "mutants_marks"
_MARKING: Final = """
import os

_seen = set()


def at(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    if test and (number, test) not in _seen:
        _seen.add((number, test))
        with open(f"{__file__}.{number}", "a") as marks:
            marks.write(f"{test}\\n")
"""


class TestRun(NamedTuple):
    """The outcome of some tests, in the words of `Result`, and those that failed."""

    outcome: str
    failed: tuple[str, ...]


class WorkingCopy:
    """All files of the working tree, those that git ignores left out; what `make setup` made is linked."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self.root = Path(tempfile.mkdtemp(prefix="koguma-mutants-"))
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self._tree,
            stdout=subprocess.PIPE,
            check=True,
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (self._tree / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._tree / name, self.root / name)
        for name in _MADE:
            if (self._tree / name).exists():
                (self.root / name).symlink_to(self._tree / name)
        self._writes = 0

    def remove(self) -> None:
        shutil.rmtree(self.root)

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Give a module another text for a while."""
        original = (self.root / path).read_text()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, original)

    def _write(self, path: str, text: str) -> None:
        # A cached bytecode is valid for a length and a time in whole seconds, so each write has a time of its own.
        self._writes += 1
        (self.root / path).write_text(text)
        moment = (self._tree / path).stat().st_mtime + self._writes
        os.utime(self.root / path, (moment, moment))

    def run(self, tests: Sequence[str], limit: float, *options: str) -> TestRun:
        """Run tests, all of them if none is named. What killed tests leave in the temporary folder goes with it."""
        with tempfile.TemporaryDirectory(prefix="koguma-mutants-", ignore_cleanup_errors=True) as temporary:
            Path(temporary).chmod(0o1777)  # as the machine's: the database has another user
            return self._run(tests, limit, temporary, *options)

    def _run(self, tests: Sequence[str], limit: float, temporary: str, *options: str) -> TestRun:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests],
            cwd=self.root,
            env=self._environment(temporary),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return TestRun("timed out", ())
        finally:
            with suppress(ProcessLookupError):  # what the tests started, and left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode == 0:
            return TestRun("survived", ())
        failed = tuple(_FAILED.findall(output))  # none if the files of tests cannot be imported
        return TestRun("killed" if failed else "invalid", failed)

    def _environment(self, temporary: str) -> Mapping[str, str]:
        # Before the installed package, whose path is that of the working tree.
        path = os.pathsep.join([str(self.root), str(self.root / "protos" / "generated")])
        return {**os.environ, "PYTHONPATH": path, "TMPDIR": temporary}  # noqa: TID251  # the environment of this program

    def reaching(self, mutants: Sequence[Mutant], workers: int, limit: float) -> list[list[str]]:
        """Run all tests once; return for each mutant the files of tests that call the function that it is in."""
        (self.root / f"{_MARKS}.py").write_text(_MARKING)
        by_path: dict[str, list[tuple[int, int]]] = {}
        for number, mutant in enumerate(mutants):
            by_path.setdefault(mutant.path, []).append((_first_line(mutant), number))
        with ExitStack() as stack:
            for path, marks in by_path.items():
                stack.enter_context(self.changed(path, _marked((self.root / path).read_text(), marks)))
            self.run([], limit, "-n", str(workers), "--dist", "loadfile", "-m", "not long")
        files = [self.root / f"{_MARKS}.py.{number}" for number in range(len(mutants))]
        return [sorted(set(file.read_text().split())) if file.exists() else [] for file in files]


def _first_line(mutant: Mutant) -> int:
    """Return the first line, from zero, of the innermost function around a mutant; the end of a module without one."""
    functions = [
        node
        for node in ast.walk(ast.parse(mutant.source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    if not functions:
        return len(mutant.source.splitlines())
    body = max(functions, key=lambda function: function.lineno).body
    is_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return (body[1] if is_docstring and len(body) > 1 else body[0]).lineno - 1


def _marked(text: str, marks: Sequence[tuple[int, int]]) -> str:
    lines = text.splitlines()
    for line, number in sorted(marks, reverse=True):
        below = lines[line] if line < len(lines) else ""
        indent = below[: len(below) - len(below.lstrip())]
        lines.insert(line, f"{indent}__import__({_MARKS!r}).at({number})")
    return "\n".join(lines) + "\n"
