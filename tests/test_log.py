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
    for handler in root.handlers:
        if isinstance(handler, log.LogFile):
            handler.close()
    root.handlers, root.level = before, level
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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


def test_what_strangers_send_moves_no_terminal_and_begins_no_line() -> None:
    out = logged(form="console")
    structlog.get_logger().info("api.refused", path="/\x1b[2J\x9b31m", reason="no\nError: run this", number=1)
    logging.getLogger("uvicorn.error").warning("bad \x1b]0;owned\x07")

    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert r"path=/\x1b[2J\x9b31m" in lines[0]


@pytest.mark.parametrize(
    ("out", "no_color", "is_coloured"),
    [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)],
)
def test_colours_are_for_terminals_whose_user_wants_them(
    monkeypatch: pytest.MonkeyPatch, out: type[io.StringIO], no_color: str, is_coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    log.configure("info", "console", stream := out())

    structlog.get_logger().info("api.stored", status=200)

    assert ("\x1b[" in stream.getvalue()) is is_coloured


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


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    file, old = tmp_path / "koguma.log", tmp_path / "koguma.log.1"
    log.configure("info", "auto", file=str(file))

    structlog.get_logger().info("api.stored", revision=3)
    file.rename(old)
    structlog.get_logger().info("api.stored", revision=4)

    assert [json.loads(part.read_text())["revision"] for part in (old, file)] == [3, 4]
    assert file.stat().st_mode & 0o007 == 0, "others may read it"


def test_what_is_in_a_log_already_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "koguma.log"
    file.write_text('{"revision": 3}\n')
    log.configure("info", "json", file=str(file))

    structlog.get_logger().info("api.stored", revision=4)

    assert [json.loads(line)["revision"] for line in file.read_text().splitlines()] == [3, 4]


def test_a_log_that_cannot_be_begun_anew_fails_nobody_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, away = tmp_path / "logs", tmp_path / "away"
    folder.mkdir()
    file = folder / "koguma.log"
    log.configure("info", "json", file=str(file))
    logger = structlog.get_logger()

    folder.rename(away)
    logger.info("api.stored", revision=3)
    logger.info("api.stored", revision=4)
    told, *lines = capsys.readouterr().err.splitlines()
    assert ("cannot be written" in told, str(file) in told) == (True, True)
    assert [json.loads(line)["revision"] for line in lines] == [3, 4]

    folder.mkdir()
    logger.info("api.stored", revision=5)
    assert json.loads(file.read_text())["revision"] == 5
    file.unlink()
    folder.rmdir()
    logger.info("api.stored", revision=6)
    assert "cannot be written" in capsys.readouterr().err, "that it is away again is not told"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_line_that_a_full_disk_does_not_take_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "koguma.log"
    file.symlink_to("/dev/full")
    log.configure("info", "json", file=str(file))

    structlog.get_logger().info("api.stored", revision=3)

    told, line = capsys.readouterr().err.splitlines()
    assert ("No space left" in told, json.loads(line)["revision"]) == (True, 3)


def test_nobody_fails_where_standard_error_is_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure("info", "json", file=str(tmp_path / "koguma.log"))
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr("sys.stderr", stream)
        (tmp_path / "koguma.log").unlink(missing_ok=True)
        tmp_path.rename(tmp_path.with_name("away"))
        structlog.get_logger().info("api.stored", revision=3)
        tmp_path.with_name("away").rename(tmp_path)
