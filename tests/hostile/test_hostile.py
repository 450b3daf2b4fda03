"""The holder of one proxy's token takes nothing from others. `python -m tests.hostile` attacks for minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.campaign import Campaign, sample
from tests.support.control_plane import ControlPlane
from tests.support.waiting import eventually

SECONDS: Final = 4.0
WITHIN: Final = 60.0

LIMITS: Final[Mapping[str, Sequence[str]]] = {
    "name_floods": ["too much of one proxy"],
    "large_requests": ["too many names"],
    "version_floods": ["too much of one proxy"],
    "many_streams": ["too many of one proxy", "silent"],
    "reconnections": ["forbidden"],
    "retries": ["forbidden"],
    "anonymous_retries": ["unauthenticated"],
    "oversized_requests": ["no request"],
    "resets": ["no request"],
    "hang_ups": ["no request"],
    "registrations": ["registrations"],
    "removals": ["registrations"],
    "bootstraps": ["registrations"],
    "bad_bodies": ["registrations"],
    "long_polls": ["waiting requests"],
}
"""The limits that each attack meets. Those that only make an attack slower are counted nowhere."""

SLOWED_DOWN: Final = ("slow_readers", "error_floods", "links", "slow_requests")


def test_each_attack_meets_a_limit() -> None:
    assert {*LIMITS, *SLOWED_DOWN} == set(ATTACKS)


@pytest.mark.long
def test_each_attack_alone_meets_its_limits(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    with campaign.targets() as targets:
        for attack, limits in LIMITS.items():
            before, target = campaign.control_plane.metrics(), targets(attack.replace("_", "-"))
            with campaign.attacker(target, WITHIN, [attack]):
                for limit in limits:
                    eventually(partial(_is_met, campaign.control_plane, sample(limit), before), WITHIN, 0.1)


def _is_met(control_plane: ControlPlane, limit: str, before: Mapping[str, float]) -> bool:
    assert control_plane.metrics().get(limit, 0.0) > before.get(limit, 0.0), f"{limit} is not met"
    return True


@pytest.mark.long
def test_a_hostile_token_takes_nothing_from_others(tmp_path: Path) -> None:
    observation = Campaign(tmp_path).run(SECONDS, ["registrations", "removals", "name_floods", "long_polls"])

    before, after = observation.history
    assert set(before) <= set(after), "no one's history is shorter"
    assert observation.rollback == 200
    assert observation.deliveries, "another mesh is served meanwhile"


@pytest.mark.long
def test_all_attacks_at_once_leave_memory_and_history(tmp_path: Path) -> None:
    observation = Campaign(tmp_path).run(2 * SECONDS, list(ATTACKS))

    before, after = observation.history
    assert set(before) <= set(after)
    assert observation.rollback == 200
    assert observation.growth < 2, "without the limits it is more than 3"
    for limit in ("registrations", "waiting requests"):
        assert observation.met(limit) > 0, limit
