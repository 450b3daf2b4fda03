"""Every input of the corpus is answered, soon; `make fuzz` looks for new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.inputs import FOLDER, inputs
from tests.fuzz.targets import TARGETS

EVERY = [(name, path) for name in TARGETS for path in inputs(name)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("target", "path"), EVERY, ids=lambda given: given.name if isinstance(given, Path) else given)
def test_an_input_is_answered(target: str, path: Path) -> None:
    TARGETS[target](path.read_bytes())


def test_every_target_has_inputs_and_every_input_a_target() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(TARGETS)
    assert all(any(inputs(name)) for name in TARGETS)
