"""What the page costs a browser, as `make bench ARGS=page` measures it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.browser import missing


@pytest.mark.long
def test_the_first_of_the_page_is_seen_as_soon_with_many_proxies_as_with_few() -> None:
    if reason := missing():
        pytest.skip(reason)

    ended = subprocess.run(
        [sys.executable, "-m", "bench", "page", "--quick"], check=False, capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "200 proxies" in ended.stdout
