"""`koguma history`, `diff`, `rollback`, `export`, and `get --at`, against a control plane."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.cli import past
from cp.client.api_calls import ApiCalls
from cp.client.client import Client
from cp.client.http import HttpAnswer
from tests.api.samples import TIMEOUT_YAML, dataplane
from tests.api.test_secrets import INLINE
from tests.cli.conftest import Koguma

SECRET = f"type: Secret\nmesh: default\nname: key\ndata: {INLINE}\n"


def applied(koguma: Koguma, text: str = TIMEOUT_YAML) -> int:
    """Apply a text. Returns the revision that is reached."""
    ended = koguma("apply", "-f", "-", stdin=text)
    assert ended.status == 0, ended.err
    return revision(koguma)


def revision(koguma: Koguma) -> int:
    return int(json.loads(koguma("history", "--size", "1", "-o", "json").out)["newest"])


def edited(koguma: Koguma) -> tuple[int, int]:
    return applied(koguma), applied(koguma, TIMEOUT_YAML.replace("10s", "20s"))


# --- history ------------------------------------------------------------------------------------------------


def test_the_history_of_a_resource_is_a_table(koguma: Koguma) -> None:
    before, after = edited(koguma)

    ended = koguma("history", "mt", "slow")
    assert ended.lines[0].split() == ["REVISION", "TIME", "(UTC)", "AUTHOR", "BY", "CHANGE", "RESOURCE"]
    rows = [line.split() for line in ended.lines[1:3]]
    assert [(row[0], row[3:]) for row in rows] == [
        (str(number), ["mesh-system:admin", "apply", "from", "127.0.0.1", word, "MeshTimeout", "default/slow"])
        for number, word in ((after, "Updated"), (before, "Created"))
    ]


def test_the_history_says_how_to_see_what_came_before(koguma: Koguma) -> None:
    _, after = edited(koguma)

    assert f"koguma history with --before={after} shows what came before." in koguma("history", "--size", "1").err
    assert "remembers no more: revision 0 is the oldest to go back to" in koguma("history", "--before", "1").err


def test_proxies_that_come_and_go_are_left_out_of_the_history(koguma: Koguma) -> None:
    before, after = edited(koguma)
    path = "/meshes/default/dataplanes/web-9"
    for number in range(3):
        client = Client(koguma.environment["KOGUMA_ADDRESS"])
        client.put(path, json.dumps(dataplane(name="web-9")), owner=f"run-{number}")
        client.readiness(path, f"run-{number}", ready=True)
    last = koguma("history", "--registrations", "--size", "1").lines[1].split()

    ended = koguma("history", "--size", "2")

    assert last[-1] == "default/web-9"
    assert [line.split()[0] for line in ended.lines[1:3]] == [str(after), str(before)]
    assert "left out: --registrations shows them." in ended.err
    assert koguma("history", "dataplane", "web-9").lines[1].split()[-1] == "default/web-9"


def test_steps_of_a_rollout_are_left_out_of_the_history(koguma: Koguma) -> None:
    before = revision(koguma)
    assert koguma("apply", "-f", "-", "--rollout", "1", stdin=TIMEOUT_YAML).status == 0
    last = revision(koguma)

    ended = koguma("history", "--size", "2")

    rows = [line.split() for line in ended.lines[1:3]]
    assert [(row[0], row[-2], row[-1]) for row in rows] == [
        (str(last), "MeshTimeout", "default/slow"),
        (str(before + 1), "Rollout", "default/latest"),
    ]
    assert "of rollouts left out: koguma history rollout latest, and -o json, show them." in ended.err
    whole = json.loads(koguma("history", "--size", "2", "-o", "json").out)
    assert {item["type"] for item in whole["items"] if item["revision"] == last} == {"MeshTimeout", "Rollout"}
    assert koguma("history", "rollout", "latest").lines[1].split()[0] == str(last)


def test_a_type_without_a_name_has_no_history(koguma: Koguma) -> None:
    ended = koguma("history", "meshtimeouts")

    assert (ended.status, ended.err.splitlines()[0]) == (2, "Error: a resource has a TYPE and a NAME")


# --- what was -----------------------------------------------------------------------------------------------


def test_a_resource_is_shown_as_it_was(koguma: Koguma) -> None:
    before, _ = edited(koguma)
    koguma("delete", "meshtimeouts", "slow")

    assert "requestTimeout: 10s" in koguma("get", "meshtimeouts", "slow", "--at", str(before), "-o", "yaml").out
    assert "slow" in koguma("get", "meshtimeouts", "--at", str(before)).out
    assert koguma("get", "meshtimeouts", "slow").status == 1
    assert koguma("get", "dataplanes", "--at", str(before)).status == 0


def test_a_difference_is_one_of_texts(koguma: Koguma) -> None:
    before, after = edited(koguma)
    applied(koguma, SECRET)

    assert koguma("diff", str(before), str(after)).lines[:2] == [
        f"--- MeshTimeout default/slow, revision {before}",
        f"+++ MeshTimeout default/slow, revision {after}",
    ]
    changed = [line for line in koguma("diff", str(before), str(after)).lines if line[0] in "+-" and line[1] == " "]
    assert [line.split() for line in changed] == [["-", "requestTimeout:", "10s"], ["+", "requestTimeout:", "20s"]]
    made = koguma("diff", str(before)).lines
    assert made[made.index("--- (none)") + 1].startswith("+++ Secret default/key")
    assert INLINE not in "\n".join(made)
    assert koguma("diff", str(after), str(after)).lines == [
        f"no resource is different between revisions {after} and {after}"
    ]
    unknown = koguma("diff", str(before), "--mesh", "defaults")
    assert (unknown.status, "no Mesh `defaults`; did you mean `default`?" in unknown.err) == (1, True)
    before = applied(koguma, "type: Mesh\nname: other\n")
    applied(koguma, SECRET.replace("key", "second"))
    assert koguma("diff", str(before), "--mesh", "other").lines[0].startswith("no resource is different")


def test_how_far_a_rollout_has_come_is_no_difference_of_what_people_wrote(koguma: Koguma) -> None:
    before = revision(koguma)
    assert koguma("apply", "-f", "-", "--rollout", "1", stdin=TIMEOUT_YAML).status == 0

    ended = koguma("diff", str(before))
    assert [line for line in ended.lines if line.startswith("+++")] == [
        f"+++ MeshTimeout default/slow, revision {revision(koguma)}"
    ]
    assert ended.err == "left out: how far the rollout of mesh default has come (koguma rollout show)\n"
    plan = koguma("plan", "--from", str(before)).lines
    assert plan[0].startswith("1 resource would change (1 created)")
    assert "Rollout" not in "".join(plan)


def test_a_change_of_a_secret_alone_is_told(koguma: Koguma) -> None:
    before = applied(koguma, SECRET)
    applied(koguma, SECRET.replace(INLINE, "b3RoZXI="))

    assert koguma("diff", str(before)).lines == ["Secret default/key: only what is secret in it is different"]


def test_what_proxies_would_be_served_is_told_field_by_field(koguma: Koguma) -> None:
    service = {
        "type": "MeshService",
        "mesh": "default",
        "name": "web",
        "spec": {
            "selector": {"dataplaneTags": {"kuma.io/service": "web"}},
            "ports": [{"port": 80, "targetPort": 8080, "appProtocol": "http"}],
        },
    }
    outbound = {"port": 18201, "backendRef": {"kind": "MeshService", "name": "web", "port": 80}}
    applied(koguma, yaml.safe_dump_all([service, dataplane(outbound=[outbound])]))
    before, after = edited(koguma)

    lines = koguma("diff", str(before), "--proxies", "--mesh", "default").lines
    assert lines[0] == "mesh default: 1 proxy compared"
    assert "    virtualHosts[0].routes[0].route.timeout: 10s → 20s" in lines
    same = koguma("diff", str(after), "--proxies").lines
    assert same == ["mesh default: 1 proxy compared", "  every one would be served the same bytes"]


# --- the way back -------------------------------------------------------------------------------------------


def test_a_rollback_says_what_it_brings_back(koguma: Koguma) -> None:
    before, after = edited(koguma)

    dry = koguma("rollback", str(before), "--dry-run")
    assert (dry.lines, revision(koguma)) == (["MeshTimeout default/slow would be Updated"], after)
    assert koguma("rollback", str(after), "--only", "mt/slow").lines == [
        f"nothing to do: all of it is as it was at revision {after}"
    ]
    assert "no MeshTimeout `slwo`; did you mean `slow`?" in koguma("rollback", str(before), "--only", "mt/slwo").err
    ended = koguma("rollback", str(before), "--only", "mt/slow", "--wait")
    assert (ended.status, ended.lines) == (0, ["MeshTimeout default/slow Updated", "it reaches no proxy"])
    assert "requestTimeout: 10s" in koguma("get", "mt", "slow", "-o", "yaml").out
    assert "rollback to" in koguma("history", "mt", "slow").lines[1]


def test_a_rollback_deletes_no_mesh_unless_that_is_said(koguma: Koguma) -> None:
    before = applied(koguma)
    applied(koguma, "type: Mesh\nname: second\n")

    refused = koguma("rollback", str(before))
    assert (refused.status, "Mesh second would be deleted" in refused.err) == (1, True)
    ended = koguma("rollback", str(before), "--delete-meshes")
    assert (ended.status, "Mesh second Deleted" in ended.lines) == (0, True)


def test_a_rollback_warns_of_what_stays(koguma: Koguma) -> None:
    before = applied(koguma)
    applied(koguma, "type: GlobalSecret\nname: user-token-revocations\ndata: eA==\n")

    assert koguma("rollback", str(before)).err.startswith("Warning: GlobalSecret user-token-revocations stays as it is")


def test_a_revision_that_is_not_there_is_told(koguma: Koguma) -> None:
    ended = koguma("rollback", "4711")

    assert (ended.status, "there is no revision 4711 yet; the newest is" in ended.err) == (1, True)


# --- everything ---------------------------------------------------------------------------------------------


def test_an_export_can_be_applied_again(koguma: Koguma, tmp_path: Path) -> None:
    applied(koguma, f"{TIMEOUT_YAML}---\n{SECRET}")
    folder = tmp_path / "export"

    ended = koguma("export", "--secrets", "--write", folder)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.endswith(f" are in {folder}, without their history\n")
    assert {path.name for path in folder.iterdir()} >= {"default.yaml"}
    assert (folder / "default.yaml").stat().st_mode & 0o077 == 0
    again = koguma("apply", "-f", folder)
    assert (again.status, {line.split()[-1] for line in again.lines}) == (0, {"Unchanged"})


def test_an_export_names_what_it_leaves_out(koguma: Koguma) -> None:
    before = applied(koguma)
    applied(koguma, SECRET)

    ended = koguma("export")
    assert ended.err.startswith("Warning: not exported, as they have secrets (--secrets): ")
    assert "Secret default/key" in ended.err
    assert {document["type"] for document in yaml.safe_load_all(ended.out)} >= {"Mesh", "MeshTimeout"}
    assert "Secret default/key" not in koguma("export", "--at", str(before)).err


@pytest.mark.parametrize("name", ["../outside", "a/b", "a\0b"])
def test_an_export_writes_nothing_outside_its_folder(
    koguma: Koguma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever answers in place of a control plane."""
    lie = {"resources": [{"type": "Mesh", "name": name}], "revision": 1, "hidden": [], "own": []}
    monkeypatch.setattr(Client, "answer", lambda *_, **__: lie)

    ended = koguma("export", "--write", str(tmp_path / "folder"))

    assert (ended.status, "is no name of a mesh" in ended.err) == (1, True)
    assert list(tmp_path.rglob("*.yaml")) == []


def test_an_export_writes_into_no_folder_with_files(koguma: Koguma, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("")

    assert koguma("export", "--write", tmp_path).err.startswith(f"Error: {tmp_path} is there already")


def test_what_no_key_decrypts_is_warned_of(offline: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of an answer that looks whole is worse than none."""
    resources = [{"type": "Secret", "mesh": "default", "name": f"key-{number}"} for number in range(7)]
    nothing: dict[str, Any] = {name: [] for name in ("items", "resources", "hidden", "own", "meshes")}
    answer = {**nothing, "next": None, "revision": 2, "unreadable": resources}
    monkeypatch.setattr(ApiCalls, "send", lambda *_, **__: HttpAnswer(200, {}, json.dumps(answer).encode()))

    commands = (("export",), ("diff", "2", "--proxies"), ("get", "secrets", "--at", "2"))
    for command in (*commands, ("get", "secrets", "--at", "2", "-o", "json")):
        told = offline(*command).err
        assert (told.startswith("Warning: "), "Secret default/key-4 and 2 more" in told) == (True, True), command


def test_what_others_name_does_not_reach_the_terminal_as_it_is(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "c\x1b]0;owned\a\nmesh prod: all fine"
    fields = [{"path": evil, "before": evil, "after": "b"}]
    difference = {"type": "clusters", "name": evil, "proxies": ["web-1"], "fields": fields}
    mesh = {"mesh": "default", "proxies": 1, "added": [], "removed": [], "differences": [difference]}
    content = json.dumps({"meshes": [mesh]}).encode()
    monkeypatch.setattr(ApiCalls, "send", lambda *_, **__: HttpAnswer(200, {}, content))

    out = offline("diff", "1", "--proxies").out
    assert ("\x1b" in out, "\a" in out, len(out.splitlines())) == (False, False, 3)


def test_a_rollback_that_leaves_something_as_it_is_does_not_say_that_all_is_as_it_was() -> None:
    answer: dict[str, Any] = {"rolledBackTo": 3, "resources": [], "leftOut": [{"type": "Secret", "name": "two"}]}
    assert past._nothing_to_do(answer) == "nothing to do: all else is as it was at revision 3"
