"""Tests with real Envoys: one module, one mesh, one worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.playground import Playground, playground

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a module on one worker, so that they share what the module has started."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def empty_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A control plane with a Mesh, and nothing in it yet."""
    with playground(tmp_path_factory.mktemp("mesh")) as mesh:
        yield mesh
