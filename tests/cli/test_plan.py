"""`koguma plan`: before something is applied, between folders, and between revisions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cp.cli.plan import CHANGES
from cp.cli.planned import LARGEST, PlanStyle, as_markdown, as_text
from tests.api.samples import TIMEOUT_YAML, dataplane
from tests.cli.conftest import Koguma

CALLS_API = [{"port": 10001, "tags": {"kuma.io/service": "api"}}]
PROXIES = [dataplane(f"web-{number}", outbound=CALLS_API) for number in (1, 2)] + [dataplane("api-1", service="api")]
ESCAPES = re.compile("\x1b\\[[0-9;]*m")
HOSTILE = "<script>alert(1)</script> | `x` @everybody \u202e"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A mesh without and with a timeout."""
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
        (folder / "mesh.yaml").write_text(yaml.safe_dump_all([{"type": "Mesh", "name": "default"}, *PROXIES]))
    (after / "slow.yaml").write_text(TIMEOUT_YAML)
    return before, after


def test_the_way_from_one_folder_to_another(offline: Koguma, folders: tuple[Path, Path]) -> None:
    before, after = folders
    ended = offline("plan", "--from", before, "--to", after, "--no-findings")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out == (
        "1 resource would change (1 created); 2 of 3 proxies would be sent something.\n"
        "\n"
        f"  + MeshTimeout default/slow  {after}/slow.yaml:2\n"
        "\n"
        "mesh default: 2 of 3 proxies would be sent something\n"
        "  because of MeshTimeout slow:\n"
        "    ~ routes api, for web-1, web-2\n"
        "        virtualHosts[0].routes[0].route.timeout: 15s → 10s\n"
        f"          from MeshTimeout http.requestTimeout: 15s (built in) → 10s (slow, {after}/slow.yaml:13)\n"
        "\n" + ended.out[ended.out.index("Not compared:") :]
    )


def test_who_sets_a_value_is_named_before_what_was_changed_beside_it(
    offline: Koguma, folders: tuple[Path, Path]
) -> None:
    before, after = folders
    moved = [{**each, "labels": {"moved": "yes"}} for each in PROXIES]
    (after / "mesh.yaml").write_text(yaml.safe_dump_all([{"type": "Mesh", "name": "default"}, *moved]))

    out = offline("plan", "--from", before, "--to", after, "--no-findings").out
    assert "  because of MeshTimeout slow, Dataplane " in out


def test_the_status_tells_whether_something_would_change(offline: Koguma, folders: tuple[Path, Path]) -> None:
    before, after = folders

    assert offline("plan", "--from", before, "--to", after, "--check").status == CHANGES
    assert offline("plan", "--from", before, "--to", before, "--check").status == 0
    assert offline("plan", "--from", before, "--to", before).out == "Nothing would change.\n"
    (after / "slow.yaml").write_text("type: MeshTimeout\nmesh: default\nname: slow\nspec: 3\n")
    ended = offline("plan", "--from", before, "--to", after, "--check")
    assert (ended.status, ended.out) == (1, "")


@pytest.mark.parametrize("arguments", [(), ("--from", "a", "-f", "b"), ("--from", "no-such-folder"), ("--to", "3")])
def test_a_plan_has_to_be_of_something(offline: Koguma, arguments: tuple[str, ...]) -> None:
    assert offline("plan", *arguments).status == 2


def test_a_folder_alone_has_no_way_to_go(offline: Koguma, folders: tuple[Path, Path]) -> None:
    ended = offline("plan", "--from", folders[0])

    assert (ended.status, "Add --to DIR" in ended.err) == (2, True)


def test_findings_that_appear_and_vanish_are_told(offline: Koguma, folders: tuple[Path, Path]) -> None:
    before, after = folders
    (after / "slow.yaml").write_text(TIMEOUT_YAML.replace("10s", "15s"))

    there = offline("plan", "--from", before, "--to", after).out
    back = offline("plan", "--from", after, "--to", before).out
    assert "no proxy would notice" in there
    assert f"findings that appear:\n  + {after}/slow.yaml:" in there
    assert f"findings that vanish:\n  - {after}/slow.yaml:" in back


def test_a_finding_that_names_a_policy_on_another_line_is_no_other_one(
    offline: Koguma, folders: tuple[Path, Path]
) -> None:
    item = {"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "9s"}}}
    for_all = {"type": "MeshTimeout", "mesh": "default", "name": "for-all", "spec": {"to": [item]}}
    of_dataplanes = TIMEOUT_YAML.replace("kind: Mesh\n  to", "kind: Dataplane\n  to")
    for folder, text in zip(folders, (of_dataplanes, f"# moved\n{of_dataplanes.replace('10s', '11s')}"), strict=True):
        (folder / "for-all.yaml").write_text(yaml.safe_dump(for_all))
        (folder / "slow.yaml").write_text(text)

    before, after = folders
    found = json.loads(offline("lint", "-f", after, "-o", "json").out)["findings"]
    assert [finding["code"] for finding in found if "slow.yaml:" in finding["message"]] == ["overridden"]
    plan = json.loads(offline("plan", "--from", before, "--to", after, "-o", "json").out)
    assert (plan["empty"], plan["findings"]) == (False, {"appearing": [], "vanishing": []})


def test_the_plan_of_what_would_be_applied_changes_nothing(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all(PROXIES))
    koguma("apply", "-f", file)
    (slow := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)

    data = json.loads(koguma("plan", "-f", slow, "-o", "json").out)
    (mesh,) = data["meshes"]
    assert (mesh["proxies"], mesh["reached"]) == (3, ["web-1", "web-2"])
    assert koguma("plan", "-f", slow, "--check").status == CHANGES
    assert koguma("get", "meshtimeouts", "slow").status == 1
    koguma("apply", "-f", slow)
    assert (koguma("plan", "-f", slow, "--check").status, koguma("plan", "-f", slow).lines) == (
        0,
        ["Nothing would change."],
    )


def test_what_proxies_registered_as_it_stands_in_a_folder_is_no_change(koguma: Koguma, tmp_path: Path) -> None:
    """Proxies that were started with the files of the folder, as those of the demo are."""
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all(PROXIES))
    address = koguma.environment["KOGUMA_ADDRESS"]
    for proxy in PROXIES:
        path, owner = f"/meshes/default/dataplanes/{proxy['name']}", {"koguma-owner": "run-1"}
        httpx.put(address + path, json=proxy, headers=owner).raise_for_status()
    for name in ("web-1", "web-2"):
        report = {"owner": "run-1", "ready": True}
        httpx.post(f"{address}/meshes/default/dataplanes/{name}/_readiness", json=report).raise_for_status()

    planned, applied = koguma("plan", "-f", file, "--check"), koguma("apply", "-f", file)
    labels = [
        yaml.safe_load(koguma("get", "dataplane", name, "-o", "yaml").out)["labels"] for name in ("web-1", "api-1")
    ]
    assert (planned.status, planned.out) == (0, "Nothing would change.\n")
    assert "Updated" not in applied.out
    assert labels == [{"koguma.io/owner": "run-1"}, {"koguma.io/owner": "run-1", "koguma.io/not-ready": "run-1"}]
    assert koguma("plan", "-f", file, "--managed-by", "team", "--check").status == CHANGES


def test_what_is_pushed_under_a_name_stays_so_where_its_proxy_registers_again(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(PROXIES[0]))
    assert koguma("apply", "-f", file, "--managed-by", "team").status == 0
    path = f"{koguma.environment['KOGUMA_ADDRESS']}/meshes/default/dataplanes/web-1"
    httpx.put(path, json=PROXIES[0], headers={"koguma-owner": "run-1"}).raise_for_status()

    planned = koguma("plan", "-f", file, "--managed-by", "team", "--check")
    assert (planned.status, planned.out) == (0, "Nothing would change.\n")


def test_what_would_be_pruned_is_in_the_plan(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "all.yaml").write_text(TIMEOUT_YAML + "---\n" + TIMEOUT_YAML.replace("slow", "other"))
    koguma("apply", "-f", file, "--managed-by", "team")
    file.write_text(TIMEOUT_YAML)

    ended = koguma("plan", "-f", file, "--managed-by", "team", "--prune")
    assert "  - MeshTimeout default/other\n" in ended.out
    assert koguma("plan", "-f", file, "--prune").status == 2


def test_the_way_between_revisions_is_a_plan(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all(PROXIES))
    koguma("apply", "-f", file)
    first = json.loads(koguma("history", "--size", "1", "-o", "json").out)["newest"]
    koguma("apply", "-f", "-", stdin=TIMEOUT_YAML)

    ended = koguma("plan", "--from", str(first))
    assert "routes api, for web-1, web-2" in ended.out
    assert koguma("plan", "--from", str(first), "--to", str(first), "--check").status == 0


def test_findings_between_revisions_are_told(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all(PROXIES))
    koguma("apply", "-f", file)
    first = json.loads(koguma("history", "--size", "1", "-o", "json").out)["newest"]
    koguma("apply", "-f", "-", stdin=TIMEOUT_YAML.replace("10s", "15s"))

    told, untold = koguma("plan", "--from", str(first)), koguma("plan", "--from", str(first), "--no-findings")
    back = koguma("plan", "--from", str(first + 1), "--to", str(first))
    assert "findings that appear:\n  + " in told.out
    assert "findings that vanish:\n  - " in back.out
    assert "findings that" not in untold.out


def test_a_plan_goes_to_a_file(offline: Koguma, folders: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = folders
    out = tmp_path / "plan.md"
    ended = offline("plan", "--from", before, "--to", after, "-o", "markdown", "--out", out)

    assert ended.out == "1 resource would change (1 created); 2 of 3 proxies would be sent something.\n"
    assert out.read_text().startswith("### 1 resource would change (1 created); 2 of 3 proxies")
    assert "<details><summary>mesh default: 2 proxies, because of MeshTimeout slow</summary>" in out.read_text()
    assert offline("plan", "--from", before, "--to", after, "--out", tmp_path / "no" / "folder").status == 1


def difference(**fields: Any) -> dict[str, Any]:
    field = {"path": "a.b", "before": "1s", "after": "2s"}
    proxies = [f"web-{number}" for number in range(50)]
    cause = {"type": "MeshTimeout", "name": "slow"}
    whole = {
        "type": "routes",
        "name": "api",
        "change": "Changed",
        "proxies": proxies,
        "fields": [field],
        "causes": [cause],
    }
    return whole | fields


def data(*differences: dict[str, Any]) -> dict[str, Any]:
    document = {"type": "MeshTimeout", "mesh": "default", "name": "slow", "change": "Updated"}
    reached = sorted({proxy for each in differences for proxy in each["proxies"]})
    mesh = {"mesh": "default", "proxies": 60, "reached": reached, "added": [], "removed": [], "groups": []}
    return {
        "empty": False,
        "documents": [document],
        "meshes": [mesh | {"differences": list(differences)}],
        "findings": {"appearing": [], "vanishing": []},
        "notCompared": ["certificates"],
    }


def test_long_lists_are_cut_and_shown_in_full_for_the_asking() -> None:
    many = data(*(difference(name=f"r-{number}") for number in range(30)))

    short, whole = as_text(many, PlanStyle()), as_text(many, PlanStyle(with_all=True))
    assert "for web-0, web-1, web-2 and 47 more\n" in short
    assert "    … and 10 more resources of proxies: --all shows them\n" in short
    assert "r-29" not in short
    assert "more" not in whole
    assert "routes r-29, for web-0, " in whole


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_plan_is_no_wider_than_the_terminal(width: int) -> None:
    wide = data(difference(fields=[{"path": "a.b", "before": "one two " * 30, "after": "three four " * 30}]))

    lines = ESCAPES.sub("", as_text(wide, PlanStyle(width=width))).splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b[" in as_text(wide, PlanStyle(width=width))
    assert "\x1b[" not in as_text(wide, PlanStyle())


def test_values_are_written_as_json() -> None:
    changed = data(difference(fields=[{"path": "a", "before": True, "after": [{"b": None}]}]))

    assert 'a: true → [{"b": null}]\n' in as_text(changed, PlanStyle())


def test_connections_that_end_are_told() -> None:
    ending = data(difference(type="listeners", drains="all connections to the listener"))

    assert "        ends all connections to the listener\n" in as_text(ending, PlanStyle())
    assert "**ends connections**" in as_markdown(ending, PlanStyle())


NOTHING_SHOWN: dict[str, Any] = {"envoy": "1.40.0", "shown": 0, "proxies": 0, "refused": [], "notShown": []}
LEFT_OUT = {"type": "routes", "name": "api", "proxy": "web-1", "reason": "it brings code along"}
LIMITS = (
    "preflight proves that this version of Envoy loads what it was shown: it sends no request, reaches no host or "
    "file, and runs no Lua or Wasm; proxies with other versions may NACK what it takes"
)
REFUSED = {"type": "clusters", "name": "bad", "proxy": "web-1", "reason": "so", "policies": []}


@pytest.mark.parametrize(
    ("preflight", "lines"),
    [
        (
            {"shown": 2, "proxies": 5},
            [
                "preflight: Envoy 1.40.0 was shown 2 resources of 5 proxies, and loads all of them",
                LIMITS,
            ],
        ),
        (
            {"notShown": [LEFT_OUT]},
            [
                "preflight: nothing was shown to an Envoy; 1 resource it was not shown",
                "not shown: routes api of web-1: it brings code along",
            ],
        ),
        (
            {"shown": 2, "proxies": 1, "refusedBefore": [REFUSED], "shownInPart": [LEFT_OUT]},
            [
                (
                    "preflight: Envoy 1.40.0 was shown 2 resources of 1 proxy, and NACKs 1 of them already before this "
                    "change, and loads the others; 1 resource it was shown in part"
                ),
                LIMITS,
                "NACKed already before this change: clusters bad of web-1: so",
                "shown in part: routes api of web-1: it brings code along",
            ],
        ),
        (
            {"shown": 3, "proxies": 1, "refused": [REFUSED], "inMeshesNotTold": {"refused": 1, "notShown": 2}},
            [
                (
                    "preflight: Envoy 1.40.0 was shown 3 resources of 1 proxy, and NACKs 2 of them; "
                    "2 resources it was not shown"
                ),
                LIMITS,
                "- clusters bad of web-1: so",
                "NACKed in meshes that you may not look into: 1 resource",
                "not shown in meshes that you may not look into: 2 resources",
            ],
        ),
    ],
)
def test_how_much_an_envoy_was_shown_is_told(preflight: dict[str, Any], lines: list[str]) -> None:
    text = as_text(data() | {"preflight": NOTHING_SHOWN | preflight}, PlanStyle())

    assert text[text.index("preflight") :].splitlines()[: len(lines)] == lines


def test_markdown_is_never_longer_than_a_comment_may_be() -> None:
    long = [
        difference(name=f"r-{number}", causes=[{"type": "MeshTimeout", "name": f"t-{number}"}]) for number in range(900)
    ]
    text = as_markdown(data(*long), PlanStyle())

    assert len(text) <= LARGEST
    assert text.rstrip().endswith("`koguma plan --all` shows all of it._")
    assert text.count("<details>") == text.count("</details>")


def test_what_is_hostile_means_nothing_in_markdown_and_on_a_terminal() -> None:
    hostile = data(difference(fields=[{"path": HOSTILE, "before": HOSTILE, "after": "x" * 1000}]))

    text = as_markdown(hostile, PlanStyle())
    assert "<script>" not in text
    assert "@everybody" not in text
    assert "\u202e" not in text
    assert [line.count("|") for line in text.splitlines() if "script" in line] == [6]
    assert "\u202e" not in as_text(hostile, PlanStyle(width=80))


def test_fields_beyond_those_that_are_told_are_counted() -> None:
    fields = [{"path": f"a{number}", "before": "1s", "after": "2s", "values": [0]} for number in range(10)]
    changes = [
        {"type": "MeshTrace", "field": f"tags[{number}]", "after": {"value": 1, "builtIn": True}}
        for number in range(20)
    ]
    cut = data(difference(fields=fields, values=[changes], moreFields=7))

    short, whole, markdown = (
        as_text(cut, PlanStyle()),
        as_text(cut, PlanStyle(with_all=True)),
        as_markdown(cut, PlanStyle()),
    )
    assert "… and 2 more fields: --all shows them\n" in short
    for text in (short, whole, markdown):
        assert "… and 7 more fields, of which a plan does not tell" in text
    assert (
        "from MeshTrace tags[7]: not set → 1 (built in)\n          from … and 12 more values: --all shows them\n"
        in short
    )
    assert whole.count("tags[19]") == 1, "long lists are shown to their end once"
    assert whole.count("… and 12 more values: as above") == 9
