"""`koguma explain`: from files and from a control plane the same, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Koguma

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo/resources"
CALL = "GET http://backend:80/slow-endpoint"


def test_it_says_where_a_call_goes_and_who_set_what(offline: Koguma) -> None:
    ended = offline("explain", "frontend-2", CALL, "-f", DEMO)

    assert (ended.status, ended.err) == (0, "")
    assert ended.lines[0] == "frontend-2: GET http://backend:80/slow-endpoint"
    words = [line.split() for line in ended.lines]
    assert [
        "by",
        "route",
        "MeshHTTPRoute",
        "route-to-backend:",
        "PathPrefix",
        "/slow-endpoint,",
        f"{DEMO}/route.yaml:12",
    ] in words
    assert [
        "http.requestTimeout",
        "3s",
        "route",
        "timeout-on-backend-route-override",
        "to[0]",
        f"{DEMO}/overrides.yaml:32",
    ] in words
    assert ["instead", "of", "2s", "route", "timeout-on-backend-route", "to[0]", f"{DEMO}/timeouts.yaml:25"] in words
    assert ["a", "request", "3s", "◄", "binding", "no", "limit"] in words


def test_the_guide_shows_what_is_really_said(offline: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/guides/explain.md").read_text()
    monkeypatch.chdir(ROOT)

    ended = offline("explain", "frontend-2", CALL, "-f", "examples/demo/resources")

    assert f"```text\n{ended.out}```\n" in guide


def test_the_name_of_a_field_stays_whole_beside_long_names_of_policies(offline: Koguma, tmp_path: Path) -> None:
    limit = {"connectionLimits": {"maxPendingRequests": 7}}
    retry = {"http": {"numRetries": 2, "retryOn": ["GatewayError", "ConnectFailure", "RefusedStream", "Reset", "5xx"]}}
    policies = [
        {
            "type": type_,
            "mesh": "default",
            "name": name,
            "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]},
        }
        for type_, name, conf in (("MeshCircuitBreaker", f"limit-{'x' * 50}", limit), ("MeshRetry", "retry", retry))
    ]
    (file := tmp_path / "policies.yaml").write_text(yaml.safe_dump_all(policies))

    ended = offline("explain", "frontend-2", CALL, "-f", DEMO, "-f", file)

    assert any(line.startswith("    connectionLimits.maxPendingRequests  7") for line in ended.lines)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_every_fact_is_there_for_programs(offline: Koguma, form: str) -> None:
    ended = offline("explain", "frontend-2", CALL, "-f", DEMO, "-o", form)
    data = json.loads(ended.out) if form == "json" else yaml.safe_load(ended.out)

    (value,) = (candidate for candidate in data["values"] if candidate["path"] == "http.requestTimeout")
    assert value["said"] == {
        "value": "3s",
        "level": "route",
        "policy": {"type": "MeshTimeout", "mesh": "default", "name": "timeout-on-backend-route-override"},
        "item": "to[0]",
        "path": "spec.to[0].default.http.requestTimeout",
        "file": str(DEMO / "overrides.yaml"),
        "line": 32,
        "removedBy": None,
    }
    assert [overridden["value"] for overridden in value["over"]] == ["2s", "500ms", "1s", "15s"]
    assert data["outcome"]["forward"]["timeout"] == "3s"


def test_headers_of_the_call_count(offline: Koguma, tmp_path: Path) -> None:
    match = {"path": {"type": "PathPrefix", "value": "/"}, "headers": [{"type": "Exact", "name": "x-a", "value": "1"}]}
    to = [{"targetRef": {"kind": "MeshService", "name": "backend"}, "rules": [{"matches": [match]}]}]
    route = {"type": "MeshHTTPRoute", "mesh": "default", "name": "by-header", "spec": {"to": to}}
    (tmp_path / "route.json").write_text(json.dumps(route))

    with_it = offline("explain", "frontend-1", "backend/", "-H", "X-A: 1", "-f", DEMO, "-f", tmp_path)
    without = offline("explain", "frontend-1", "backend/", "-f", DEMO, "-f", tmp_path)

    assert "MeshHTTPRoute by-header" in with_it.out
    assert "there is no header x-a" in without.out


def test_a_control_plane_says_the_same_as_its_files(koguma: Koguma) -> None:
    assert koguma("apply", "-f", DEMO).status == 0

    answer = koguma("explain", "frontend-2", CALL)
    read = koguma("explain", "frontend-2", CALL, "-f", DEMO)

    assert answer.status == 0
    assert answer.out == read.out


@pytest.mark.parametrize(
    ("dataplane", "call", "texts"),
    [
        ("frontend-2", "http://nobody/", ("has no outbound for `nobody`", "here is `backend:80` at 127.0.0.1:18202")),
        ("frontend-9", CALL, ("frontend-9", "frontend-2")),
        ("frontend-2", "http://backend/a b", ("`http://backend/a b` is no call", "rite for example")),
    ],
)
@pytest.mark.parametrize("more", [(), ("-f", DEMO)], ids=["asked", "read"])
def test_a_question_without_an_answer_is_told_what_can_be_asked(
    koguma: Koguma, dataplane: str, call: str, texts: tuple[str, ...], more: tuple[str | Path, ...]
) -> None:
    koguma("apply", "-f", DEMO)

    ended = koguma("explain", dataplane, call, *more)

    assert (ended.status, ended.out) == (1, "")
    assert [text for text in texts if text not in ended.err] == []
