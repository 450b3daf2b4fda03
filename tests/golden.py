"""Golden cases: a case is two files, `NAME.in.yaml` and `NAME.out.yaml`, and adding one is adding these two.

`pytest --update-golden [-k NAME]` writes the second; nobody edits it by hand, and its diff is what a review reads.

See record 0025.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent / "cases"
_IN, _OUT = ".in.yaml", ".out.yaml"


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a stage."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)).removesuffix(_IN)

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def expected(self) -> Path:
        return self.path.with_name(self.path.name.removesuffix(_IN) + _OUT)


def cases(stage: str) -> list[Any]:
    """Every case of a stage, as parameters of a test."""
    found = sorted((ROOT / stage).rglob(f"*{_IN}"))
    return [pytest.param(Case(path), id=Case(path).name) for path in found]


def strays(stages: set[str]) -> list[str]:
    """Files that no test reads: of an unknown stage, without their other half, or of some other name."""
    found = []
    for path in sorted(p for p in ROOT.rglob("*") if p.is_file()):
        name = str(path.relative_to(ROOT))
        known = any(name.startswith(f"{stage}/") for stage in stages)
        other = name.replace(_IN, _OUT) if name.endswith(_IN) else name.replace(_OUT, _IN)
        if not known or other == name or not (ROOT / other).is_file():
            found.append(name)
    return found


class _Dumper(yaml.SafeDumper):
    """Plain YAML without aliases, texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    return value if isinstance(value, str) else yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110)


def _diff(expected: str, actual: str) -> str:
    difference = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="")
    return "\n".join(difference)


class Golden:
    """Compares what a stage answers with what the case says, or writes it down."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, case: Case, answer: Any) -> None:
        actual = dump(answer)
        if self._update:
            case.expected.write_text(actual)
            return
        expected = case.expected.read_text() if case.expected.exists() else ""
        command = f"make golden ARGS='-k \"{case.name}\"'"
        if actual != expected:
            pytest.fail(
                f"{case.name} has changed; if that is right: {command}\n{_diff(expected, actual)}", pytrace=False
            )
