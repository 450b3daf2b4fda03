"""Golden cases: what is told of a mesh. Each sort of finding has a case, and a section in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cp.insight.lint import CATALOGUE, in_order, lint
from cp.model.source import read_documents
from cp.model.violation import Finding
from cp.policies import kinds
from cp.resources.world import World
from tests.golden import ROOT, Case, Golden, cases
from tests.snapshots import policies

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "findings.md"
SECTION: Final = re.compile(r"^### `([a-z-]+)`\n\n(Error|Warning|Info): (.+)\.\n", re.MULTILINE)
FROM_ELSEWHERE: Final = {
    *("unreadable-file", "file-too-large", "refused-by-envoy", "failed"),
    *("bad-access-file", "open-door", "nobody-administers", "unnamed-rights", "authority-ends", "move-waits"),
    *("certificate-ends", "certificate-ended", "instance-silent", "preflight-unavailable"),
    *(
        "unreadable-secret",
        "secrets-by-other-hands",
        "secrets-in-plain-text",
        "secrets-under-old-key",
        "open-to-others",
    ),
}
"""Findings that a store that follows a folder makes, proxies, faults of ours, a control plane about itself, or time."""


def told(text: str) -> list[dict[str, Any]]:
    """The findings about a file, as `koguma lint` has them."""
    reading = read_documents(text, "mesh.yaml")
    world = World.of(reading.documents, kinds(policies()), findings=reading.findings)
    return [shown(finding) for finding in in_order(lint(policies(), world))]


def shown(finding: Finding) -> dict[str, Any]:
    where = {"resource": str(finding.resource or ""), "line": finding.line, "path": finding.path}
    what = {"finding": f"{finding.severity} {finding.code}", "message": finding.message, "hint": finding.hint}
    return {name: value for name, value in (what | where).items() if value}


@pytest.mark.parametrize("case", cases("lint"))
def test_what_is_told(case: Case, golden: Golden) -> None:
    golden.check(case, told(case.text))


def test_every_sort_of_finding_has_a_case() -> None:
    outcomes = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "lint").glob("*.out.yaml"))]
    found = {one["finding"].split()[1] for outcome in outcomes for one in outcome}

    assert found == set(CATALOGUE) - FROM_ELSEWHERE


@pytest.mark.parametrize("code", sorted(set(CATALOGUE) - FROM_ELSEWHERE))
def test_a_sort_of_finding_is_found_in_the_case_of_its_name(code: str) -> None:
    outcome = yaml.safe_load((ROOT / "lint" / f"{code}.out.yaml").read_text())

    assert f"{CATALOGUE[code].severity} {code}" in {one["finding"] for one in outcome}


def test_every_finding_says_where_it_is_and_what_to_do() -> None:
    outcomes = {path: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "lint").glob("*.out.yaml"))}
    silent = {(path.name, one["finding"]) for path, some in outcomes.items() for one in some if "hint" not in one}
    nowhere = {(path.name, one["finding"]) for path, some in outcomes.items() for one in some if "line" not in one}

    assert {finding for _, finding in silent} <= {"error invalid", "error not-yaml"}, silent
    assert not nowhere


def test_the_page_has_every_code_with_its_severity_and_meaning() -> None:
    on_page = {code: (severity, meaning) for code, severity, meaning in SECTION.findall(PAGE.read_text())}

    assert on_page == {code: (one.severity.capitalize(), one.meaning) for code, one in CATALOGUE.items()}
