"""What holds of every golden case of MeshProxyPatch, and no case can show."""

from __future__ import annotations

from collections import Counter

import pytest

from cp.translate.packing import TYPES
from tests.golden import Case, cases
from tests.snapshots import Question

CASES = [case for case in cases("policies") if "mesh_proxy_patch" in str(case.id)]


@pytest.mark.parametrize("case", CASES)
def test_no_name_is_served_twice(case: Case) -> None:
    """What is added belongs to the proxy alone, and what had its name may belong to all proxies of a class."""
    snapshot = Question.of(case).snapshot()

    counts = {type_url: Counter(snapshot.names(type_url)) for type_url in TYPES}
    assert not [name for names in counts.values() for name, count in names.items() if count > 1]
