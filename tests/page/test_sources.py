"""What the sources of the page must not have, whoever adds a view."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from cp.api.page import BUILT
from gui.build import HERE, is_current
from tests.support.browser import missing

SOURCES: Final = sorted((HERE / "src").rglob("*.ts*"))
MARKUP: Final = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|srcdoc|DOMParser")
ELSEWHERE: Final = re.compile(r"https?://(?!www\.w3\.org/2000/svg|html\.spec\.whatwg\.org/|backend|\$\{)\S+")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(HERE)))
def test_no_text_becomes_markup_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text()

    assert not MARKUP.findall(text)
    assert not ELSEWHERE.findall(text)


def test_every_version_of_a_package_is_an_exact_one() -> None:
    package = json.loads((HERE / "package.json").read_text())

    versions = {**package["dependencies"], **package["devDependencies"]}
    assert not [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)]


def test_the_page_was_built_from_these_sources() -> None:
    if reason := missing():
        pytest.skip(reason)

    assert is_current(BUILT), "run: make page"
