"""Manual pages say what the help of commands says, in a form that `man` reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cp.cli.commands import COMMANDS
from cp.cli.main import command
from docs.manual import manual_pages, write


def test_each_command_has_a_page_with_all_its_options_and_examples() -> None:
    pages = manual_pages("1.0")

    assert len(pages) == len(COMMANDS) + 1
    for words in COMMANDS:
        page = pages[f"{'-'.join(('koguma', *words))}.1"].replace("\\-", "-")
        visible = (each for each in command(words).params if not getattr(each, "hidden", False))
        assert not [each.opts[0] for each in visible if each.opts[0].startswith("-") and each.opts[0] not in page]
        assert f"koguma {' '.join(words)}" in page.partition(".SH EXAMPLES")[2]


def test_no_text_is_taken_for_a_request() -> None:
    requests = {".TH", ".SH", ".TP", ".B", ".BR", ".I", ".PP", ".nf", ".fi", ".RS", ".RE"}
    lines = (line for page in manual_pages("1.0").values() for line in page.splitlines())

    assert not [line for line in lines if line.startswith((".", "'")) and line.split()[0] not in requests]


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_man_reads_a_page_and_has_nothing_to_complain_of(tmp_path: Path) -> None:
    write(tmp_path, "1.0")
    command_line = ["man", "--warnings", "--local-file", str(tmp_path / "koguma-get.1")]
    ended = subprocess.run(command_line, check=False, capture_output=True, text=True)
    if "minimized" in ended.stdout or ended.returncode == 127:
        pytest.skip("man is a stub here")

    assert ended.stderr == ""
    assert "koguma get meshtimeouts" in ended.stdout
