"""Golden cases of explanations. The first document of a case is the question, the others are the mesh."""

from __future__ import annotations

from typing import Any

import pytest

from cp.cli.explained import lines
from cp.cli.output import as_json
from cp.cli.text_sections import TextWidth
from cp.insight.explain import explain, parse_call
from cp.model.names import Key
from cp.model.source import read_documents
from cp.model.violation import Severity
from cp.model.yaml import parse_all
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.golden import Case, Golden, cases
from tests.snapshots import policies

_KEYS = {"proxy", "request", "headers", "form"}


@pytest.mark.parametrize("case", cases("explain"))
def test_what_is_explained(case: Case, golden: Golden) -> None:
    question = next(iter(parse_all(case.text))).data
    assert not set(question) - _KEYS, f"{case.name} asks in words that no case knows"
    explained = _explained(case, question)

    golden.check(case, as_json(explained) if question.get("form") == "json" else _text(explained))


def _explained(case: Case, question: dict[str, Any]) -> dict[str, Any]:
    header_text, _, documents_text = case.text.partition("\n---\n")
    reading = read_documents(documents_text, case.path.name, first_line=header_text.count("\n") + 3)
    world = World.of(reading.documents, kinds(policies()))
    errors = [str(finding) for finding in (*reading.findings, *world.findings) if finding.severity is Severity.ERROR]
    assert not errors
    dataplane = world.get(Key("Dataplane", "default", question["proxy"]))
    assert dataplane is not None
    return explain(
        Compiler(policies()),
        policies(),
        world,
        dataplane,
        parse_call(question["request"], tuple(question.get("headers", ()))),
    ).as_json()


def _text(explained: dict[str, Any]) -> str:
    return "".join(f"{line}\n" for line, _ in lines(explained, TextWidth(1000)))
