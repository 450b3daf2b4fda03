"""Every conformance case has its answer. The cases are not part of the project: without them, this is skipped."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.answers import respond

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "conformance"
DIFFERENCES = ROOT / "docs" / "differences-from-kuma.md"

OTHERWISE = {"target-resolution/by-name-number-of-named-port"}
"""Cases that a decision of ours answers in another way. The page of differences has each with its reason."""


@cache
def corpus() -> ModuleType | None:
    """The runner that comes with the cases: it reads them and judges answers."""
    spec = importlib.util.spec_from_file_location("conformance_corpus", CORPUS / "run.py")
    if spec is None or spec.loader is None or not (CORPUS / "run.py").is_file():
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found() -> list[Any]:
    runner = corpus()
    if runner is None:
        reason = f"the conformance cases are not in {CORPUS}"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")]
    return [pytest.param(case, id=case.id) for case in runner.load_cases(str(CORPUS / "cases"))]


def difference(case: Any) -> str:
    runner = corpus()
    assert runner is not None
    request = {"id": case.id, "op": runner.OPS[case.kind], "input": Path(case.input).read_text(), **case.meta}
    answer = respond(json.dumps(request)) or {}
    assert "error" not in answer, answer["error"]
    _, difference, _ = runner.judge(case, answer["result"], "fields", False)  # as it is written there
    return difference or ""


@pytest.mark.parametrize("case", found())
def test_the_answer_is_the_one_stated(case: Any) -> None:
    if case.id in OTHERWISE:
        assert difference(case), "this is no difference any more: take it out of the list and of the page"
    else:
        assert difference(case) == ""


@pytest.mark.parametrize("case", sorted(OTHERWISE))
def test_a_difference_is_written_down(case: str) -> None:
    assert case in DIFFERENCES.read_text()
