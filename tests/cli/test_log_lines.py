"""What Envoy writes to its standard output: who gets which line."""

from __future__ import annotations

import io
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.agent.log_lines import LogLineRedactor, LogLineSorter, forwarded_output, redacted_log
from cp.model.envoy_dumps import DumpRedactor
from tests.secrecy.markers import CORE, markers_in

KEY = "0123456789abcdef"


class Taken:
    """Addresses that keep what they are given."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.closed = False

    def put(self, address: str, line: bytes) -> None:
        self.lines.append((address, line))

    def close(self, within: float) -> None:
        self.closed = True


def enveloped(line: object, key: str = KEY, to: str = "logs:5000") -> bytes:
    return json.dumps({"koguma": key, "line": line, "to": to}, separators=(",", ":")).encode() + b"\n"


def sorted_out(*chunks: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    taken = Taken()
    sorting = LogLineSorter(KEY, taken)
    passed_on = b"".join(map(sorting.take, chunks)) + sorting.end()
    return taken.lines, passed_on


def test_a_text_is_sent_as_it_is() -> None:
    assert sorted_out(enveloped('a "quoted" é\tline\n')) == ([("logs:5000", 'a "quoted" é\tline\n'.encode())], b"")


def test_an_object_is_sent_as_envoy_wrote_it_on_a_line_of_its_own() -> None:
    assert sorted_out(enveloped({"status": 200, "a": None})) == ([("logs:5000", b'{"status":200,"a":null}\n')], b"")


def test_what_is_in_no_envelope_is_passed_on() -> None:
    plain_lines = b"plain\n{}\n\n\xff\xfe\nno end"

    assert sorted_out(plain_lines) == ([], plain_lines)


def test_an_envelope_without_the_key_is_a_line_like_any_other() -> None:
    """Somebody who calls a proxy can have it write what they like into a log that goes to the same place."""
    forged = enveloped("forged\n", key="-") + enveloped(f"{KEY}\n", key="-") + b'{"koguma":"' + KEY.encode() + b'"}\n'

    assert sorted_out(forged) == ([], forged)


@given(cuts=st.lists(st.integers(0, 300)))
def test_it_does_not_matter_where_a_read_ends(cuts: list[int]) -> None:
    whole = b"one\n" + enveloped("first\n") + b"two\n" + enveloped({"n": 2}, to="other:1") + b"three"
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {len(whole)})
    chunks = [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    assert sorted_out(*chunks) == ([("logs:5000", b"first\n"), ("other:1", b'{"n":2}\n')], b"one\ntwo\nthree")


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    sorting = LogLineSorter(KEY, Taken())
    chunk = b"x" * 65536

    passed = sum(len(sorting.take(chunk)) for _ in range(100))

    assert passed > 80 * len(chunk)


def test_the_output_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    taken, passed_on = Taken(), io.BytesIO()
    with os.fdopen(reading, "rb") as output:
        with forwarded_output(output, KEY, taken, passed_on):
            os.write(writing, b"one\n" + enveloped("first\n"))
            os.close(writing)

        assert (taken.lines, passed_on.getvalue(), taken.closed) == ([("logs:5000", b"first\n")], b"one\n", True)


def test_where_nobody_reads_the_rest_lines_are_sent_all_the_same() -> None:
    reading, writing = os.pipe()
    taken, passed_on = Taken(), io.BytesIO()
    passed_on.close()
    with os.fdopen(reading, "rb") as output, forwarded_output(output, KEY, taken, passed_on):
        os.write(writing, b"one\n" + enveloped("first\n"))
        os.close(writing)

    assert taken.lines == [("logs:5000", b"first\n")]


ENTRY = "[2026-11-20 15:07:47.727][7][warning][config] [source/x.cc:81] "
DUMP = f"""{ENTRY}rejected: goo.gle/debugonly
name: "kept-1"
headers {{
  key: "authorization"
  value: "{CORE}"
}}
metadata {{
  fields {{
    key: "password"
    value {{
      struct_value {{ fields {{ key: "a" value {{ string_value: "{CORE}" }} }} }}
    }}
  }}
}}
private_key {{ inline_string: "{CORE}" }}
default_source_code {{ inline_string: "x = \\"{CORE}\\"" }}
session_ticket_keys {{
  keys {{
    inline_bytes: "{CORE}"
{ENTRY}another thread's; port_value: 8080 "name": "kept-2"
{ENTRY}[Tags: "StreamId":"1"] request headers complete (end_stream=true):
':path', '/kept-3?token={CORE}'
'authorization', 'Basic {CORE}'
{ENTRY}{{"headers": [{{"name": "x-api-key", "value": "{CORE}"}}], "url": "http://u:{CORE}@h/", "name": "kept-4"}}
{ENTRY}error_detail {{ message: "bad: fields {{\\n key: \\"token\\"\\n value {{ string_value: \\"{CORE}\\" }}" }} kept-5
\xff \x00 no secret""".encode("latin-1")
"""What Envoys print of messages, of headers at level debug, and of errors that quote both."""


def redacted_log_of(*chunks: bytes) -> bytes:
    lines = LogLineRedactor()
    return b"".join(map(lines.take, chunks)) + lines.end()


def test_log_is_passed_on_without_secrets() -> None:
    shown = redacted_log_of(DUMP)

    assert not markers_in(shown)
    assert shown.count(b"[redacted]") >= DUMP.count(CORE.encode())
    assert len(shown.splitlines()) == len(DUMP.splitlines())
    assert all(f"kept-{number}".encode() in shown for number in range(1, 6))
    assert b"port_value: 8080" in shown
    assert shown.endswith(b"\xff \x00 no secret")


@given(cuts=st.lists(st.integers(0, len(DUMP))))
def test_log_does_not_depend_on_reads(cuts: list[int]) -> None:
    ends = sorted({*cuts, len(DUMP)})

    assert redacted_log_of(*(DUMP[a:b] for a, b in zip([0, *ends], ends, strict=False))) == redacted_log_of(DUMP)


@given(st.lists(st.sampled_from(["a b", "{", "}", '"', "\\", "é", "\n", "5", ": ", "name", "[x]", "\x00"])))
def test_other_lines_stay_as_they_are(parts: list[str]) -> None:
    log = "".join(parts).encode()

    assert redacted_log_of(log) == log


def test_line_that_cannot_be_redacted_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DumpRedactor, "line", lambda _, text: 1 / len(text))

    assert (
        redacted_log_of(b"one\n\n") == b"[a line that cannot be redacted]\n" * 2 + b"[a line that cannot be redacted]"
    )


def test_long_s_in_base64_is_no_error() -> None:
    assert redacted_log_of("Basic \u017f\u017f\u017f\u017f".encode()) == "Basic \u017f\u017f\u017f\u017f".encode()


def test_long_log_line_is_cut_off() -> None:
    begun = b'private_key: "' + b"x" * 3_000_000

    shown = redacted_log_of(begun[:1000], begun[1000:], b"\nnext")

    assert shown == b'private_key: "[redacted]" [1951438 more bytes]\nnext'


def test_log_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    passed_on = io.BytesIO()
    with os.fdopen(reading, "rb") as log:
        with redacted_log(log, passed_on):
            os.write(writing, DUMP)
            os.close(writing)

        assert passed_on.getvalue() == redacted_log_of(DUMP)


@pytest.mark.parametrize("part", ['"', "{", '"a": {', '\\"', '"\\"', "[a] ", "bearer:token:", "a:b@", 'token="', "_"])
def test_log_line_costs_its_length(part: str) -> None:
    short, long = (part * (size // len(part)) for size in (20_000, 200_000))

    assert _seconds(long) < max(0.3, 40 * _seconds(short))


def _seconds(line: str) -> float:
    began = time.thread_time()
    redacted_log_of(line.encode())
    return time.thread_time() - began
