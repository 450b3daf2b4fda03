"""The simulation agrees with a real Envoy, over random route tables and random calls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from cp.insight.simulate import Call, Outcome, UnsimulatedFeature, simulate
from cp.insight.simulate.paths import InvalidRequest, normalized_target
from tests.simulate.oracle import ObservedAnswer, Oracle, is_modern
from tests.simulate.tables import Chance

KINDS = ("table", "foreign_table")
"""Tables as our generators build them, and with fields that they never set."""


def differences(folder: Path, kind: str, seed: int, tables: int, calls: int) -> tuple[list[str], Counter[str]]:
    """Every call with another answer than simulated, and the number of calls by their outcome."""
    chance = Chance(Random(seed), is_modern())
    route_tables = [getattr(chance, kind)(chance.random.randint(1, 8)) for _ in range(tables)]
    disagreements, count = [], Counter[str]()
    with Oracle(route_tables, folder) as oracle:
        for address in oracle.addresses:
            for _ in range(calls):
                call = chance.call(Call(*address))
                observed = oracle.send(address, call)
                try:
                    outcome = simulate(oracle.snapshot, call)
                except UnsimulatedFeature:
                    count["unsimulated"] += 1
                    continue
                count["forwarded" if outcome.forward else "answered"] += 1
                if not agrees(outcome, observed):
                    disagreements.append(
                        f"{call}\n  simulated {outcome.row}, {outcome.forward or outcome.reply}\n  seen {observed}"
                    )
    return disagreements, count


def agrees(outcome: Outcome, observed: ObservedAnswer) -> bool:
    """Whether an observed answer is one that the simulated outcome allows."""
    row = None if outcome.row is None else outcome.row.index
    if outcome.reply is not None:
        expected = (outcome.reply.status, row, outcome.reply.location, outcome.reply.body)
        return (observed.status, observed.row, observed.location) == expected[:3] and outcome.reply.body in {
            observed.body,
            "",
        }
    assert outcome.forward is not None
    statuses = {share.status if share.is_missing else 200 for share in outcome.forward.shares if share.weight > 0}
    is_as_sent = observed.status != 200 or (observed.path, observed.host) == (
        outcome.forward.path,
        outcome.forward.host,
    )
    return observed.row == row and observed.status in statuses and is_as_sent


@pytest.mark.envoy
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_goes_where_it_is_simulated_to_go(kind: str, tmp_path: Path) -> None:
    wrong, count = differences(tmp_path, kind, seed=40, tables=40, calls=60)

    assert wrong == []
    assert count["unsimulated"] < 0.1 * count.total()
    assert count["forwarded"] > 0.3 * count.total()


@pytest.mark.long
@pytest.mark.envoy
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_a_great_many_calls_go_where_they_are_simulated_to_go(kind: str, seed: int, tmp_path: Path) -> None:
    assert differences(tmp_path, kind, seed, tables=150, calls=200)[0] == []


PIECES = (
    *(
        "/",
        "/",
        "/",
        ".",
        "..",
        "%2e",
        "%2E",
        ";",
        "a",
        "b",
        "%",
        "%2",
        "%25",
        "%41",
        "%34",
        "3",
        "4",
        "1",
        "2",
        "5",
        "e",
    ),
    *(
        "\\",
        "%2f",
        "%5c",
        "?",
        "^",
        '"',
        "|",
        "%7e",
        "~",
        "%zz",
        "%0",
        "%00",
        "-",
        "x=1",
        "//",
        "#",
        "%ff",
        "@",
        "[",
        "{",
    ),
)


@pytest.mark.envoy
def test_paths_are_read_as_envoy_reads_them(tmp_path: Path) -> None:
    chance = Chance(Random(7), is_modern())
    pieces = PIECES if chance.is_modern else [piece for piece in PIECES if piece != ";"]
    disagreements = []
    with Oracle([chance.everything()], tmp_path) as oracle:
        (address,) = oracle.addresses
        for _ in range(4000):
            path = "/" + "".join(chance.random.choices(pieces, k=chance.random.randint(0, 9)))
            observed = oracle.send(address, Call(*address, path=path, host="backend"))
            if (observed.path or str(observed.status)) != _normalized(path):
                disagreements.append((path, observed, _normalized(path)))

    assert disagreements == []


def _normalized(path: str) -> str:
    try:
        return normalized_target(path)
    except InvalidRequest:
        return "400"
