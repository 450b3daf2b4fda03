"""Whoever asks for findings and goes away is not worked for any longer, however many policies there are."""

from __future__ import annotations

from typing import Any

from cp.insight.lint.survey import MeshSurvey
from cp.policies import discover
from tests.rules.texts import MESH, WHOLE_MESH, proxy, service, text, timeout
from tests.rules.worlds import world_of

POLICIES = 50
CALLS: dict[str, Any] = {
    "outbound": [{"port": 10001, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}]
}


def test_each_policy_of_one_site_that_is_looked_at_closely_has_a_checkpoint() -> None:
    policies = (timeout(f"t{number:02}", WHOLE_MESH, 1) for number in range(POLICIES))
    world = world_of(text(MESH, proxy(**CALLS), service("backend"), *policies))
    passed = [0]

    def checkpoint() -> None:
        passed[0] += 1

    survey = MeshSurvey(discover(), world, checkpoint)
    assert survey.decisions
    before = passed[0]
    assert survey.effects.effective is not None

    assert passed[0] - before >= POLICIES
