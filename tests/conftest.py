"""What every test may use."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.golden import Golden
from tests.witness import Witness

_TESTS = Path(__file__).parent

# The time that an example takes depends on the machine, and so is not limited. The profile `long` draws many examples,
# `landing` the same ones each time, and `fresh`, which is for `make draws`, new ones for a round.
_CALM = [HealthCheck.too_slow]
settings.register_profile("koguma", deadline=None, max_examples=30, suppress_health_check=_CALM)
settings.register_profile("long", deadline=None, max_examples=1000, suppress_health_check=_CALM)
settings.register_profile("landing", deadline=None, derandomize=True, max_examples=30, suppress_health_check=_CALM)
settings.register_profile(
    "fresh", deadline=None, max_examples=25, database=None, print_blob=True, suppress_health_check=_CALM
)
settings.load_profile("koguma")


# structlog's own way, where nothing is configured, draws each trace with the values of all variables: it takes seconds.
_PLAIN = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[structlog.processors.add_log_level, _PLAIN])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what golden cases answer, then read the diff")
    parser.addoption("--soak-seconds", default=30, type=float, help="how long a bad hour of tests/soak lasts")
    parser.addoption("--soak-proxies", default=20, type=int, help="how many proxies it has")
    parser.addoption("--soak-seed", default=1, type=int, help="what happens in it")
    parser.addoption("--linear-seconds", default=30, type=float, help="how long everything fails in tests/linear")
    parser.addoption("--pictures", type=Path, help="a folder for the pictures that tests/page takes of the page")
    parser.addoption("--linear-seed", default=1, type=int, help="what fails in it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever updates goldens runs the tests that have some, and no others."""
    if config.getoption("--update-golden"):
        items[:] = [item for item in items if "is_updating" in getattr(item, "fixturenames", ())]


def pytest_sessionstart() -> None:
    """Tests and modules stay until the end: the collector need not look through them again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # after 700 objects, the usual number, it would take a twentieth of the processor time
    gc.enable()


def pytest_collection(session: pytest.Session) -> None:
    """Import this worker's share of the test modules first, so that in a fresh clone only one worker compiles each."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(_TESTS.rglob("test_*.py"))[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # collection imports it again, and reports what is wrong
            importlib.import_module(".".join((_TESTS.name, *path.relative_to(_TESTS).with_suffix("").parts)))


@pytest.fixture
def is_updating(request: pytest.FixtureRequest) -> bool:
    """Whether what is expected is to be written down anew."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(is_updating: bool) -> Golden:
    return Golden(update=is_updating)


@pytest.fixture(scope="session")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    with Witness.called(tmp_path_factory.mktemp("witness")) as called:
        yield called
