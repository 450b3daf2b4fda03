"""Golden cases of what policies come to. Those of the design documents are named after them: document and example."""

import pytest

from tests.golden import Case, Golden, cases
from tests.rules.render import render_rules


@pytest.mark.parametrize("case", cases("rules"))
def test_rules(case: Case, golden: Golden) -> None:
    golden.check(case, render_rules(case.text))
