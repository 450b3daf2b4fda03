"""What every test may use."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.golden import Golden

# How long an example takes says something about the machine, not about the code. For a long look:
# make test ARGS="--hypothesis-profile=long"
_CALM = [HealthCheck.too_slow]
settings.register_profile("koguma", deadline=None, max_examples=40, suppress_health_check=_CALM)
settings.register_profile("long", deadline=None, max_examples=1000, suppress_health_check=_CALM)
settings.load_profile("koguma")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what golden cases answer, then read the diff")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever updates goldens runs the tests that have some, and no others."""
    if config.getoption("--update-golden"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(update=request.config.getoption("--update-golden"))
