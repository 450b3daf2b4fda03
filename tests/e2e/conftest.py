"""Tests with real Envoys: one module, one mesh."""

from collections.abc import Iterator

import pytest

from tests.support.playground import Playground, playground


@pytest.fixture(scope="module")
def empty_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A control plane with a Mesh, and nothing in it yet."""
    with playground(tmp_path_factory.mktemp("mesh")) as mesh:
        yield mesh
