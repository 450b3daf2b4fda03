"""What is answered while the database is away, as the guide for several machines has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cp import app
from cp.settings import Settings
from cp.store.port import Unusable
from tests.api.samples import TIMEOUT_YAML
from tests.cli.conftest import Koguma, running_control_plane
from tests.support.envoy import ROOT
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.waiting import eventually

GUIDE = ROOT / "docs/guides/several-machines.md"
DATAPLANE = """\
type: Dataplane
mesh: default
name: web-1
networking:
  address: 127.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web}}]
  outbound: [{port: 10001, backendRef: {kind: MeshService, name: web, port: 80}}]
---
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}
"""
COMMANDS = {
    "koguma inspect instances": "inspect instances",
    "koguma inspect dataplane NAME": "inspect dataplane web-1",
    "koguma inspect rules NAME": "inspect rules web-1",
    "koguma render NAME": "render web-1",
    "koguma explain": "explain web-1 http://127.0.0.1:10001/",
    "koguma lint": "lint",
    "koguma inspect dataplanes": "inspect dataplanes",
    "koguma get": "get meshtimeouts",
    "koguma history": "history",
    "koguma diff": "diff 1",
    "koguma export": "export",
    "koguma apply": "apply -f FILE",
    "koguma delete": "delete meshtimeout slow",
    "koguma rollback": "rollback 1",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (file := tmp_path_factory.mktemp("files") / "timeout.yaml").write_text(TIMEOUT_YAML)
    return file


@pytest.fixture(scope="module")
def away(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Koguma]:
    """A control plane whose database has gone."""
    with running_control_plane(tmp_path_factory.mktemp("cp"), store=server.new_url()) as running:
        koguma = Koguma(f"http://127.0.0.1:{running.http_port}")
        assert koguma("apply", "-f", "-", stdin=f"{TIMEOUT_YAML}\n---\n{DATAPLANE}").status == 0
        eventually(lambda: koguma("inspect", "dataplane", "web-1").status == 0)
        server.stop()
        eventually(lambda: koguma("get", "meshes").status == 1)
        yield koguma


def listed(title: str) -> list[str]:
    """The commands that the guide has in a row of its table."""
    row = re.search(rf"^\| {title} \| (.*?) \|", GUIDE.read_text(), re.MULTILINE)
    assert row is not None
    return re.findall("`(koguma [^`]*)`", row[1])


def test_the_guide_names_each_command_once() -> None:
    assert sorted([*listed("answered"), *listed("answered with 503")]) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_answered_is_what_the_guide_says(away: Koguma, file: Path, command: str) -> None:
    ended = away(*COMMANDS[command].replace("FILE", str(file)).split())

    assert (ended.status == 0) == (command in listed("answered")), ended.out + ended.err
    assert ended.status == 0 or "away" in ended.err


def test_what_a_database_says_begins_no_line_of_its_own(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Anybody may answer at its address, before it is verified."""

    def refusing(_: Settings) -> None:
        raise Unusable("db: \x1b]0;owned\x07\nError: run this")

    monkeypatch.setattr(app, "run", refusing)
    ended = offline("run", "--store", f"sqlite:///{tmp_path}/k.db")

    assert ended.status == 1
    assert ended.err == "Error: db: \\x1b]0;owned\\x07\\nError: run this\n"
