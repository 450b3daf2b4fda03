"""Whatever policies hold: every call of every golden case can be explained, and each field is asked what it does."""

from __future__ import annotations

import json

import pytest

from cp.cli.explained import lines
from cp.explain import Asked, explain
from cp.view.proxies import outbounds
from tests.golden import Case, cases
from tests.snapshots import Question
from tests.strategies import policies


@pytest.mark.parametrize("case", [*cases("proxies"), *cases("policies")])
def test_every_call_of_a_case_can_be_explained(case: Case) -> None:
    question = Question.of(case)
    world = question.world()
    for dataplane in world.table("Dataplane", question.mesh):
        for one in outbounds(world, dataplane):
            explained = explain(policies(), world, dataplane, Asked("GET", one.address, one.port, "/api/v1"))

            assert json.dumps(explained.as_json())
            assert list(lines(explained.as_json()))
            assert all(value.said.level for value in explained.values)
