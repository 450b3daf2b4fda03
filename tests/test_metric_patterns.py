"""Regular expressions of MeshMetric, as patterns of Lua: read back, they find what the expression finds."""

from __future__ import annotations

import pytest

from cp.policies.mesh_metric.patterns import NotAPattern, patterns


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("envoy_server", ("envoy%_server",)),
        ("^a.*b$", ("^a.*b$",)),
        ("a|^b$|c", ("a", "^b$", "c")),
        ("rq_(total|xx)$", ("rq%_total$", "rq%_xx$")),
        ("(a|b)?c", ("ac", "bc", "c")),
        ("(?:a|b)(c|d)", ("ac", "ad", "bc", "bd")),
        ("[0-9]xx", ("[0-9]xx",)),
        ("[^a-z_.-]+", ("[^a-z%_%.%-]+",)),
        (r"\d+\.\w*?", ("%d+%.[%w_]*",)),
        ("100%-x", ("100%%%-x",)),
        ("", ("",)),
    ],
)
def test_an_expression_is_one_pattern_for_each_alternative(expression: str, expected: tuple[str, ...]) -> None:
    assert patterns(expression) == expected


@pytest.mark.parametrize(
    "expression",
    ["(ab)+", "a{2}", "a^b", "a$b", "(a", "a)", "[a", "[[:alpha:]]", "(?i)a", r"\bword", "a\\"[:2], "(a|b)" * 9],
)
def test_what_no_patterns_stand_for_is_told(expression: str) -> None:
    with pytest.raises(NotAPattern):
        patterns(expression)
