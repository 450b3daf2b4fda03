"""A campaign in a tree of one module and two files of tests, of which one imports the module."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Campaign
from tests.mutants.nearest import Nearest
from tests.mutants.operators import Mutant, mutants
from tests.mutants.sample import sample

MODULE = "cp/shop/prices.py"
SOURCE = '''\
"""Prices."""


def discount(count: int, member: bool) -> int | None:
    if count >= 10 and member:
        return 20
    return 0 if count < 100 else 5
'''
NEAR = """\
from cp.shop.prices import discount


def test_ten_are_many():
    assert (discount(9, False), discount(10, True)) == (0, 20)
"""
FAR = """\
from importlib import import_module


def test_strangers():
    assert import_module("cp.shop").reduction(10, False) == 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    files = {
        MODULE: SOURCE,
        "cp/__init__.py": "",
        "cp/shop/__init__.py": "from cp.shop.prices import discount as reduction\n",
        "tests/shop/test_prices.py": NEAR,
        "tests/test_all.py": FAR,
        "pytest.ini": "[pytest]\nmarkers =\n    long:\n    envoy:\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def mutant(operator: str, line: int) -> Mutant:
    (found,) = (mutant for mutant in mutants(MODULE, SOURCE) if (mutant.operator, mutant.line) == (operator, line))
    return found


def test_first_ring_kills_by_nearest_tests(tree: Path, tmp_path: Path) -> None:
    boundary, stranger = mutant("comparison", 5), mutant("and/or", 5)
    with ExitStack() as files:
        campaign = Campaign(tree, tmp_path / "log", files, jobs=1, limit=60)
        campaign.first_ring(iter([boundary, stranger]), 2)
        resumed = Campaign(tree, tmp_path / "log", files, jobs=1, limit=60)

    assert campaign.near(boundary) == ["tests/shop/test_prices.py"]
    assert campaign.results[boundary.name].outcome == "killed"
    assert campaign.results[boundary.name].test == "tests/shop/test_prices.py::test_ten_are_many"
    assert campaign.results[stranger.name].outcome == "survived"
    assert resumed.results == campaign.results
    assert (tree / MODULE).read_text() == SOURCE


@pytest.mark.parametrize("module", ["cp/monitoring/files.py", "cp/policies/mesh_timeout.py", "cp/resources/mesh.py"])
def test_nearest_cases_exist(tree: Path, module: str) -> None:
    cases = [test.partition("::") for test in Nearest(tree).tests(module, "")]

    assert cases
    assert all(f"def {name.partition('[')[0]}" in (ROOT / file).read_text() for file, _, name in cases)


@pytest.mark.long
def test_second_ring_runs_tests_that_reach_survivors(tree: Path, tmp_path: Path) -> None:
    stranger, untested = mutant("and/or", 5), mutant("comparison", 7)
    unimportable = Mutant(MODULE, SOURCE, 1, "broken", 0, 0, "import nothing_of_this_name\n")
    with ExitStack() as files:
        campaign = Campaign(tree, tmp_path / "log", files, jobs=1, limit=60)
        valid = campaign.first_ring(iter([unimportable, stranger, untested]), 2)
        campaign.second_ring(valid)
        by_themselves = campaign.fail_by_themselves()

    assert valid == [stranger, untested]
    assert campaign.results[unimportable.name].outcome == "invalid"
    assert campaign.results[stranger.name].outcome == "killed far"
    assert campaign.results[stranger.name].test == "tests/test_all.py::test_strangers"
    assert campaign.results[untested.name].outcome == "survived"
    assert by_themselves == set()


def changes(source: str) -> Iterator[str]:
    return (mutant.changed for mutant in mutants("cp/a.py", source) if mutant.is_change)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", "(a <= b)"),
        ("a and b", "(a or b)"),
        ("not a", "(a)"),
        ("x = -a, -b, c", "x = -a, c, -b"),
        ("x = {'a b', y}", "x = {y}"),
        ("for a in b: continue", "for a in b: break"),
        ("def f(a: int = 1): ...", "def f(a: int = 2): ..."),
        ("def f(): return a", "def f(): return None"),
        ("def f() -> bool: return a", "def f() -> bool: return not a"),
        ("if a: b()", "if a: pass"),
        ("x = 'Exact'", "x = 'ExactX'"),
        ("x = a + 1", "x = (a - 1)"),
    ],
)
def test_mutants_have_each_operator(source: str, expected: str) -> None:
    assert expected.replace("(", "").replace(")", "") in {
        changed.replace("(", "").replace(")", "") for changed in changes(source)
    }


@pytest.mark.parametrize(
    "source",
    [
        *("'''A text.'''", "x: A | B", "T = TypeVar('Tea')", "def f(a: 'Big'): ...", "f'{a}'", "x = dict[str, int]()"),
        *("class A(B[C, D]): ...", "if TYPE_CHECKING: import b", "A: TypeAlias = B | C"),
    ],
)
def test_mutants_leave_types_and_texts(source: str) -> None:
    assert list(changes(source)) == []


def test_sample_is_the_same_for_a_seed(tree: Path) -> None:
    first, same, other = ([mutant.name for mutant in sample(tree, [], seed)] for seed in (1, 1, 2))

    assert first == same
    assert (first != other, sorted(first)) == (True, sorted(other))
    with pytest.raises(SystemExit, match="there is no room stores: choose of cp, shop"):
        list(sample(tree, ["stores"], 1))
