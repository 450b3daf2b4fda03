"""What is logged, and in which form."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from cp import log

ROOT = Path(__file__).resolve().parent.parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging is set up for a whole process: leave it as it was."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


def logged(level: str = "info", form: str = "json") -> io.StringIO:
    out = io.StringIO()
    log.configure(level, form, out)
    return out


def test_an_event_is_one_line_of_json_with_its_facts() -> None:
    out = logged()

    structlog.get_logger().info("api.stored", resource="Mesh default", revision=3)

    line = json.loads(out.getvalue())
    assert (line["event"], line["level"], line["revision"]) == ("api.stored", "info", 3)
    assert line["timestamp"].endswith("Z")


def test_what_libraries_log_has_the_same_form() -> None:
    out = logged()

    logging.getLogger("uvicorn.error").warning("port %d is slow", 5681)

    assert json.loads(out.getvalue())["event"] == "port 5681 is slow"


def test_what_is_below_the_level_is_not_logged() -> None:
    out = logged("warning")

    structlog.get_logger().info("api.stored")

    assert not out.getvalue()


def test_a_trace_is_in_the_line_of_its_event() -> None:
    out = logged()

    try:
        json.loads("oh")
    except ValueError:
        structlog.get_logger().exception("api.failed")

    assert json.loads(out.getvalue())["exception"][0]["exc_type"] == "JSONDecodeError"


def test_a_log_for_people_has_no_braces() -> None:
    out = logged(form="console")

    structlog.get_logger().info("api.stored", revision=3)

    assert "{" not in out.getvalue()
    assert "api.stored" in out.getvalue()


def test_output_that_is_no_terminal_gets_json() -> None:
    out = logged(form="auto")

    structlog.get_logger().info("api.stored")

    assert json.loads(out.getvalue())["event"] == "api.stored"


def events() -> Iterator[tuple[str, str]]:
    """Every event that the control plane logs, with the place."""
    for path in sorted((ROOT / "cp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _logs(node) and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), f"{path.relative_to(ROOT)}:{node.lineno}"


def _logs(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS or not call.args:
        return False
    return "log" in ast.unparse(call.func.value).lower()


def test_every_event_that_is_logged_is_in_the_list() -> None:
    assert not [f"{event} ({place})" for event, place in events() if event not in log.EVENTS]


def test_every_event_in_the_list_is_logged_somewhere() -> None:
    assert set(log.EVENTS) <= {event for event, _ in events()}


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_trace_says_where_and_not_which_values_were_at_hand(form: str) -> None:
    out = logged(form=form)
    key = "-----BEGIN " + "PRIVATE KEY-----"

    try:
        int(f"no number, and {len(key)} is beside it")
    except ValueError:
        structlog.get_logger().exception("proxy.failed")

    assert "test_a_trace_says_where" in out.getvalue()
    assert key not in out.getvalue()
