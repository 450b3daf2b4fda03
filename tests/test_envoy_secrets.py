"""What is secret in what an Envoy says is neither in its lines nor in its data."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cp.model.envoy_dumps import redacted_error
from cp.model.envoy_secrets import redacted_lines
from cp.model.secret_data import redacted, without_secret_fields

TOKEN = "eyJhbGciOiJub25lIn0.eyJuYW1lIjoid2ViIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN PRIVATE KEY-----\nQQQQ\n-----END PRIVATE KEY-----\n"
CASES: list[tuple[Any, Any]] = [
    ({"private_key": {"inline_bytes": "c2VjcmV0LXRleHQ="}}, {"private_key": {"inline_bytes": "[redacted]"}}),
    ({"private_key": "secret-text", "next": "kept"}, {"private_key": "[redacted]", "next": "kept"}),
    ({"password": ["secret-text", "text"], "next": "kept"}, {"password": ["[redacted]"] * 2, "next": "kept"}),
    ({"password": {"inline_string": "secret-text"}}, {"password": {"inline_string": "[redacted]"}}),
    (
        {"session_ticket_keys": {"keys": [{"inline_bytes": "secret-text"}, {"inline_bytes": "secret-text"}]}},
        {"session_ticket_keys": {"keys": [{"inline_bytes": "[redacted]"}, {"inline_bytes": "[redacted]"}]}},
    ),
    (
        {"initial_metadata": [{"key": "authorization", "value": "secret-text"}, {"key": "other", "value": "kept"}]},
        {"initial_metadata": [{"key": "authorization", "value": "[redacted]"}, {"key": "other", "value": "kept"}]},
    ),
    (
        {"header": {"key": "X-Api-Key", "value": "secret-text"}, "append_action": "kept"},
        {"header": {"key": "X-Api-Key", "value": "[redacted]"}, "append_action": "kept"},
    ),
    (
        {"headers": [{"name": "cookie", "string_match": {"exact": "secret-text"}}], "route": {"cluster": "kept"}},
        {"headers": [{"name": "cookie", "string_match": {"exact": "[redacted]"}}], "route": {"cluster": "kept"}},
    ),
    (
        {"name": "authorization", "domains": ["kept"], "connect_timeout": "5s"},
        {"name": "authorization", "domains": ["kept"], "connect_timeout": "5s"},
    ),
    ({"command": f"run --token {TOKEN} --now"}, {"command": "run --token [redacted] --now"}),
    ({"text": "Bearer secret-text"}, {"text": "Bearer [redacted]"}),
    ({"text": "Basic c2VjcmV0OnRleHQ="}, {"text": "Basic [redacted]"}),
    ({"credentials": {"secret_access_key": "secret-text"}}, {"credentials": {"secret_access_key": "[redacted]"}}),
    ({"text": "eyJhbGciOi.short and eyJhbGciOi.longer"}, {"text": "eyJhbGciOi.short and eyJhbGciOi.longer"}),
    ([{"filename": "/etc/key.pem"}, 7, None, True], [{"filename": "/etc/key.pem"}, 7, None, True]),
]


@pytest.mark.parametrize(("data", "shown"), CASES, ids=lambda data: str(data)[:30])
def test_data_has_no_secrets(data: Any, shown: Any) -> None:
    assert redacted(data) == shown
    assert redacted(shown) == shown


@pytest.mark.parametrize("indentation", [1, 4])
@pytest.mark.parametrize(("data", "shown"), CASES, ids=lambda data: str(data)[:30])
def test_lines_have_no_secrets(data: Any, shown: Any, indentation: int) -> None:
    lines = json.dumps(data, indent=indentation).splitlines(keepends=True)

    assert json.loads("".join(redacted_lines(lines))) == shown


@pytest.mark.parametrize("data", [data for data, _ in CASES[:3]], ids=str)
def test_a_secret_on_the_line_of_its_name_is_left_out_too(data: Any) -> None:
    (line,) = redacted_lines([json.dumps(data)])

    assert "secret" not in line
    assert "c2VjcmV0" not in line


DUMP = """goo.gle/debugonly
header {
  key: "authorization"
  value: "secret-text"
}
private_key { inline_string: "secret-text\\"x" }
: Proto constraint validation failed
"""


def test_rejected_resource_has_no_secret() -> None:
    """The dump of a configuration has the error of each resource that Envoy has rejected."""
    data = {"error_state": {"details": DUMP, "last_update_attempt": "kept"}, "url": "user:secret-text@host/path"}
    lines = "".join(redacted_lines(json.dumps(data, indent=1).splitlines(keepends=True)))

    for shown in (json.loads(lines), redacted(data)):
        assert "secret-text" not in str(shown)
        assert 'key: "authorization"' in shown["error_state"]["details"]
        assert shown["error_state"]["details"].endswith("Proto constraint validation failed\n")
        assert shown["error_state"]["last_update_attempt"] == "kept"


@pytest.mark.parametrize("size", [1, 10, 30, 60, 100])
def test_rejected_resource_in_pieces_has_no_secret(size: int) -> None:
    """A long line is read in pieces."""
    line = json.dumps({"details": DUMP})[1:-1]
    pieces = [line[: 20 + size], *(line[at : at + size] for at in range(20 + size, len(line), size)), ",\n"]

    shown = "".join(redacted_lines(["{\n", *pieces, '"a": "kept"\n', "}\n"]))

    assert json.loads(shown) == {"details": "[redacted]", "a": "kept"}


def test_a_private_key_in_any_text_is_left_out() -> None:
    assert redacted({"lua": f"key = {PEM} end"}) == {"lua": "key = [redacted]\n end"}
    (line,) = redacted_lines([json.dumps({"lua": PEM})])
    assert "QQQQ" not in line


@pytest.mark.parametrize(
    "text",
    [
        *(
            "eyJ",
            "eyJeyJ.",
            "bearer ",
            "-----BEGIN ",
            "-----BEGIN A PRIVATE KEY-----",
            "://a:",
            "://a",
            "?key=",
            "pwd=",
        ),
        *('inline_string: "', 'key: "authorization" value: "', "{key: ", "[key, ", "- key\n", "# key\n"),
        *(
            "bearer:token:",
            "bearer ",
            "basic:",
            "a:b@",
            "//a:b@",
            'token="',
            "token=",
            "token",
            '("a","',
            "# token: x\n",
        ),
        *("a: *b, ", "\\", '\\"', '"details": "', "a.b-", "\ufdfa"),
    ],
)
def test_no_text_of_a_compromised_machine_costs_more_than_its_length(text: str) -> None:
    """Ten times the text took a hundred times as long, and nothing else ran meanwhile."""
    few, many = [text * 2_000], [text * 20_000]

    assert (_seconds(many) < 0.3) or _seconds(many) < 30 * _seconds(few)


def _seconds(data: Any) -> float:
    began = time.thread_time()
    redacted(data)
    list(redacted_lines(data))
    redacted_error(data[0])
    return time.thread_time() - began


def test_to_compare_two_sides_what_is_emptied_on_one_is_left_out_on_both() -> None:
    assert without_secret_fields({"privateKey": "[redacted]", "a": [{"password": "x", "b": 1}]}) == {"a": [{"b": 1}]}
