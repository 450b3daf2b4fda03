"""Every call of every golden case can be explained, whatever policies hold for it."""

from __future__ import annotations

import json

import pytest

from cp.cli.explained import lines
from cp.cli.text_sections import TextWidth
from cp.insight.explain import AmbiguousCall, CallQuery, explain
from cp.translate.compiler import Compiler
from cp.translate.view.proxies import outbounds
from tests.golden import Case, cases
from tests.snapshots import Question, policies

WITHOUT_LISTENER = "policies/mesh_proxy_patch/a-cluster-and-a-listener-are-added-and-one-removed"


@pytest.mark.parametrize("case", [*cases("proxies"), *cases("policies")])
def test_every_call_of_a_case_can_be_explained(case: Case) -> None:
    question = Question.of(case)
    world, compiler = question.world(), Compiler(policies())
    for dataplane in world.table("Dataplane", question.mesh):
        for address in outbounds(world, dataplane):
            call = CallQuery("GET", address.address, address.port, "/api/v1")
            if case.name == WITHOUT_LISTENER:
                with pytest.raises(AmbiguousCall, match="no listener"):
                    explain(compiler, policies(), world, dataplane, call)
                continue
            explained = explain(compiler, policies(), world, dataplane, call)

            assert json.dumps(explained.as_json())
            assert list(lines(explained.as_json(), TextWidth(100)))
            assert all(value.winner.level for value in explained.values)
