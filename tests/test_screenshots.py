"""The pictures of the terminal show what commands print."""

from __future__ import annotations

import re

import pytest

from docs.screenshots import COMMANDS, PICTURES, picture


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_is_current_and_needs_nothing_from_elsewhere(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text()

    assert text == picture(name), "run `make docs`"
    assert not re.search(r"(?:href|src|url)\s*[=(]\s*[\"']?(?!#)https?:|@import|@font-face", text)


def test_there_are_pictures_of_commands_alone() -> None:
    assert {file.stem for file in PICTURES.glob("*.svg")} == set(COMMANDS)
