"""Regular expressions mean here what they mean to Envoy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cp.model import regex
from tests.support.bootstraps import HCM, ROUTER, socket_address
from tests.support.envoy import envoy_binary
from tests.support.loopback import new_address


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("/api/.*", "/api/"), ("a$", "a"), ("[[:alpha:]]+", "abc"), (r"\Qa.b\E", "a.b"), ("(?i)API", "api"), ("é", "é")],
)
def test_an_expression_takes_a_whole_text(pattern: str, text: str) -> None:
    assert regex.matches(pattern, text)
    assert not regex.matches(pattern, f"{text}\n")
    assert not regex.matches(pattern, f"-{text}")


def test_an_expression_that_python_never_ends_with_ends() -> None:
    assert not regex.matches("(a*)*b", "a" * 5000)


@pytest.mark.parametrize(
    ("pattern", "substitution", "text", "expected"),
    [
        ("^[^?]*", "/new", "/old", "/new"),
        ("^/v1/?", "/", "/v1/x", "/x"),
        ("/(v[0-9])/(.*)", r"/\2/\1", "/v1/x", "/x/v1"),
        ("a", r"\\", "aa", r"\\"),
        ("x*", "-", "abc", "-a-b-c-"),
        ("(", "-", "abc", "abc"),
    ],
)
def test_what_an_expression_takes_can_be_replaced(pattern: str, substitution: str, text: str, expected: str) -> None:
    assert regex.replaced(pattern, substitution, text) == expected


@pytest.mark.parametrize("pattern", ["(?=a)", "(a", "a**", "a++", r"\1", "[b-a]", "x{1001}", "[[:bear:]]"])
def test_what_is_no_expression_of_re2_has_a_fault(pattern: str) -> None:
    assert regex.fault(pattern)
    assert not regex.matches(pattern, "a")
    assert not regex.excess(pattern)


SIZES = ["a{95}", "a{96}", "a{97}", ".{47}", ".{48}", ".{49}", "/reports/[0-9a-f]{64}", "(/[a-z]+){3}"]


def test_expressions_can_be_too_large() -> None:
    assert [bool(regex.excess(pattern)) for pattern in SIZES] == [False, False, True, False, False, True, True, False]


@pytest.mark.parametrize("part", ["a{1000}", ".{1000}", "(a?){1000}", "(?:a|bc){333}"])
def test_an_expression_that_would_take_megabytes_is_not_made(part: str) -> None:
    assert regex.fault(part * 150) == "pattern too large - compile failed"


@pytest.mark.envoy
def test_envoy_refuses_what_is_too_large_and_nothing_else(tmp_path: Path) -> None:
    """Before 1.39 Envoy counts more steps for some; what is too large here is too large for every one."""
    refused = [pattern for pattern in SIZES if not _is_taken(pattern, tmp_path)]
    too_large = [pattern for pattern in SIZES if regex.excess(pattern)]

    assert set(too_large) <= set(refused)
    assert set(refused) - set(too_large) <= {".{47}", ".{48}"}


def _is_taken(pattern: str, folder: Path) -> bool:
    config = folder / "envoy.json"
    config.write_text(json.dumps(_bootstrap(pattern)))
    return (
        subprocess.run(
            [envoy_binary(), "--mode", "validate", "-c", config], capture_output=True, check=False
        ).returncode
        == 0
    )


def _bootstrap(pattern: str) -> dict[str, Any]:
    route = {"match": {"safe_regex": {"regex": pattern}}, "direct_response": {"status": 200}}
    manager = {
        "@type": HCM,
        "stat_prefix": "sizes",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "sizes", "address": socket_address(new_address()), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener]}}
