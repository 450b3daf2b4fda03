"""Draw new examples for every property (`make draws`), so that a run finds what no run has found: a pytest plugin.

    --draw=SEED         run only tests that draw, with examples that follow from this number
    --draw-rounds=5     how often each of them runs, each time with other examples
    --draw-seconds=180  after so many seconds the rounds that are left are skipped

Every test has its first round before any has its second. The number also decides which file's tests begin, so that
short runs do not always end before the same ones. What fails is repeated by the same number and the test's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from math import inf
from random import Random
from typing import Final

import pytest
from hypothesis import core, is_hypothesis_test, settings

FIRST_SEED: Final[ContextVar[int | None]] = ContextVar("FIRST_SEED", default=None)
"""The first seed of random meshes in this round of drawing; None while nothing is drawn."""

_SEEDS_OF_A_ROUND: Final = 10_000
_UNTIL: Final[ContextVar[float]] = ContextVar("_UNTIL", default=inf)
_LONGEST_ROUND: Final = 30.0
"""Seconds after which a test draws no more meshes in this round, so that it ends in time on a slow machine too."""

SHARES: Final = "is_further"
"""The parameter of tests that ask random meshes in two shares (`tests.random_mesh.IN_SHARES`)."""

_END: Final = pytest.StashKey[float]()


def examples(usual: int) -> int:
    """The number of examples of a property with a number of its own, which counts unless new examples are drawn."""
    return usual if FIRST_SEED.get() is None else settings().max_examples


def in_time(seeds: Iterable[int]) -> Iterator[int]:
    """These seeds, or the first of them if new ones are drawn and the time of the round is over."""
    for seed in seeds:
        yield seed
        if time.monotonic() > _UNTIL.get():
            break


def expect_more(count: int, least: int) -> None:
    """Fail if the examples that are the same each time showed too little. New ones may show nothing at all."""
    assert count > least or FIRST_SEED.get() is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw", type=int, metavar="SEED", help="run only tests that draw, with examples of this seed")
    parser.addoption("--draw-rounds", default=5, type=int, help="how often each of them runs, with other examples")
    parser.addoption("--draw-seconds", default=180, type=float, help="after so many seconds the others are skipped")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--draw") is not None:
        config.pluginmanager.register(Drawing(config), "koguma-drawing")


class Drawing:
    def __init__(self, config: pytest.Config) -> None:
        self._seed: int = config.getoption("--draw")
        self._rounds: int = config.getoption("--draw-rounds")
        self._seconds: float = config.getoption("--draw-seconds")
        self._end = 0.0

    def pytest_report_header(self) -> str:
        return f"drawn with --draw={self._seed}: the same number draws the same examples again"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if _draws(metafunc):
            ids = [f"draw-{turn}" for turn in range(self._rounds)]
            metafunc.parametrize("drawing", range(self._rounds), indirect=True, ids=ids)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if _turn(item) is not None), key=self._order)
        self._end = time.monotonic() + self._seconds

    def _order(self, item: pytest.Item) -> tuple[int, float]:
        """Order by round, and in each round by file, shuffled: the tests of a file share what they start."""
        return _turn(item) or 0, Random(f"{self._seed} {item.nodeid.partition('::')[0]}").random()

    @pytest.fixture(autouse=True)
    def drawing(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        if time.monotonic() > self._end:
            pytest.skip("the time for drawing is over")
        number = self._seed * self._rounds + request.param
        monkeypatch.setattr(core, "global_force_seed", number)
        first_seed = FIRST_SEED.set(number * _SEEDS_OF_A_ROUND)
        until = _UNTIL.set(min(time.monotonic() + _LONGEST_ROUND, self._end))
        yield
        FIRST_SEED.reset(first_seed)
        _UNTIL.reset(until)


def _draws(metafunc: pytest.Metafunc) -> bool:
    definition = metafunc.definition
    has_shares = any(mark.args[0] == SHARES for mark in definition.iter_markers("parametrize"))
    return has_shares or bool(definition.get_closest_marker("drawn")) or is_hypothesis_test(metafunc.function)


def _turn(item: pytest.Item) -> int | None:
    callspec = getattr(item, "callspec", None)
    turn: int | None = None if callspec is None else callspec.params.get("drawing")
    return turn
