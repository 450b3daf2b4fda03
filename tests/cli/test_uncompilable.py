"""A proxy that cannot be worked out, by a fault of ours, is named as such, and all others are answered for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.support.uncompilable import REASON, WRITTEN_BY_NOBODY, cannot_compile, cannot_write

MESH = {"type": "Mesh", "name": "default"}
CALLS_API = [{"port": 10001, "tags": {"kuma.io/service": "api"}}]
PROXIES = [
    *(dataplane(name, "default", "web", outbound=CALLS_API) for name in ("web-1", "web-2")),
    *(dataplane(name, "default", "api") for name in ("api-1", "api-2")),
]
FAULT = f"cannot be worked out, by a fault of koguma: {REASON}"
FAULT_OF_TIMEOUT = f"cannot be worked out, by a fault of koguma in MeshTimeout: {REASON}"


def timeout(value: str = "3s", source: str = "*") -> dict[str, Any]:
    return {
        "type": "Timeout",
        "mesh": "default",
        "name": f"of-{source}" if source != "*" else "all",
        "sources": [{"match": {"kuma.io/service": source}}],
        "destinations": [{"match": {"kuma.io/service": "*"}}],
        "conf": {"connectTimeout": value},
    }


def mesh_timeout(part: str, value: str = "3s", name: str = "new", **top: Any) -> dict[str, Any]:
    item = {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": value}}
    return {"type": "MeshTimeout", "mesh": "default", "name": name, "spec": {**top, part: [item]}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mesh.yaml"


def write(file: Path, *policies: dict[str, Any], mesh: dict[str, Any] = MESH) -> None:
    for number, proxy in enumerate(PROXIES, 1):
        proxy["networking"]["address"] = f"127.0.0.{number}"
    file.write_text(yaml.safe_dump_all([mesh, *PROXIES, *policies]))


def affected(offline: Koguma, *words: Any) -> dict[str, dict[str, Any]]:
    answer = json.loads(offline("inspect", *words, "-o", "json").out)
    return {item["name"]: item for item in answer["items"]}


def in_force(item: dict[str, Any]) -> Sequence[Any]:
    return [effect["value"] for effect in item["survives"]]


# --- inspect ---


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (timeout(), ("timeout", "all")),
        (mesh_timeout("to"), ("meshtimeout", "new")),
        (mesh_timeout("from"), ("meshtimeout", "new")),
    ],
    ids=["legacy", "of calls", "of clients"],
)
def test_a_policy_is_inspected_on_all_proxies_but_those_that_cannot_be_compiled(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], words: tuple[str, str]
) -> None:
    write(file, policy)
    cannot_compile(monkeypatch, "web-2")

    of = affected(offline, *words, "-f", file)

    assert in_force(of["web-1"]) == ["3s"]
    assert (of["web-2"]["survives"], of["web-2"]["overridden"], of["web-2"]["withoutEffect"]) == ([], [], [])
    assert of["web-2"]["failure"].startswith(FAULT)
    assert all("failure" not in of[name] for name in ("web-1", "api-1", "api-2"))
    (line,) = (line for line in offline("inspect", *words, "-f", file).lines if line.startswith("web-2"))
    assert FAULT in line


def test_what_a_value_does_that_cannot_be_built_is_not_known(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, timeout(), timeout(WRITTEN_BY_NOBODY, source="web"))
    cannot_write(monkeypatch)

    of_web = affected(offline, "timeout", "of-web", "-f", file)

    assert of_web["web-1"]["failure"].startswith(FAULT)
    assert in_force(of_web["web-1"]) == []


def test_of_a_proxy_that_lacks_a_part_no_value_is_called_in_force_without_a_doubt(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = timeout() | {"type": "Retry", "conf": {"http": {"numRetries": 3}}}
    write(file, retry, mesh_timeout("to", WRITTEN_BY_NOBODY))
    cannot_write(monkeypatch)

    of = affected(offline, "retry", "all", "-f", file)
    table = offline("inspect", "retry", "all", "-f", file)

    assert (in_force(of["web-1"]), of["web-1"]["status"]) == ([3], "Failed")
    assert "status" not in of["api-1"]
    (line,) = (line for line in table.lines if line.startswith("web-1"))
    assert line.endswith("in force, if it is in what could be made (failed)")


def test_the_rules_and_policies_of_a_proxy_say_that_nothing_is_known_of_the_legacy_ones(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, timeout(), mesh_timeout("to"))
    cannot_compile(monkeypatch, "web-2")

    rules = json.loads(offline("inspect", "rules", "web-2", "-f", file, "-o", "json").out)
    policies = json.loads(offline("inspect", "policies", "web-2", "-f", file, "-o", "json").out)

    assert [of_kind["type"] for of_kind in rules["rules"]] == ["MeshTimeout"]
    assert "legacyRules" not in rules
    (legacy,) = (policy for policy in policies["policies"] if policy["type"] == "Timeout")
    assert "inForce" not in legacy
    assert "for" not in legacy
    for subject, answer in (("rules", rules), ("policies", policies)):
        assert answer["legacyFailure"].startswith(FAULT)
        assert f"What legacy policies do here {FAULT}" in offline("inspect", subject, "web-2", "-f", file).out
    assert "legacyFailure" not in json.loads(offline("inspect", "rules", "web-1", "-f", file, "-o", "json").out)


# --- explain ---

WITH_MTLS = MESH | {"mtls": {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}}
CALL = "GET http://api:10001/"


def explained(offline: Koguma, file: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(offline("explain", "web-1", CALL, "-f", file, "-o", "json").out)
    return answer


def servers(answer: dict[str, Any], part: str) -> set[str]:
    return {name for entry in answer[part] for name in entry["servers"]}


def test_a_call_is_explained_but_for_servers_that_cannot_be_compiled(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, mesh_timeout("from"), mesh=WITH_MTLS)
    assert servers(explained(offline, file), "hops") == {"api-1", "api-2"}
    cannot_compile(monkeypatch, "api-2")

    answer = explained(offline, file)

    assert [len(backend["endpoints"]) for backend in answer["backends"]] == [2]
    assert [servers(answer, part) for part in ("access", "servers", "hops")] == [{"api-1"}] * 3
    (sentence,) = answer["notKnown"]
    assert sentence.startswith(f"what becomes of it at api-2 {FAULT}")
    assert f"NOT KNOWN\n  {sentence}" in offline("explain", "web-1", CALL, "-f", file, "-o", "wide").out


def test_nobody_is_let_in_or_limited_by_servers_that_cannot_be_compiled(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, mesh_timeout("from"), mesh=WITH_MTLS)
    cannot_compile(monkeypatch, "api-1", "api-2")

    answer = explained(offline, file)

    assert (answer["access"], answer["servers"], answer["hops"]) == ([], [], [])
    (sentence,) = answer["notKnown"]
    assert sentence.startswith(f"what becomes of it at api-1, api-2 {FAULT}")


def test_of_an_inbound_that_could_not_be_made_it_is_not_said_that_it_lets_anybody_in(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, mesh_timeout("from", WRITTEN_BY_NOBODY), mesh=WITH_MTLS)
    cannot_write(monkeypatch)

    answer = explained(offline, file)

    assert (answer["access"], answer["servers"], answer["hops"]) == ([], [], [])
    (sentence,) = answer["notKnown"]
    assert sentence.startswith(f"what becomes of it at api-1, api-2 {FAULT_OF_TIMEOUT}")


def test_of_a_caller_that_cannot_be_compiled_it_is_said_that_nothing_can_be_told(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file)
    cannot_compile(monkeypatch, "web-1")

    ended = offline("explain", "web-1", CALL, "-f", file)

    assert ended.status == 1
    assert f"cannot be told: what Dataplane default/web-1 is served {FAULT}" in ended.err


# --- migrate ---


def moved(offline: Koguma, file: Path) -> tuple[int, dict[str, Any]]:
    ended = offline("migrate", "-f", file, "--check", "-o", "json")
    return ended.status, json.loads(ended.out)


def test_a_move_is_not_proven_for_a_proxy_that_cannot_be_compiled(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, timeout())
    assert moved(offline, file)[0] == 0
    cannot_compile(monkeypatch, "web-2")

    status, answer = moved(offline, file)
    table = offline("migrate", "-f", file)

    assert status == 1
    assert answer["proxies"] == ["api-1", "api-2", "web-1"]
    assert (answer["comparable"], answer["equal"], answer["safe"]) == (True, False, False)
    assert [policy["name"] for policy in answer["replaced"]] == ["all"]
    (failed,) = answer["failed"]
    assert (failed["proxy"], failed["compared"]) == ("web-2", False)
    assert failed["message"].startswith(f"what it is served {FAULT}")
    assert "different for proxies:\n  none that could be seen\n" in table.out
    assert f"not known, so nothing is proven:\n  web-2: what it is served {FAULT}" in table.out


def test_a_move_of_a_mesh_without_a_proxy_that_can_be_compiled_is_not_comparable(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, timeout())
    cannot_compile(monkeypatch, "web-1", "web-2", "api-1", "api-2")

    status, answer = moved(offline, file)

    assert (status, answer["comparable"], answer["equal"], answer["safe"]) == (1, False, False, False)
    assert "not comparable: what proxies are served cannot be worked out" in offline("migrate", "-f", file).out


def test_a_move_is_not_proven_where_a_part_of_a_proxy_cannot_be_made(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers alike before and after: what it was to do is not in what is compared."""
    write(file, timeout(WRITTEN_BY_NOBODY, source="web"))
    cannot_write(monkeypatch)

    status, answer = moved(offline, file)

    assert status == 1
    assert (answer["equal"], answer["safe"]) == (False, False)
    assert {(failed["proxy"], failed["compared"]) for failed in answer["failed"]} == {("web-1", True), ("web-2", True)}
    assert "a fault of koguma in MeshTimeout at the cluster of api" in answer["failed"][0]["message"]


# --- lint ---


def test_legacy_policies_of_a_mesh_are_judged_where_those_of_another_one_cannot_be(
    offline: Koguma, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = timeout(source="nobody") | {"mesh": "other"}
    other = [{"type": "Mesh", "name": "other"}, dataplane("job-1", "other", "job")]
    write(file, timeout(WRITTEN_BY_NOBODY, source="web"), *other, idle)
    cannot_write(monkeypatch)

    findings = json.loads(offline("lint", "-f", file, "-o", "json").out)["findings"]

    codes = {(finding["resource"], finding["code"]) for finding in findings}
    assert ("Timeout other/of-nobody", "selects-no-proxy") in codes
    assert not [finding for finding in findings if "a rule of lint" in finding["message"]]
