"""What the benchmark of several instances says of what it did not measure."""

from __future__ import annotations

from typing import Any

import pytest

from bench.instances.model import Line
from bench.instances.results import InstancesResult, PacedResult, Percentiles, SteadyResult
from bench.instances.run import costs, model_of, promises

PACED = PacedResult(asked=0.002, told=0.001, database_cpu=0.001, client=0.001, turn=0.001, answered=0.004)
NOTHING = Percentiles(0.0, 0.0)
STEADY = SteadyResult(
    writes_a_second=200,
    answered=NOTHING,
    served=NOTHING,
    at_proxies=NOTHING,
    in_force=NOTHING,
    fed=NOTHING,
    cpu=0.5,
    database_cpu=0.2,
    turns=10,
)


def measured(instances: int, **fields: Any) -> InstancesResult:
    """Of a database to which a write costs one millisecond, and half of one for each instance."""
    usual: dict[str, Any] = {
        "until_answered": 0.02,
        "cpu": 0.01,
        "turn": 0.005,
        "bare_turn": 0.001,
        "load_cpu": 0.001,
        "memory": 100.0,
        "messages": {"routes": instances * 10},
        "transactions": 3.0 + instances,
        "idle": instances / 5,
        "idle_cpu": 0.001,
        "idle_database_cpu": 0.001,
        "read_cpu": 0.001,
        "writes_a_second": 100.0,
        "database_cpu": 0.001 + 0.0005 * instances,
        "cpu_of_a_write": 0.002,
        "connections": 6 * instances,
        "paced": PACED,
        "steady": STEADY,
    }
    return InstancesResult(instances=instances, **{**usual, **fields})


RESULTS = [measured(instances) for instances in (1, 2, 3, 4)]


def test_a_line_goes_through_what_is_on_one() -> None:
    line = Line.through({1: 3.0, 2: 5.0, 4: 9.0})

    assert (line.fixed, line.of_each, line.worst) == pytest.approx((1, 2, 0))
    assert line.at(30) == pytest.approx(61)


def test_a_line_says_by_how_much_it_is_off() -> None:
    assert Line.through({1: 1.0, 2: 4.0, 3: 1.0}).worst == pytest.approx(1.0)


def test_what_was_measured_is_told_and_the_rest_is_marked_as_modelled() -> None:
    told = {of.instances: of for of in costs(RESULTS, model_of(RESULTS))}

    assert [count for count, of in told.items() if of.is_measured] == [1, 2, 3, 4]
    assert [count for count, of in told.items() if not of.is_measured] == [10, 30]
    assert told[30].database_ms == pytest.approx(16)
    assert told[30].writes_a_second == pytest.approx(1000 / 16)
    assert told[30].connections == pytest.approx(180)


def test_what_is_promised_is_kept_by_instances_that_do_not_disturb_each_other() -> None:
    assert all(promise.held for promise in promises(RESULTS, 10))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": {"routes": 39}}, "is sent one route table"),
        ({"messages": {"routes": 40, "clusters": 1}}, "is sent one route table"),
        ({"transactions": 40.0}, "transactions for an edit"),
        ({"cpu": 0.02}, "an edit costs each"),
    ],
)
def test_a_promise_that_is_not_kept_is_marked(fields: dict[str, Any], says: str) -> None:
    broken = [promise.says for promise in promises([*RESULTS[:3], measured(4, **fields)], 10) if not promise.held]

    assert len(broken) == 1
    assert says in broken[0]
