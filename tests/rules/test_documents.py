"""The outcomes that document 000 states, word for word (record 0024 lists the documents)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.golden import ROOT, dump
from tests.rules.render import render_rules

OUTCOMES = {
    "000-18": """\
resourceRules:
  backend.backend-ns:
    conf: $conf1
  backend-route.backend-ns:
    conf: merge($producer_conf, $consumer_conf)
""",
    "000-22": """\
resourceRules:
  backend.backend-ns:
    conf: $conf1
  frontend.backend-ns:
    conf: $conf2
  backend-route.backend-ns:
    conf: $conf3
""",
    "000-24": """\
resourceRules:
  backend-route.backend-ns:
    conf: merge($producer_conf, $consumer_conf)
""",
    "000-27": """\
resourceRules:
  backend:
    conf: merge($conf1, $conf3)
  backend-route:
    conf: merge($conf2, $conf4)
""",
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_the_rules_are_those_of_the_document(case: str) -> None:
    answer = render_rules((ROOT / "rules" / f"{case}.in.yaml").read_text())
    found: dict[str, Any] = next(iter(answer[name] for name in answer if name != "findings"))

    assert dump({"resourceRules": found["MeshTimeout"]["resourceRules"]}) == OUTCOMES[case]
    assert yaml.safe_load(OUTCOMES[case])
