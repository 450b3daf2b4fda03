"""The pages of docs/reference say what there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.routing import Route

from cp.api.http import create_api, create_diagnostics
from docs.generate import REFERENCE, pages, written
from tests.api.conftest import Api, no_metrics


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_is_generated_is_current(page: Path) -> None:
    text = page.read_text()

    assert text == written(text), "run `make docs`"


def test_every_path_of_the_http_api_is_on_its_page() -> None:
    text = (REFERENCE / "http-api.md").read_text()
    with asyncio.Runner() as runner:
        given = Api(runner).collaborators
    apps = create_api(given, no_metrics), create_diagnostics(given, no_metrics)
    paths = {route.path for app in apps for route in app.routes if isinstance(route, Route)}

    assert not [path for path in sorted(paths) if f"{path}`" not in text]
