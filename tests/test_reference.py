"""The pages of docs/reference say what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.routing import Route

from cp.api.http import create_api, create_diagnostics
from docs.generate import MONITORING, REFERENCE, generated, pages
from tests.api.conftest import Api, no_metrics


@pytest.fixture(scope="module")
def texts() -> Mapping[Path, str]:
    return dict(generated())


@pytest.mark.parametrize("page", [*pages(), MONITORING], ids=lambda page: page.name)
def test_what_is_generated_is_current(texts: Mapping[Path, str], page: Path) -> None:
    texts_there = {path: text for path, text in texts.items() if path.is_relative_to(page)}

    assert texts_there, "nothing is generated there"
    assert {path: path.read_text() for path in texts_there} == texts_there, "run `make docs`"


def test_each_page_that_is_generated_is_compared(texts: Mapping[Path, str]) -> None:
    assert not [path for path in texts if path not in pages() and not path.is_relative_to(MONITORING)]


def test_every_path_of_the_http_api_is_on_its_page() -> None:
    text = (REFERENCE / "http-api.md").read_text()
    with asyncio.Runner() as runner:
        given = Api(runner).collaborators
    apps = create_api(given, no_metrics), create_diagnostics(given, no_metrics)
    paths = {route.path for app in apps for route in app.routes if isinstance(route, Route)}

    assert not [path for path in sorted(paths) if f"{path}`" not in text]
