"""`koguma migrate` and `koguma import`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.cli import meshes, resources
from cp.client import client
from cp.client.client import Client
from cp.client.problem import Problem
from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.cli.kuma import answering, kuma
from tests.support.authority import Authority

MESH = {"type": "Mesh", "name": "shop", "creationTime": "2024-01-01T00:00:00Z"}
PROXIES = [
    dataplane(name, "shop", name, outbound=[{"port": 10001, "tags": {"kuma.io/service": "api"}}])
    for name in ("web", "api", "jobs")
]


def legacy(kind: str, name: str, source: str, destination: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "mesh": "shop",
        "name": name,
        "sources": [{"match": {"kuma.io/service": source}}],
        "destinations": [{"match": {"kuma.io/service": destination}}],
        **fields,
    }


TIMEOUT = legacy("Timeout", "all", "*", "*", conf={"connectTimeout": "3s"})
LIMIT = legacy("RateLimit", "for-web", "web", "api", conf={"http": {"requests": 3, "interval": "1s"}})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (file := tmp_path / "shop.yaml").write_text(yaml.safe_dump_all([MESH, *PROXIES, TIMEOUT]))
    return file


def test_a_mesh_in_files_is_moved(offline: Koguma, files: Path) -> None:
    ended = offline("migrate", "shop", "-f", files, "--check")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out == (
        "mesh shop: 3 proxies compared\n"
        "\n"
        "replaced:\n"
        "  Timeout all: MeshTimeout legacy-1-all\n"
        "\n"
        "different for proxies:\n"
        "  none\n"
    )


def test_the_policies_are_written_to_a_folder_with_those_that_they_replace(
    offline: Koguma, files: Path, tmp_path: Path
) -> None:
    offline("migrate", "shop", "-f", files, "-w", tmp_path / "moved")

    (new,) = yaml.safe_load_all((tmp_path / "moved" / "new.yaml").read_text())
    (replaced,) = yaml.safe_load_all((tmp_path / "moved" / "replaced.yaml").read_text())
    assert (new["type"], new["spec"]["to"][0]["default"]) == ("MeshTimeout", {"connectionTimeout": "3s"})
    assert replaced == TIMEOUT


def test_a_folder_that_cannot_be_written_is_told(offline: Koguma, files: Path) -> None:
    ended = offline("migrate", "shop", "-f", files, "-w", files)

    assert (ended.status, f"{files} cannot be written" in ended.err) == (1, True)
    assert "fault of koguma" not in ended.err


def test_standard_output_has_the_policies_alone(offline: Koguma, files: Path) -> None:
    ended = offline("migrate", "shop", "-f", files, "-w", "-")

    assert [policy["type"] for policy in yaml.safe_load_all(ended.out)] == ["MeshTimeout"]
    assert ended.err.startswith("mesh shop: 3 proxies compared\n")


def test_a_check_fails_where_a_policy_has_to_stay(offline: Koguma, files: Path) -> None:
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump(LIMIT))

    ended = offline("migrate", "shop", "-f", files, "--check")

    assert ended.status == 1
    assert (
        "stays:\n  RateLimit: `from` of a MeshRateLimit is for all clients alone, and for-web is for some" in ended.out
    )
    assert offline("migrate", "shop", "-f", files).status == 0


def test_a_mesh_without_proxies_is_not_called_safe(offline: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "shop.yaml").write_text(yaml.safe_dump_all([MESH, TIMEOUT]))

    ended = offline("migrate", "shop", "-f", file, "--check")

    assert ended.status == 1
    assert ended.out.endswith("  not comparable: the mesh has no Dataplane that would show it\n")


def test_a_difference_is_told_in_the_terms_of_envoy(offline: Koguma, files: Path) -> None:
    policy = {"type": "MeshTimeout", "mesh": "shop", "name": "new"}
    policy["spec"] = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "8s"}}]}  # type: ignore[assignment]
    of_web = legacy("Timeout", "of-web", "web", "*", conf={"connectTimeout": "1s"})
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump_all([policy, of_web]))

    ended = offline("migrate", "shop", "-f", files, "-o", "json")

    assert json.loads(ended.out)["differences"] == [
        {
            "causes": [{"type": "Timeout", "mesh": "shop", "name": name} for name in ("all", "of-web")],
            "proxies": ["web"],
            "type": "clusters",
            "name": "api",
            "inNamesAlone": False,
            "fields": [{"path": "connectTimeout", "before": "8s", "after": "1s"}],
        }
    ]
    table = offline("migrate", "shop", "-f", files)
    assert (
        "  because of Timeout all, Timeout of-web\n    clusters api, for web\n      connectTimeout: 8s → 1s\n"
        in table.out
    )


def test_a_mesh_is_read_from_kuma_page_by_page(offline: Koguma) -> None:
    items = {
        "/meshes": [MESH],
        "/meshes/shop/dataplanes": PROXIES,
        "/meshes/shop/timeouts": [{**TIMEOUT, "creationTime": "2024-01-01T00:00:00Z"}],
    }
    with kuma(items) as url:
        ended = offline("migrate", "shop", "--from-kuma", url)

    assert "mesh shop: 3 proxies compared" in ended.out
    assert "Timeout all: MeshTimeout legacy-1-all" in ended.out


@pytest.mark.parametrize("command", [("migrate", "shop", "--from-kuma"), ("import", "--dry-run")])
def test_no_token_of_ours_is_sent_to_a_source(koguma: Koguma, tmp_path: Path, command: Sequence[str]) -> None:
    token = koguma("generate", "user-token", "--name", "jane", "--group", "mesh-system:admin", "--valid-for", "1h").out
    (ours := tmp_path / "ours").write_text(token)
    (of_source := tmp_path / "of-source").write_text("token-of-source")
    koguma.environment |= {"KOGUMA_TOKEN_FILE": str(ours)}
    without: list[str | None] = []
    given: list[str | None] = []

    with kuma({"/meshes": [MESH]}, without) as url:
        assert koguma(*command, url).status == 0
    with kuma({"/meshes": [MESH]}, given) as url:
        assert koguma(*command, url, "--source-token-file", of_source).status == 0

    assert set(without) == {None}
    assert set(given) == {"Bearer token-of-source"}


def test_whom_we_trust_for_our_control_plane_is_not_asked_about_a_source(offline: Koguma, tmp_path: Path) -> None:
    (none := tmp_path / "none.crt").write_text("nothing")
    options = ("migrate", "shop", "--from-kuma", "https://127.0.0.1:9", "--source-ca-cert-file", none)

    assert f"{none} has no certificate in PEM in it" in offline(*options).err


PROMETHEUS = {"name": "prometheus", "type": "prometheus", "conf": {"port": 5670, "path": "/metrics"}}
PAY = [
    {"type": "Mesh", "name": "shop", "policyEngine": "Legacy", "skipCreatingInitialPolicies": ["*"]},
    dataplane("web", "shop", "web", outbound=[{"port": 10001, "tags": {"kuma.io/service": "pay"}}]),
    {
        "type": "ExternalService",
        "mesh": "shop",
        "name": "pay",
        "tags": {"kuma.io/service": "pay", "kuma.io/protocol": "http"},
        "networking": {
            "address": "127.0.0.1:9443",
            "tls": {"enabled": True, "caCert": {"inline": b64encode(Authority().certificate).decode()}},
        },
    },
    legacy("TrafficPermission", "only-backend", "backend", "pay"),
]


def test_what_is_secret_is_asked_for_so_that_a_mesh_is_compared_as_it_is_served(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "pay.yaml").write_text(yaml.safe_dump_all(PAY))
    assert koguma("apply", "-f", file).status == 0

    running = koguma("migrate", "shop", "--check")
    of_files = koguma("migrate", "shop", "--check", "-f", file)

    assert (running.status, running.out, running.err) == (1, of_files.out, "")
    assert "clusters pay, for web" in running.out


def hidden(path: str, _offset: int) -> tuple[int, Any]:
    """A control plane that shows nobody what is secret."""
    secret = {"type": "Secret", "mesh": "shop", "name": "certificate", "data": "[redacted]"}
    if "secrets" in path:
        return 200, page(secret) if path.endswith("secrets") else secret
    return 200, MESH if path == "/meshes/shop" else page()


@pytest.mark.parametrize("command", [("migrate", "shop", "--from-kuma"), ("import", "--mesh", "shop")])
def test_nothing_is_said_of_what_was_not_shown(koguma: Koguma, command: Sequence[str]) -> None:
    with answering(hidden) as url:
        ended = koguma(*command, url)

    assert (ended.status, ended.out) == (1, "")
    assert "what is secret was not shown in Secret shop/certificate\nAsk with the token of an admin" in ended.err


SECRETS = [
    {"type": "Secret", "mesh": "shop", "name": name, "data": b64encode(b"text").decode()}
    for name in ("certificate", "dataplane-token-signing-key-shop-9", "shop.ca-builtin-key-ca", "provided-key")
]
PROVIDED = {
    "backends": [
        {
            "name": "theirs",
            "type": "provided",
            "conf": {"cert": {"secret": "certificate"}, "key": {"secret": "provided-key"}},
        }
    ]
}


@pytest.mark.parametrize(("options", "imported"), [((), SECRETS[:1]), (("--with-keys",), SECRETS)])
def test_what_signs_is_imported_if_somebody_asks_for_it(
    koguma: Koguma, options: Sequence[str], imported: Sequence[dict[str, Any]]
) -> None:
    with kuma({"/meshes": [{**MESH, "mtls": PROVIDED}], "/meshes/shop/secrets": SECRETS}) as url:
        ended = koguma("import", url, "--dry-run", *options)

    assert ended.status == 0, ended.err
    assert [line for line in ended.lines if line.startswith("would be Created: Secret")] == [
        f"would be Created: Secret shop/{secret['name']}" for secret in imported
    ]
    left = [f"  Secret shop/{secret['name']}: a key that" for secret in SECRETS if secret not in imported]
    assert [line[: len(start)] for line, start in zip(ended.lines[-3:], left, strict=False)] == left


def test_keys_for_all_meshes_stay_in_an_export(koguma: Koguma, files: Path) -> None:
    key = {"type": "GlobalSecret", "name": "user-token-signing-key-7", "data": "aGk="}
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump(key))

    assert "would be Created: GlobalSecret user-token-signing-key-7" not in koguma("import", files, "--dry-run").lines


def test_a_mesh_comes_from_another_koguma_with_its_secrets(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "pay.yaml").write_text(yaml.safe_dump_all([*PAY, SECRETS[0]]))
    assert koguma("apply", "-f", file).status == 0

    ended = koguma("import", koguma.environment["KOGUMA_ADDRESS"], "--mesh", "shop")

    assert ended.status == 0, ended.err
    assert {line.partition(":")[0] for line in ended.lines[:5]} == {"Unchanged"}


def test_a_check_fails_where_something_was_left_out(offline: Koguma, files: Path) -> None:
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump({**TIMEOUT, "name": "bad", "conf": {"connectTimeout": "0s"}}))

    ended = offline("migrate", "shop", "-f", files, "--check")

    assert ended.status == 1
    assert ended.err.endswith("Nothing is said about what is invalid: it was left out.\n")


KUMAS = [
    {"type": "Mesh", "name": "shop", "metrics": {"enabledBackend": "prometheus", "backends": [PROMETHEUS]}},
    *PAY[1:],
    legacy("TrafficRoute", "all", "*", "*", conf={"destination": {"kuma.io/service": "*"}}),
]


@pytest.mark.parametrize("answers", ["files", "api"])
def test_a_mesh_with_legacy_routes_is_not_opened_by_a_move(offline: Koguma, tmp_path: Path, answers: str) -> None:
    (file := tmp_path / "kumas.yaml").write_text(yaml.safe_dump_all(KUMAS))
    items = {
        "/meshes": KUMAS[:1],
        "/meshes/shop/dataplanes": KUMAS[1:2],
        "/meshes/shop/external-services": KUMAS[2:3],
        "/meshes/shop/traffic-permissions": KUMAS[3:4],
        "/meshes/shop/traffic-routes": KUMAS[4:],
    }
    with kuma(items) as url:
        source = ("-f", file) if answers == "files" else ("--from-kuma", url)
        ended = offline("migrate", "shop", "--check", *source)
        other = offline("migrate", "shop", "--engine", "TargetRef", *source)

    assert ended.status == 1
    assert "Mesh shop names no policyEngine, and Legacy is taken for it" in ended.err
    assert "clusters pay, for web" in ended.out, "everybody may call it then"
    assert "clusters pay, for web" not in other.out
    assert other.err == ""


@pytest.mark.parametrize(("options", "engine"), [((), "Legacy"), (("--engine", "TargetRef"), "TargetRef")])
def test_an_imported_mesh_has_the_engine_of_its_routes(
    koguma: Koguma, tmp_path: Path, options: Sequence[str], engine: str
) -> None:
    (file := tmp_path / "kumas.yaml").write_text(yaml.safe_dump_all(KUMAS))

    ended = koguma("import", file, *options)

    assert ended.status == 0, ended.err
    assert yaml.safe_load(koguma("get", "mesh", "shop", "-o", "yaml").out)["policyEngine"] == engine
    assert any("names no policyEngine" in line for line in ended.lines) == (engine == "Legacy")


@pytest.mark.parametrize("form", ["universal", "json", "kubernetes"])
def test_an_imported_mesh_keeps_its_lines(koguma: Koguma, tmp_path: Path, form: str) -> None:
    mesh = KUMAS[0]
    text = yaml.safe_dump(mesh, sort_keys=False)
    if form == "json":
        text = json.dumps(mesh)
    if form == "kubernetes":
        spec = {"metrics": mesh["metrics"]}
        of_kubernetes = {"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh", "metadata": {"name": "shop"}, "spec": spec}
        text = yaml.safe_dump(of_kubernetes, sort_keys=False)
    (file := tmp_path / "kumas.yaml").write_text(f"# a comment\n{text}\n---\n{yaml.safe_dump_all(KUMAS[1:])}")

    assert koguma("import", file).status == 0

    stored = yaml.safe_load(koguma("get", "mesh", "shop", "-o", "yaml").out)
    assert (stored["skipCreatingInitialPolicies"], stored["policyEngine"]) == (["*"], "Legacy")
    assert stored["metrics"] == mesh["metrics"]
    findings = koguma("lint").out
    if form == "universal":
        assert f"{file}:{text.splitlines().index('metrics:') + 2}" in findings


def page(*items: Any, following: Any = None) -> Any:
    return {"total": len(items), "items": items, "next": following}


ODD: dict[str, tuple[int, Any]] = {
    "no next page": (200, page(following="http://x/?a=1")),
    "a next page for ever": (200, page(following="http://x/?offset=7")),
    "a next page that is none": (200, page(following=["http://[/"])),
    "without a name": (200, page({"type": "Timeout", "mesh": "shop"})),
    "null": (200, page(None)),
    "no items": (200, {"total": 0}),
    "null items": (200, {"items": None, "next": None}),
    "a list": (200, [1]),
    "no JSON": (200, b"<html>hi</html>"),
    "deep": (200, b'{"items":[' + b"[" * 200_000 + b"]" * 200_000 + b'],"next":null}'),
    "no number": (200, b'{"items":[{"type":"Timeout","mesh":"shop","name":"a","conf":NaN}],"next":null}'),
    "half a character": (200, b'{"items":[{"type":"Timeout","mesh":"shop","name":"a\\ud800"}],"next":null}'),
    "too deep for a document": (
        200,
        b'{"items":[{"type":"Timeout","mesh":"shop","name":"a","conf":' + b"[" * 900 + b"]" * 900 + b'}],"next":null}',
    ),
    "elsewhere": (302, {}),
    "another type": (200, page({"type": "GlobalSecret", "name": "user-token-signing-key-7", "data": "aGk="})),
    "a type of the same mesh": (200, page({"type": "Secret", "mesh": "shop", "name": "certificate", "data": "aGk="})),
    "another mesh": (200, page({**TIMEOUT, "mesh": "other"})),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_does_not_answer_as_a_control_plane_is_a_problem(offline: Koguma, odd: str) -> None:
    def answers(path: str, _offset: int) -> tuple[int, Any]:
        return ODD[odd] if path == "/meshes/shop/timeouts" else (200, MESH if path == "/meshes/shop" else page())

    with answering(answers) as url:
        ended = offline("import", url, "--mesh", "shop", "--dry-run")

    assert ended.status == 1
    assert "as a control plane does" in ended.err
    assert "/meshes/shop/timeouts" in ended.err or "302" in ended.err


def test_a_source_does_not_fill_the_memory(offline: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LARGEST", 1 << 20)
    offsets: list[int] = []

    def answers(path: str, offset: int) -> tuple[int, Any]:
        if path != "/meshes/shop/timeouts":
            return 200, MESH if path == "/meshes/shop" else page()
        offsets.append(offset)
        item = {**TIMEOUT, "name": f"t{offset}", "conf": "a" * 100_000}
        return 200, page(item, following=f"http://x/?offset={offset + 1}" if offset < 30 else None)

    with answering(answers) as url:
        ended = offline("import", url, "--mesh", "shop", "--dry-run")

    assert "does not answer as a control plane does" in ended.err
    assert 9 <= len(offsets) < 12


@pytest.mark.parametrize(("bound", "reason"), [("_MOST_TEXT", "0 MiB of resources"), ("_MOST_MESHES", "1 meshes")])
def test_a_source_has_no_end_of_meshes(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, bound: str, reason: str
) -> None:
    monkeypatch.setattr(meshes, bound, 1)
    with kuma({"/meshes": [MESH, {**MESH, "name": "other"}]}) as url:
        ended = offline("import", url, "--dry-run")

    assert f"{url} has more than {reason}\nName one mesh at a time." in ended.err


def test_a_source_does_not_command_the_terminal(offline: Koguma) -> None:
    bad = {**TIMEOUT, "name": "t\x1b]0;own\x07\nerror: all fine"}
    with kuma({"/meshes": [MESH], "/meshes/shop/timeouts": [bad]}) as url:
        ended = offline("import", url)

    assert ended.status == 1
    assert r"t\x1b]0;own\x07\nerror: all fine" in ended.err
    assert all(character.isprintable() or character == "\n" for character in ended.err)


def test_a_mesh_that_is_not_there_is_a_problem(offline: Koguma, files: Path) -> None:
    assert offline("migrate", "other", "-f", files).err.startswith("Error: there is no valid Mesh other\n")


def test_a_mesh_is_imported_from_kuma_and_moved_here(koguma: Koguma) -> None:
    items = {"/meshes": [MESH], "/meshes/shop/dataplanes": PROXIES, "/meshes/shop/timeouts": [TIMEOUT]}
    with kuma(items) as url:
        ended = koguma("import", url)

    assert ended.status == 0, ended.err
    assert ended.lines[0] == "Created: Mesh shop"
    assert "Created: Timeout shop/all" in ended.lines
    assert "Timeout all: MeshTimeout legacy-1-all" in koguma("migrate", "shop", "--check").out
    assert not koguma("get", "meshretries", "--mesh", "shop").lines[1:], "no policies but those of the mesh"


def test_a_mesh_is_moved_with_what_was_written(koguma: Koguma, files: Path, tmp_path: Path) -> None:
    koguma("import", files)
    koguma("migrate", "shop", "-w", tmp_path / "moved")

    applied = koguma("apply", "-f", tmp_path / "moved" / "new.yaml")
    deleted = koguma("delete", "-f", tmp_path / "moved" / "replaced.yaml")

    assert (applied.status, deleted.status) == (0, 0)
    assert deleted.out == 'deleted Timeout "all"\n'
    again = "mesh shop: 3 proxies compared\n\nreplaced:\n  nothing\n\ndifferent for proxies:\n  none\n"
    assert koguma("migrate", "shop", "--check").out == again


def test_policies_that_are_there_go_on_winning(offline: Koguma, files: Path) -> None:
    spec = {"targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "2m"}}]}
    labels = {"kuma.io/origin": "global"}
    initial = {"type": "MeshTimeout", "mesh": "shop", "name": "initial", "labels": labels, "spec": spec}
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump(initial))

    ended = offline("migrate", "shop", "-f", files, "--check")

    assert (ended.status, ended.lines[-1]) == (0, "  none")


def test_an_import_says_what_will_not_work(koguma: Koguma, files: Path) -> None:
    zone = {"type": "Zoo", "name": "east"}
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump(zone))

    ended = koguma("import", files, "--mesh", "shop", "--no-dataplanes")

    assert ended.status == 0, ended.err
    assert not any("Dataplane" in line for line in ended.lines)
    assert "  1 Zoo: Koguma has no such type" in ended.lines


TYPES = [
    {"name": "Timeout", "path": "timeouts", "scope": "Mesh", "readOnly": False},
    {"name": "MeshGlobalRateLimit", "path": "meshglobalratelimits", "scope": "Mesh", "readOnly": False},
    {"name": "MeshOPA", "path": "meshopas", "scope": "Mesh", "readOnly": False},
    {"name": "Zone", "path": "zones", "scope": "Global", "readOnly": False},
    {"name": "ZoneIngress", "path": "zoneingresses", "scope": "Global", "readOnly": False},
    {"name": "ZoneInsight", "path": "zone-insights", "scope": "Global", "readOnly": True},
]


@pytest.mark.parametrize(("options", "path"), [(("--mesh", "shop"), "/meshes/shop"), ((), "")])
def test_an_import_from_kuma_names_what_it_has_of_other_types(
    koguma: Koguma, options: Sequence[str], path: str
) -> None:
    lists = {
        f"{path}/meshglobalratelimits": page({"name": "a"}, {"name": "b"}),
        f"{path}/meshopas": page(),
        "/zones": page({"name": "east"}),
        "/zone-insights": page({"name": "east"}),
        "/meshes": page(MESH),
        "/meshes/shop": MESH,
        "/_resources": {"resources": TYPES},
    }

    def answers(path: str, _offset: int) -> tuple[int, Any]:
        if path == "/zoneingresses":
            return 403, {"status": 403, "title": "Access Denied"}
        return (200, lists[path]) if path in lists else (404, {"status": 404, "title": "Not found"})

    with answering(answers) as url:
        ended = koguma("import", url, "--dry-run", *options)

    assert ended.status == 0, ended.err
    assert [line for line in ended.lines if "no such type" in line] == [
        "  2 MeshGlobalRateLimit: Koguma has no such type",
        "  1 Zone: Koguma has no such type",
        "  ZoneIngress: Koguma has no such type, and whether there is one was not shown",
    ]


@pytest.mark.parametrize("answer", [[], {"resources": 1}, {"resources": [1, {}, {"name": "Zoo", "path": 7}]}, page()])
def test_what_a_control_plane_says_of_its_types_is_not_believed_blindly(koguma: Koguma, answer: Any) -> None:
    lists: dict[str, Any] = {"/_resources": answer, "/meshes": page(MESH)}

    with answering(lambda path, _: (200, lists.get(path, page()))) as url:
        ended = koguma("import", url, "--dry-run")

    assert ended.status == 0, ended.err


def test_one_invalid_resource_and_nothing_is_imported(koguma: Koguma, files: Path) -> None:
    bad = [{**TIMEOUT, "name": name, "conf": {"connectTimeout": "0s"}} for name in ("bad", "worse")]
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump_all(bad))

    ended = koguma("import", files)

    assert ended.status == 1
    assert "Timeout shop/bad" in ended.err
    assert "Timeout shop/worse" in ended.err
    assert koguma("get", "mesh", "shop").status == 1
    assert not any("shop" in line for line in koguma("get", "meshes").lines)


def test_what_is_too_large_for_one_request_is_imported_in_several(
    koguma: Koguma, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_AT_ONCE", 1)

    ended = koguma("import", files)

    assert ended.status == 0, ended.err
    assert ended.lines[0].startswith("in 5 requests")
    assert [line.split()[1] for line in ended.lines[1:]] == ["Mesh", "Timeout", "Dataplane", "Dataplane", "Dataplane"]


def test_an_import_that_stops_halfway_says_so_and_goes_on(
    koguma: Koguma, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_AT_ONCE", 1)
    left, apply = iter(range(3)), Client.apply

    def failing(client: Client, documents: Sequence[tuple[str, str]], *, dry_run: bool = False, **options: Any) -> Any:
        if not dry_run and next(left, None) is None:
            raise Problem("the control plane went away")
        return apply(client, documents, dry_run=dry_run, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Client, "apply", failing)
        stopped = koguma("import", files)
    again = koguma("import", files)

    assert stopped.status == 1
    assert stopped.err.startswith("Error: the control plane went away; 3 of 5 resources are imported\nRun the same")
    assert len([line for line in stopped.lines if line.startswith("Created")]) == 3
    assert [line.partition(":")[0] for line in again.lines[1:]] == [*["Unchanged"] * 3, *["Created"] * 2]


def test_a_dry_run_writes_nothing(koguma: Koguma, files: Path) -> None:
    ended = koguma("import", files, "--dry-run")

    assert "would be Created: Mesh shop" in ended.lines
    assert not any("shop" in line for line in koguma("get", "meshes").lines)


INBOUND = {"type": "MeshTimeout", "mesh": "shop", "name": "inbound"}
INBOUND_SPEC = {"from": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "3m"}}]}


def test_what_is_gone_in_the_next_version_is_told_with_its_place(offline: Koguma, files: Path) -> None:
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump({**INBOUND, "spec": INBOUND_SPEC}, sort_keys=False))
    line = files.read_text().splitlines().index("  from:") + 1

    ended = offline("migrate", "shop", "-f", files, "--to", "3.0", "--check")

    assert ended.status == 1
    assert "  MeshTimeout inbound: MeshTimeout inbound" in ended.lines
    assert f"  {files}:{line} MeshTimeout shop/inbound spec.from: is gone; write `rules`" in ended.lines
    assert any("Timeout shop/all: policies with sources and destinations are gone" in each for each in ended.lines)
    assert any("networking.inbound[0].tags: tags are gone" in each for each in ended.lines)
    assert "different for proxies:\n  none\n" in ended.out


def test_lists_of_clients_are_rewritten_and_the_policy_is_not_deleted(
    offline: Koguma, files: Path, tmp_path: Path
) -> None:
    with files.open("a") as more:
        more.write("---\n" + yaml.safe_dump({**INBOUND, "spec": INBOUND_SPEC}))

    offline("migrate", "shop", "-f", files, "--to", "3.0", "-w", tmp_path / "moved")

    new = yaml.safe_load((tmp_path / "moved" / "new.yaml").read_text())
    assert new == {**INBOUND, "spec": {"rules": [{"default": {"idleTimeout": "3m"}}]}}
    assert (tmp_path / "moved" / "replaced.yaml").read_text() == ""


def test_a_mesh_that_uses_nothing_of_it_is_ready(offline: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "shop.yaml").write_text(yaml.safe_dump({"type": "Mesh", "name": "shop"}))

    ended = offline("migrate", "shop", "-f", file, "--to", "3.0", "--check")

    assert ended.status == 0
    assert ended.out.endswith("gone in Kuma 3.0:\n  nothing\n")
