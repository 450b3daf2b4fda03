"""`koguma apply`, `koguma get` and `koguma delete`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from cp.app import RunningControlPlane
from tests.api.samples import TIMEOUT_YAML, dataplane, timeout
from tests.cli.conftest import Koguma


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)
    return file


def written(folder: Path, *documents: dict[str, object]) -> Path:
    (file := folder / "documents.yaml").write_text(yaml.safe_dump_all(documents))
    return file


def test_what_is_applied_is_created_and_then_updated_if_it_changed(koguma: Koguma, slow: Path) -> None:
    first, second = koguma("apply", "-f", slow), koguma("apply", "-f", slow)
    slow.write_text(TIMEOUT_YAML.replace("10s", "3s"))
    third = koguma("apply", "-f", slow)

    assert (first.status, first.out) == (
        0,
        'resource type="MeshTimeout" mesh="default" name="slow" Created\n',
    )
    assert second.out.endswith("Unchanged\n")
    assert third.out.endswith("Updated\n")


def test_what_is_behind_links_in_a_folder_is_applied_too(koguma: Koguma, tmp_path: Path) -> None:
    """As a store of files reads it."""
    (shared := tmp_path / "shared").mkdir()
    (shared / "a.yaml").write_text(TIMEOUT_YAML)
    (folder := tmp_path / "mesh").mkdir()
    (folder / "linked").symlink_to(shared)

    assert "MeshTimeout" in koguma("apply", "-f", folder).out


@pytest.mark.parametrize("option", ["", "--prune"])
def test_a_folder_of_which_something_cannot_be_read_is_not_applied(koguma: Koguma, tmp_path: Path, option: str) -> None:
    """With --prune, what was in it would be deleted."""
    (folder := tmp_path / "mesh").mkdir()
    for name in ("slow", "fast"):
        (folder / f"{name}.yaml").write_text(TIMEOUT_YAML.replace("slow", name))
    assert koguma("apply", "-f", folder, "--managed-by", "ci").status == 0
    (folder / "fast.yaml").unlink()
    (folder / "fast.yaml").symlink_to(tmp_path / "nowhere")

    ended = koguma("apply", "-f", folder, "--managed-by", "ci", *filter(None, [option]))

    assert (ended.status, ended.out) == (1, "")
    assert "fast.yaml cannot be read: the link leads nowhere" in ended.err
    assert koguma("get", "mt", "fast").status == 0


def test_what_is_no_file_is_not_waited_for(koguma: Koguma, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    assert "pipe.yaml is no file" in koguma("apply", "-f", tmp_path).err


def test_a_folder_is_applied_with_all_below_it_meshes_first(koguma: Koguma, tmp_path: Path) -> None:
    (folder := tmp_path / "mesh" / "deep").mkdir(parents=True)
    (folder.parent / "a.yaml").write_text(TIMEOUT_YAML.replace("mesh: default", "mesh: shop"))
    (folder / "b.yml").write_text("type: Mesh\nname: shop\n")
    (folder / "notes.txt").write_text("not for us")

    ended = koguma("apply", "-f", folder.parent)

    assert [line.split('"')[1] for line in ended.lines] == ["Mesh", "MeshTimeout"]


def test_standard_input_is_applied(koguma: Koguma) -> None:
    assert koguma("apply", "-f", "-", stdin=TIMEOUT_YAML).out.endswith("Created\n")


def test_variables_are_filled_in(koguma: Koguma, slow: Path) -> None:
    slow.write_text(TIMEOUT_YAML.replace("slow", "{{ name }}"))

    assert koguma("apply", "-f", slow, "-v", "name=mine").out.endswith('name="mine" Created\n')


def test_a_variable_without_a_value_is_refused(koguma: Koguma, slow: Path) -> None:
    slow.write_text(TIMEOUT_YAML.replace("slow", "{{ name }}"))

    ended = koguma("apply", "-f", slow, "-v", "other=mine")

    assert (ended.status, ended.err) == (1, f"Error: {slow} needs a value for {{{{ name }}}}\nAdd -v name=VALUE.\n")


def test_nothing_is_applied_when_one_document_is_invalid(koguma: Koguma, slow: Path) -> None:
    slow.write_text(TIMEOUT_YAML + "---\n" + TIMEOUT_YAML.replace("slow", "other").replace("10s", "soon"))

    ended = koguma("apply", "-f", slow)

    assert ended.status == 1
    assert f"{slow}:27 MeshTimeout default/other spec.to[0].default.http.requestTimeout" in ended.err
    assert "nothing was changed" in ended.err
    assert json.loads(koguma("get", "meshtimeouts", "-o", "json").out)["total"] == 0


def test_the_control_plane_knows_the_file_and_line_of_what_was_applied(koguma: Koguma, slow: Path) -> None:
    slow.write_text("type: Mesh\nname: other\n---\n# a comment\n\n" + TIMEOUT_YAML.replace("mesh: default\n", ""))
    koguma("apply", "-f", slow)

    ended = koguma("apply", "-f", slow, "--dry-run")

    assert [line.rpartition(" ")[2] for line in ended.lines] == ["Unchanged", "Unchanged"]


def test_a_dry_run_compares_secrets_and_shows_none(koguma: Koguma, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.yaml").write_text("type: Secret\nmesh: default\nname: key\ndata: YWJj\n")
    koguma("apply", "-f", secret)
    same = koguma("apply", "-f", secret, "--dry-run")
    secret.write_text("type: Secret\nmesh: default\nname: key\ndata: ZGVm\n")
    changed = koguma("apply", "-f", secret, "--dry-run")

    assert [ended.out.partition(" name=")[2] for ended in (same, changed)] == [
        '"key" is Unchanged\n',
        '"key" would be Updated\n',
    ]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(koguma: Koguma, slow: Path) -> None:
    new = koguma("apply", "-f", slow, "--dry-run")
    koguma("apply", "-f", slow)
    same = koguma("apply", "-f", slow, "--dry-run")
    slow.write_text(TIMEOUT_YAML.replace("10s", "11s"))
    changed = koguma("apply", "-f", slow, "--dry-run")

    assert [ended.out.partition(" name=")[2] for ended in (new, same, changed)] == [
        '"slow" would be Created\n',
        '"slow" is Unchanged\n',
        '"slow" would be Updated\n',
    ]


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_what_one_reads_and_applies_again_is_unchanged_dry_run_or_not(
    koguma: Koguma, slow: Path, tmp_path: Path, output: str
) -> None:
    koguma("apply", "-f", slow)
    (read := tmp_path / "read.yaml").write_text(koguma("get", "meshtimeout", "slow", "-o", output).out)

    tried, applied = koguma("apply", "-f", read, "--dry-run"), koguma("apply", "-f", read)

    assert (tried.out.split()[-1], applied.out.split()[-1]) == ("Unchanged", "Unchanged")


def test_a_dry_run_finds_what_an_apply_would_refuse(koguma: Koguma, tmp_path: Path) -> None:
    ended = koguma("apply", "-f", written(tmp_path, timeout(mesh="nowhere")), "--dry-run")

    assert ended.status == 1
    assert "there is no Mesh `nowhere`" in ended.err


def test_a_list_in_yaml_is_documents_that_can_be_applied(koguma: Koguma, tmp_path: Path) -> None:
    names = [f"t{number:03}" for number in range(120)]
    koguma("apply", "-f", written(tmp_path, *(timeout(name) for name in names)))
    (read := tmp_path / "read.yaml").write_text(koguma("get", "meshtimeouts", "-o", "yaml").out)

    applied = koguma("apply", "-f", read)

    assert [line.split()[-1] for line in applied.lines] == ["Unchanged"] * len(names)


def test_an_empty_list_in_yaml_has_no_documents(koguma: Koguma) -> None:
    assert koguma("get", "meshtimeouts", "-o", "yaml").out == ""


def test_a_page_of_a_list_in_yaml_says_that_there_is_more(koguma: Koguma, tmp_path: Path) -> None:
    koguma("apply", "-f", written(tmp_path, timeout("a"), timeout("b")))

    ended = koguma("get", "meshtimeouts", "-o", "yaml", "--size", "1")

    assert "name: a" in ended.out
    assert "--offset=default/a" in ended.err


def test_a_mesh_that_is_still_used_says_how_to_delete_it_with_all_that_is_in_it(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    assert "`koguma delete mesh default --cascade`" in koguma("delete", "mesh", "default").err


def test_a_warning_of_something_deprecated_is_told(koguma: Koguma, tmp_path: Path) -> None:
    old = timeout()
    old["spec"]["targetRef"] = {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}

    ended = koguma("apply", "-f", written(tmp_path, old))

    assert ended.status == 0
    assert ended.err.count("arning: ") == 1, "once, though it is found here and by the control plane"


def test_a_mesh_that_is_not_there_is_told_with_the_one_that_was_meant(koguma: Koguma, slow: Path) -> None:
    slow.write_text(TIMEOUT_YAML.replace("mesh: default", "mesh: defaults"))

    ended = koguma("apply", "-f", slow)

    assert ended.status == 1
    assert f"{slow}:3: mesh: there is no Mesh `defaults`; did you mean `default`?\n" in ended.err


# get


def test_dataplanes_are_listed_with_their_tags_and_addresses(koguma: Koguma, tmp_path: Path) -> None:
    koguma("apply", "-f", written(tmp_path, dataplane("web-1"), dataplane("backend-1", service="backend")))

    lines = koguma("get", "dataplanes").lines

    assert lines[0].split() == ["MESH", "NAME", "TAGS", "ADDRESS", "STATUS", "AGE"]
    assert lines[1].startswith(
        "default   backend-1   kuma.io/protocol=http kuma.io/service=backend   127.0.0.1   Offline   "
    )


def test_identities_are_listed_with_whom_they_are_for(koguma: Koguma, tmp_path: Path) -> None:
    selectors: list[dict[str, object]] = [{}, {"dataplane": {}}, {"dataplane": {"matchLabels": {"b": "1", "a": "2"}}}]
    for index, selector in enumerate(selectors):
        spec = {"selector": selector, "provider": {"type": "Spire", "spire": {}}}
        identity: dict[str, object] = {"type": "MeshIdentity", "mesh": "default", "name": f"i{index}", "spec": spec}
        koguma("apply", "-f", written(tmp_path, identity))

    heads, *rows = koguma("get", "mid").lines

    assert heads.split() == ["MESH", "NAME", "PROVIDER", "SELECTS", "AGE"]
    assert [re.split(" {2,}", row)[2:4] for row in rows] == [["Spire", "none"], ["Spire", "all"], ["Spire", "a=2 b=1"]]


def test_gateways_are_listed_with_their_ports_and_hostnames(koguma: Koguma, tmp_path: Path) -> None:
    listeners = [
        {"port": 80, "protocol": "HTTP", "hostname": "a.example"},
        {"port": 80, "protocol": "HTTP", "hostname": "*.example"},
        {"port": 9000, "protocol": "TCP"},
    ]
    selectors = [{"match": {"kuma.io/service": "edge"}}]
    gateway = {"type": "MeshGateway", "mesh": "default", "name": "edge", "selectors": selectors}
    (file := tmp_path / "edge.yaml").write_text(yaml.safe_dump({**gateway, "conf": {"listeners": listeners}}))
    koguma("apply", "-f", file)

    heads, row = koguma("get", "meshgateways").lines

    assert heads.split() == ["MESH", "NAME", "LISTENERS", "AGE"]
    assert row.split()[:4] == ["default", "edge", "80/HTTP=a.example,*.example", "9000/TCP=*"]


def test_meshes_are_listed_with_what_is_on(koguma: Koguma) -> None:
    heads, row = koguma("get", "meshes").lines

    assert heads == "NAME      mTLS   LOCALITY   ZONEEGRESS   ENGINE      AGE"
    assert row.split()[:5] == ["default", "off", "off", "off", "TargetRef"]


@pytest.mark.parametrize("name", ["meshtimeouts", "meshtimeout", "MeshTimeout", "mt", "mesh-timeout"])
def test_a_type_is_known_by_each_of_its_names(koguma: Koguma, name: str) -> None:
    assert koguma("get", name).lines == ["MESH   NAME   AGE"]


def test_one_resource_is_shown(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    as_table, as_yaml = koguma("get", "mt", "slow"), koguma("get", "mt", "slow", "-o", "yaml")

    assert as_table.lines[1].startswith("default   slow   ")
    assert yaml.safe_load(as_yaml.out)["spec"] == timeout()["spec"]


def test_a_long_list_says_how_to_go_on(koguma: Koguma, tmp_path: Path) -> None:
    koguma("apply", "-f", written(tmp_path, timeout("a"), timeout("b"), timeout("c")))

    first = koguma("get", "mt", "--size", "2")
    second = koguma("get", "mt", "--offset", "default/b")

    assert first.lines[-1] == "Rerun command with --offset=default/b argument to retrieve more resources"
    assert [line.split()[1] for line in second.lines[1:]] == ["c"]


def test_a_resource_that_is_not_there_is_told_with_the_one_that_was_meant(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    ended = koguma("get", "mt", "slwo")

    assert (ended.status, ended.err) == (1, "Error: there is no MeshTimeout `slwo`; did you mean `slow`?\n")


def test_a_type_that_does_not_exist_is_told_with_the_one_that_was_meant(offline: Koguma) -> None:
    ended = offline("get", "meshtimeoutz")

    assert (ended.status, ended.err) == (
        1,
        "Error: there is no type of resource `meshtimeoutz`\nDid you mean meshtimeouts?\n",
    )


# delete


def test_a_resource_is_deleted_by_its_name(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    assert koguma("delete", "mt", "slow").out == 'deleted MeshTimeout "slow"\n'
    assert koguma("get", "mt", "slow").status == 1


def test_what_stands_in_a_file_is_deleted_meshes_last(koguma: Koguma, tmp_path: Path) -> None:
    file = written(tmp_path, {"type": "Mesh", "name": "shop"}, timeout(mesh="shop"))
    koguma("apply", "-f", file)

    ended = koguma("delete", "-f", file)

    assert ended.lines == ['deleted MeshTimeout "slow"', 'deleted Mesh "shop"']


def test_a_mesh_that_is_in_use_is_deleted_only_with_all_that_is_in_it(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    refused, done = koguma("delete", "mesh", "default"), koguma("delete", "mesh", "default", "--cascade")

    assert refused.status == 1
    assert "still has MeshTimeout default/slow" in refused.err
    assert done.status == 0


@pytest.mark.parametrize("arguments", [(), ("mt",), ("mt", "slow", "-f", "x.yaml")])
def test_a_delete_that_does_not_say_what_is_refused(offline: Koguma, arguments: tuple[str, ...]) -> None:
    ended = offline("delete", *arguments)

    assert (ended.status, ended.err) == (2, "Error: name the resource with TYPE and NAME, or give -f FILE\n")


# Without a control plane


def test_a_control_plane_that_does_not_answer_is_told_with_how_to_start_one(offline: Koguma) -> None:
    ended = offline("get", "meshes")

    assert ended.status == 1
    assert "no control plane answers at http://127.0.0.1:9 (" in ended.err
    assert "Start one with `koguma run`" in ended.err


def test_an_address_that_is_none_is_refused(offline: Koguma) -> None:
    assert "Write it as http://HOST:5681" in offline("get", "meshes", "--address", "localhost:5681").err


def test_the_port_for_proxies_is_told_from_that_of_the_api(koguma: Koguma, running: RunningControlPlane) -> None:
    ended = koguma("get", "meshes", "--address", f"http://127.0.0.1:{running.ads_port}")

    assert ended.status == 1
    assert "5681" in ended.err


def test_what_is_pushed_under_a_name_and_no_longer_in_the_files_is_deleted(koguma: Koguma, tmp_path: Path) -> None:
    push = ("apply", "--managed-by", "shop-ci", "-f", tmp_path)
    written(tmp_path, timeout("a"), timeout("b"))
    koguma(*push)
    written(tmp_path, timeout("b"), timeout("c"))

    tried, pushed = koguma(*push, "--prune", "--dry-run"), koguma(*push, "--prune")

    assert [line.partition(" name=")[2] for line in tried.lines] == [
        '"b" is Unchanged',
        '"c" would be Created',
        '"a" would be Deleted',
    ]
    assert [line.partition(" name=")[2] for line in pushed.lines] == ['"b" Unchanged', '"c" Created', '"a" Deleted']
    assert koguma("get", "meshtimeout", "a").status == 1


def test_to_prune_takes_a_name_and_files(koguma: Koguma, slow: Path, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    (nothing := tmp_path / "nothing.yaml").write_text("# moved elsewhere\n")
    nameless = koguma("apply", "-f", slow, "--prune")
    of_empty = koguma("apply", "-f", empty, "--prune", "--managed-by", "shop-ci")
    of_nothing = koguma("apply", "-f", nothing, "--prune", "--managed-by", "shop-ci")

    assert (nameless.status, of_empty.status, of_nothing.status) == (2, 1, 1)
    assert "--managed-by NAME" in nameless.err
    assert "there is no .yaml, .yml or .json file" in of_empty.err
    assert "there is no resource" in of_nothing.err
