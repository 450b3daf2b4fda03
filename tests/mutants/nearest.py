"""The tests that are closest to a module: by their imports, their names, and the names of the module that they use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOST: Final = 8
_CASES: Final = "tests/test_golden.py"
_BY_FOLDER: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("cp/policies/", "cp/resources/"): ("tests/resources/test_validation.py",),
    ("cp/monitoring/",): ("tests/test_reference.py::test_what_is_generated_is_current[monitoring]",),
    ("cp/policies/", "cp/rules/", "cp/translate/", "generators/"): (
        f"{_CASES}::test_what_a_policy_changes",
        f"{_CASES}::test_what_a_proxy_is_served",
    ),
}
"""Tests of cases in files, which name no module, by the folders of what they test."""

_WORD: Final = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file of tests: the modules that it imports, itself or through a file beside it, and its text."""

    path: str
    imports: frozenset[str]
    indirect: frozenset[str]
    text: str


def test_files(root: Path) -> list[TestFile]:
    """Read all files of tests."""
    texts = {str(path.relative_to(root)): path.read_text() for path in (root / "tests").rglob("*.py")}
    imports = {path: frozenset(_imports(text)) for path, text in texts.items()}
    return [
        TestFile(path, imports[path], _of_helpers(imports[path], imports), texts[path])
        for path in sorted(texts)
        if Path(path).name.startswith("test_")
    ]


def _imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _of_helpers(imported: frozenset[str], imports: Mapping[str, frozenset[str]]) -> frozenset[str]:
    helpers = (name.replace(".", "/") for name in imported if name.startswith("tests."))
    paths = (path for helper in helpers for path in (f"{helper}.py", f"{helper}/__init__.py"))
    return frozenset[str]().union(*(imports[path] for path in paths if path in imports))


class Nearest:
    """Ranks the files of tests for each module of a tree."""

    def __init__(self, root: Path) -> None:
        self._files = test_files(root)
        self._importers: dict[str, set[str]] = {}
        for path in (path for world in ("cp", "generators") for path in (root / world).rglob("*.py")):
            names = {*path.relative_to(root).with_suffix("").parts} - {"cp", "generators", "__init__"}
            for imported in _imports(path.read_text()):
                self._importers.setdefault(imported, set()).update(names)

    def tests(self, path: str, source: str) -> list[str]:
        """Return the tests to run first for a module, the closest first."""
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        public = {
            node.name
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
        }
        importers = self._importers.get(module, set())
        scores = {file.path: _score(module, public, importers, file) for file in self._files if file.path != _CASES}
        ranked = sorted((file for file in scores if scores[file] > 1), key=lambda file: (-scores[file], file))[:_MOST]
        by_folder = (test for folders, tests in _BY_FOLDER.items() if path.startswith(folders) for test in tests)
        return list(dict.fromkeys((*ranked, *by_folder)))


def _score(module: str, public: set[str], importers: set[str], file: TestFile) -> int:
    package, _, name = module.rpartition(".")
    folder = {*Path(file.path).parent.parts[1:]}
    stem = {*_WORD.findall(Path(file.path).stem.removeprefix("test_"))}
    return sum(
        (
            8 * (module in file.imports),
            2 * (module in file.indirect),
            2 * any(imported == package or imported.startswith(f"{package}.") for imported in file.imports),
            4 * bool(folder & {*module.split(".")}),
            2 * bool(folder & importers) + 4 * (Path(file.path).stem.removeprefix("test_") in importers),
            2 * (stem >= {*_WORD.findall(name)}) + 2 * bool(stem & {*_WORD.findall(name)}),
            min(4, sum(2 for used in public if re.search(rf"\b{used}\b", file.text))),
        )
    )
