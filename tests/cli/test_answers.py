"""Every command answers programs in JSON, as it is described."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.cli.answers import ANSWERS, NO_ANSWER, Words
from cp.cli.commands import COMMANDS
from tests.api.samples import dataplane, timeout
from tests.cli.conftest import Koguma
from tests.cli.test_width import service
from tests.support.mesh import MESH

KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
}

LINES: Mapping[Words, str] = {
    ("dp", "grpc-bootstrap"): "caller",
    ("validate",): "-f {mesh}",
    ("lint",): "",
    ("render",): "web-1",
    ("inspect",): "dataplanes",
    ("explain",): "web-1 backend:9000/",
    ("apply",): "-f {mesh} --wait",
    ("plan",): "-f {extra}",
    ("get",): "dataplanes",
    ("delete",): "-f {extra}",
    ("history",): "",
    ("diff",): "1",
    ("rollback",): "1 --dry-run",
    ("rollout", "list"): "",
    ("rollout", "show"): "",
    ("export",): "",
    ("migrate",): "default",
    ("import",): "{mesh} --dry-run",
    ("backup",): "{folder}/copy.db --store sqlite:///{folder}/koguma.db",
    ("restore",): "{folder}/koguma.db --store sqlite:///{folder}/other.db",
    ("store", "copy"): "dir:{folder}/files sqlite:///{folder}/third.db",
    ("generate", "dataplane-token"): "--valid-for 1h",
    ("generate", "user-token"): "--name ann --valid-for 1h",
    ("generate", "zone-token"): "--zone east --valid-for 1h",
    ("generate", "signing-key"): "",
    ("generate", "public-key"): "--signing-key-path {folder}/key.pem",
    ("generate", "tls-certificate"): "--type server --hostname a --key-file {folder}/k --cert-file {folder}/c",
    ("generate", "monitoring"): "--into {folder}/monitoring",
    ("generate", "secrets-key"): "{folder}/more.keys",
    ("access", "check"): "{folder}/access.yaml",
    ("secrets", "encrypt"): "--store sqlite:///{folder}/koguma.db --dry-run",
    ("config", "control-planes", "add"): "--name b --address http://b:1 --skip-check",
    ("config", "control-planes", "list"): "",
    ("config", "control-planes", "switch"): "--name a",
    ("config", "control-planes", "remove"): "--name a",
    ("config", "view"): "",
    ("version",): "",
}
"""A use of each command."""


OF_ENVOYS = {("log-level",)}
"""What only an Envoy can answer: tests/e2e/test_asked_envoys.py asks."""


OF_ROLLOUTS = {("rollout", command) for command in ("pause", "continue", "abort")}
"""What only a rollout that is under way answers: tests/e2e/test_rollouts.py asks."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands read and no command of a test has written."""
    folder, koguma = tmp_path_factory.mktemp("made"), Koguma()
    (files := folder / "files").mkdir()
    caller = dataplane(name="caller", service="caller") | {"labels": {"koguma.io/client": "grpc"}}
    documents = [MESH, service("web", "backend"), service("backend"), timeout(), caller]
    (files / "mesh.yaml").write_text(yaml.safe_dump_all(documents))
    (folder / "extra.yaml").write_text(yaml.safe_dump(timeout(name="extra")))
    (folder / "access.yaml").write_text("rights: [{groups: [team], may: [write]}]\n")
    (folder / "key.pem").write_text(koguma("generate", "signing-key").out)
    (folder / "key.pem").chmod(0o600)
    koguma("generate", "secrets-key", folder / "keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOGUMA_SECRETS_KEY_FILE", str(folder / "keys"))
        assert koguma("store", "copy", f"dir:{files}", f"sqlite:///{folder}/koguma.db").status == 0
    return folder


@pytest.fixture
def folder(koguma: Koguma, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder for one command, and a control plane that has the same."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    for file in (tmp_path / "files" / "mesh.yaml", tmp_path / "extra.yaml"):
        assert koguma("apply", "-f", file).status == 0
    (tmp_path / "rolled.yaml").write_text(yaml.safe_dump(reaches_nobody()))
    assert koguma("apply", "-f", tmp_path / "rolled.yaml", "--rollout", "1").status == 0
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(tmp_path / "keys"))
    koguma("config", "control-planes", "add", "--name", "a", "--address", "http://a:1", "--skip-check")
    return tmp_path


def reaches_nobody() -> dict[str, Any]:
    """A policy of which a rollout is done at once: nobody has to be waited for."""
    policy = timeout(name="rolled")
    return policy | {"spec": policy["spec"] | {"targetRef": {"kind": "Dataplane", "labels": {"app": "nobody"}}}}


def test_each_command_has_an_answer_that_is_described_or_a_reason_why_not() -> None:
    assert set(ANSWERS) | set(NO_ANSWER) == set(COMMANDS), "describe its answer in cp/cli/answers.py"
    assert not set(ANSWERS) & set(NO_ANSWER)
    assert set(LINES) | OF_ENVOYS | OF_ROLLOUTS == set(ANSWERS), "use it here"


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_the_answer_of_a_command_is_as_it_is_described(koguma: Koguma, folder: Path, words: Words) -> None:
    line = LINES[words].format(folder=folder, mesh=folder / "files", extra=folder / "extra.yaml")
    ended = koguma(*words, *line.split(), "-o", "json")

    data = json.loads(ended.out)
    described = {field.name: field for field in ANSWERS[words].fields}
    assert isinstance(data, dict)
    assert not [name for name, field in described.items() if field.always and name not in data]
    assert not {name for name, field in described.items() if name in data and not is_of(data[name], field.kind)}
    if not ANSWERS[words].page:
        assert not set(data) - set(described), "describe them"


def is_of(value: Any, kind: str) -> bool:
    return any(isinstance(value, KINDS[word]) for word in kind.split(" or "))
