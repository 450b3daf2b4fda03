"""The holder of one proxy's token takes nothing from others. `python -m tests.hostile` attacks for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.campaign import Campaign

SECONDS: Final = 4.0


@pytest.mark.long
def test_a_hostile_token_takes_nothing_from_others(tmp_path: Path) -> None:
    observation = Campaign(tmp_path).run(SECONDS, ["registrations", "removals", "name_floods", "long_polls"])

    before, after = observation.history
    assert set(before) <= set(after), "no one's history is shorter"
    assert observation.rollback == 200
    assert observation.refused("too much of one proxy") + observation.refused("too many names") > 0
    assert observation.deliveries, "another mesh is served meanwhile"


@pytest.mark.long
def test_all_attacks_at_once_leave_memory_and_history(tmp_path: Path) -> None:
    observation = Campaign(tmp_path).run(2 * SECONDS, list(ATTACKS))

    before, after = observation.history
    assert set(before) <= set(after)
    assert observation.rollback == 200
    assert observation.growth < 2, "without the limits it is more than 3"
    reasons = ("too many of one proxy", "too much of one proxy", "too many names", "silent")
    assert sum(map(observation.refused, reasons)) > 0
    for limit in ("registrations", "waiting requests"):
        assert observation.limited(limit) > 0, limit
