"""Completion: what can come next, and shells that ask for it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cp.app import RunningControlPlane
from cp.cli import known_names
from cp.cli.completing import complete, completions
from cp.cli.contexts import ClientConfig, KnownControlPlane, write_config
from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.support.mesh import MESH
from tests.support.waiting import eventually


@pytest.fixture
def address(running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"http://127.0.0.1:{running.http_port}"
    httpx.put(f"{url}/meshes/default", json=MESH).raise_for_status()
    for name in ("web-1", "web-2", "backend-1"):
        httpx.put(f"{url}/meshes/default/dataplanes/{name}", json=dataplane(name=name)).raise_for_status()
    monkeypatch.setenv("KOGUMA_ADDRESS", url)
    return url


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["expo"], ["export"]),
        (["config", "control-planes", ""], ["add", "list", "switch", "remove"]),
        (["get", "meshtimeo"], ["meshtimeouts"]),
        (["inspect", "data"], ["dataplanes", "dataplane"]),
        (["get", "meshes", "--out"], ["--output"]),
        (["get", "meshes", "-o", ""], ["table", "wide", "yaml", "json"]),
        (["completion", "version", ""], []),
        (["nothing", ""], []),
        (["version", "x", ""], []),
    ],
)
def test_commands_types_and_options_are_completed_without_a_control_plane(
    words: list[str], expected: list[str]
) -> None:
    assert list(completions(words)) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["get", "dataplanes", "web"],
        ["inspect", "rules", "web"],
        ["explain", "web"],
        ["get", "-o", "json", "dp", "--mesh", "default", "web"],
    ],
)
def test_names_come_from_the_control_plane(address: str, words: list[str]) -> None:
    assert list(completions(words)) == ["web-1", "web-2"]


def test_a_control_plane_on_the_command_line_is_asked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOGUMA_ADDRESS", "http://127.0.0.1:9")

    assert list(completions(["get", "dp", "--address", address, "back"])) == ["backend-1"]


def test_contexts_are_completed() -> None:
    write_config(ClientConfig().adding(KnownControlPlane("prod", "http://a:1")))

    assert list(completions(["get", "meshes", "--context", ""])) == ["prod"]
    assert list(completions(["config", "control-planes", "switch", "--name", ""])) == ["prod"]


def test_names_are_remembered_for_a_while_for_their_owner_alone(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(completions(["get", "dp", ""]))
    httpx.put(f"{address}/meshes/default/dataplanes/web-3", json=dataplane(name="web-3")).raise_for_status()

    assert list(completions(["get", "dp", ""])) == before
    (file,) = (Path.home() / ".cache" / "koguma").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(known_names, "_FRESH", 0.0)
    assert "web-3" in list(completions(["get", "dp", ""]))


def test_a_control_plane_that_does_not_answer_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KOGUMA_ADDRESS", "http://127.0.0.1:9")

    complete(["get", "dataplanes", ""])

    assert capsys.readouterr() == ("", "")


def test_what_a_shell_might_obey_is_left_out(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = ["$(rm)", "a b", "`x`", "good", "--output", "x;y", "\x1b[2J"]
    monkeypatch.setattr(known_names, "known_names", lambda access, path: hostile)

    assert list(completions(["get", "dp", ""])) == ["good"]


def test_commands_are_completed_without_reading_options() -> None:
    code = "import sys; from cp.cli.completing import complete; complete(['ge']); print('typer' in sys.modules)"
    command = [sys.executable, "-c", code]

    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "get\ngenerate\nFalse\n"


class _Terminal:
    """A shell that somebody types into."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def shows(self, text: str) -> bool:
        self.text += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        return text in self.text


@pytest.fixture(params=["bash", "zsh", "fish"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path, offline: Koguma) -> Iterator[_Terminal]:
    """A shell that knows how to complete `koguma`."""
    name: str = request.param
    if (program := shutil.which(name)) is None:
        pytest.skip(f"there is no {name} here")
    (program_of_ours := tmp_path / "koguma").write_text(f'#!/bin/sh\nexec {sys.executable} -m cp "$@"\n')
    program_of_ours.chmod(0o755)
    (script := tmp_path / "script").write_text(offline("completion", name).out)
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    prepare = "autoload -U compinit; compinit -u; " if name == "zsh" else ""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb"}  # noqa: TID251  # the shell's
    ours, child_end = os.openpty()
    os.set_blocking(ours, False)
    # fish works at a terminal of its own alone.
    at_terminal = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", at_terminal, program, *options, "-i"]
    with subprocess.Popen(
        command, stdin=child_end, stdout=child_end, stderr=child_end, env=environment, cwd=tmp_path
    ) as running:
        terminal = _Terminal(ours)
        terminal.type(f"{prepare}source {script}; echo re''ady\n")
        eventually(lambda: terminal.shows("ready"), 20)
        yield terminal
        running.kill()
    os.close(ours)
    os.close(child_end)


def test_a_shell_completes_types_and_names(address: str, terminal: _Terminal) -> None:
    terminal.type("koguma get meshtimeo\t")
    eventually(lambda: terminal.shows("meshtimeouts"), 20)
    terminal.type("\x15")
    terminal.type(f"koguma get dataplanes --address {address} backe\t")
    eventually(lambda: terminal.shows("backend-1"), 20)


def test_words_in_quotes_are_read_as_they_are_meant(address: str, terminal: _Terminal) -> None:
    terminal.type(f'koguma get dataplanes --address "{address}" backe\t')
    eventually(lambda: terminal.shows("backend-1"), 20)


def test_where_a_file_can_stand_files_are_completed(tmp_path: Path, terminal: _Terminal) -> None:
    (tmp_path / "a mesh.yaml").touch()
    terminal.type("koguma apply -f a\\ m\t")
    eventually(lambda: terminal.shows("a\\ mesh.yaml"), 20)
