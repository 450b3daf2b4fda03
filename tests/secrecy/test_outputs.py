"""Markers in every field for secrets, stored through the API: none is in any output, file or backup."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cp.policies import discover, kinds
from tests.api.conftest import Api
from tests.cli.conftest import Koguma
from tests.secrecy.documents import MESH, Document, Planter
from tests.secrecy.fields import text_fields
from tests.secrecy.markers import marked_paths, markers_in
from tests.store.test_secrets_at_rest import A_KEY
from tests.support.control_plane import ControlPlane, path

KINDS: Final = kinds(discover())
_NOT_STORED: Final = frozenset(
    (
        *(f"Mesh {part}.backends[].format" for part in ("tracing", "metrics")),
        *(f"Mesh {part}.backends[].conf{{}}" for part in ("logging", "metrics")),
        *(
            f"MeshAccessLog {level}[].default.backends[].{address}"
            for level in ("to", "from", "rules")
            for address in ("tcp.address", "openTelemetry.endpoint")
        ),
        "MeshTrace default.backends[].datadog.url",
        "Rollout content",
    )
)
"""Fields in which no valid document has a password, and the content of a rollout, which is made of other documents."""

_CALL: Final = "http://backend:20001/"
_EXPLAINED: Final = f"/meshes/{MESH}/dataplanes/web-1"
_SLOW: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    (f"{_EXPLAINED}/_explain", {"call": f"GET {_CALL}"}),
    (f"{_EXPLAINED}/_explain", {"call": f"GET {_CALL}", "header": "authorization: nothing"}),
    (f"{_EXPLAINED}/_values", {"outbound": "127.0.0.1:20001"}),
)
_LASTING: Final = frozenset({"/_feed", "/gui/assets/{name}"})
_QUERIES: Final[Mapping[str, tuple[Mapping[str, str], ...]]] = {
    "/_history": ({"size": "1000"},),
    "/_changes": ({"size": "1000"},),
    "/_diff": ({"from": "FIRST", "to": "LAST"},),
    "/_diff/proxies": ({"from": "FIRST", "to": "LAST", "mesh": MESH},),
    "/_diff/plan": ({"from": "FIRST", "to": "LAST", "mesh": MESH},),
    "/_export": ({}, {"at": "FIRST"}, {"mesh": MESH}),
}
"""Questions that an answer depends on. `FIRST` and `LAST` are revisions."""


@dataclass
class Outputs:
    """All that was read, and where a marker was found."""

    count: int = 0
    size: int = 0
    found: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, name: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.count += 1
        self.size += len(data)
        self.found += [f"{name}: …{place}" for place in markers_in(data)[:2]]


@dataclass(frozen=True)
class Stored:
    """A control plane whose store has all documents twice, one after the other."""

    folder: Path
    client: httpx.Client
    koguma: Koguma
    documents: list[Document]
    planted: int
    first: int
    last: int


@contextmanager
def stored(folder: Path, *, every_message: bool = False) -> Iterator[Stored]:
    keys = folder / "keys"
    keys.write_text(A_KEY)
    keys.chmod(0o600)
    store = f"sqlite:///{folder}/koguma.db"
    with ControlPlane(folder, store, KOGUMA_SECRETS_KEY_FILE=str(keys)) as control_plane:
        address = control_plane.api.url
        with httpx.Client(base_url=address, timeout=60) as client:
            planter, revisions, documents = Planter(every_message=every_message), [], list[Document]()
            for _ in range(2):
                documents = list(planter.documents())
                body = {"resources": [{"text": json.dumps(document)} for document in documents]}
                answer = client.post("/_apply", json=body)
                assert answer.is_success, answer.text
                revisions.append(int(answer.headers["koguma-revision"]))
            yield Stored(folder, client, Koguma(address), documents, planter.markers.made, *revisions)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    with stored(tmp_path_factory.mktemp("planted")) as everything:
        yield everything


def test_every_secret_field_is_planted() -> None:
    """A new field has to be planted too."""
    paths = {f"{document['type']} {where}" for document in Planter().documents() for where in _paths(document)}
    secret = {f"{kind.name} {field.path}" for kind in KINDS.values() for field in text_fields(kind) if field.is_secret}

    assert {name for name in secret if not any(_covers(name, where) for where in paths)} == _NOT_STORED


def _paths(document: Document) -> Iterator[str]:
    return marked_paths(document if KINDS[document["type"]].is_inlined else document["spec"])


def _covers(name: str, where: str) -> bool:
    pattern = re.escape(name).replace(r"\{\}", "[.][^.]+")
    return re.fullmatch(rf"{pattern}([.\[].*)?", where) is not None


def test_no_answer_has_a_secret(planted: Stored) -> None:
    outputs = _answers(planted, _questions(planted))

    assert outputs.found == []
    assert outputs.failed == []
    assert outputs.count > 200


@pytest.mark.long
def test_no_explanation_has_a_secret(planted: Stored) -> None:
    outputs = _answers(planted, iter(_SLOW))

    assert outputs.found == []
    assert outputs.failed == []


@pytest.mark.long
def test_no_answer_has_a_secret_of_any_message(tmp_path: Path) -> None:
    """The same with each secret field of each of Envoy's messages, where an answer takes no explanation."""
    with stored(tmp_path, every_message=True) as planted:
        slow = ("_explain", "_values", "_rules", "_resources/dataplanes", "_diff/plan", "_graph")
        outputs = _answers(planted, (question for question in _questions(planted) if not question[0].endswith(slow)))
        for file in (file for file in tmp_path.rglob("*") if file.is_file()):
            outputs.add(file.name, file.read_bytes())

        assert outputs.found == []
        assert outputs.failed == []
        print(f"{planted.planted} planted, {outputs.count} outputs, {outputs.size} bytes")  # noqa: T201


def _answers(planted: Stored, questions: Iterator[tuple[str, Mapping[str, str]]]) -> Outputs:
    outputs = Outputs()
    for where, query in questions:
        answer = planted.client.get(where, params=query)
        outputs.add(f"{where}?{query}", answer.content)
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and "_envoy" not in where:
            outputs.failed.append(f"{where} {answer.status_code} {answer.text[:300]}")
    return outputs


def _questions(planted: Stored) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every route that answers GET, for every resource."""
    for route in _routes():
        for place in _places(route, planted.documents):
            for query in _QUERIES.get(route, ({},)):
                revisions = {"FIRST": str(planted.first), "LAST": str(planted.last)}
                yield place, {name: revisions.get(value, value) for name, value in query.items()}
    for document in planted.documents:
        yield path(document), {"format": "kubernetes"}
        yield path(document), {"at": str(planted.first)}


def _routes() -> list[str]:
    with asyncio.Runner() as runner:
        routes = Api(runner).app.routes
    known = {str(getattr(route, "path", "")) for route in routes if "GET" in (getattr(route, "methods", None) or ())}
    return sorted(known - _LASTING)


def _places(route: str, documents: list[Document]) -> Iterator[str]:
    """The paths of a route for all resources that there are."""
    places = {}
    for document in documents:
        kind, name, mesh = KINDS[document["type"]], document["name"], document.get("mesh", MESH)
        if "/dataplanes" in route and kind.name != "Dataplane":
            continue
        names = {
            "mesh": mesh,
            "name": name,
            "plural": kind.plural,
            "subject": "config_dump",
            "path": "",
            "path:path": "",
        }
        place = route
        for parameter, value in names.items():
            place = place.replace(f"{{{parameter}}}", value)
        places[place if "_" not in route or kind.name == "Dataplane" else kind.name] = place
    yield from sorted({*places.values()})


def test_no_answer_to_a_write_has_a_secret(planted: Stored) -> None:
    """A dry run with its plan, and what is wrong with a document that has one unknown field, or a wrong one."""
    outputs = Outputs()
    changed = [document for document in Planter().documents() if document["type"] != "Mesh"]
    body = {"resources": [{"text": json.dumps(document)} for document in changed]}
    planned = planted.client.post("/_apply", json=body, params={"dryRun": "true", "plan": "true"})
    outputs.add("plan", planned.content)
    assert planned.is_success, planned.text[:500]
    for document in {document["type"]: document for document in planted.documents}.values():
        for name, variant in _variants(document).items():
            answer = planted.client.put(path(document), json=variant)
            outputs.add(f"PUT {document['type']} {name}", answer.content)
    rolled = planted.client.post("/_rollback", json={"revision": planted.first}, params={"dryRun": "true"})
    outputs.add("rollback", rolled.content)

    assert outputs.found == []


def _variants(document: Document) -> Mapping[str, Document]:
    """Invalid ones: each with a fault around a marker."""
    variants = {"unknown": {**document, "unknown": 1}}
    for name, fault in (
        ("list", lambda text: [text]),
        ("object", lambda text: {"x": text}),
        ("cut", lambda text: f"\0{text[:-2]}"),
    ):
        copy = deepcopy(document)
        _replace(copy, fault)
        variants[name] = copy
    return variants


def _replace(data: Any, fault: Any) -> None:
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(pairs):
        if isinstance(value, str) and markers_in(value.encode()):
            data[key] = fault(value)
        else:
            _replace(value, fault)


@pytest.fixture
def folders(planted: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The documents as files, and others in their place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, documents in (("now", planted.documents), ("before", [*Planter().documents()])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.json").write_text("\n---\n".join(map(json.dumps, documents)))
    return tmp_path / "now", tmp_path / "before"


def test_no_command_has_a_secret(planted: Stored, folders: tuple[Path, Path]) -> None:
    now, _ = folders
    commands: list[list[Any]] = [
        ["render", "web-1", "-f", now],
        ["inspect", "rules", "web-1", "-f", now, "-o", "yaml"],
        ["validate", "-f", now],
        ["render", "web-1"],
        ["inspect", "rules", "web-1"],
        ["history", "--size", "1000", "-o", "yaml"],
        ["diff", planted.first, planted.last],
        ["export"],
        ["lint"],
        ["get", "meshproxypatches", "-o", "yaml"],
    ]

    assert _printed(planted.koguma, commands) == []


@pytest.mark.long
def test_no_slow_command_has_a_secret(planted: Stored, folders: tuple[Path, Path]) -> None:
    now, before = folders
    commands: list[list[Any]] = [
        ["explain", "web-1", _CALL, "-f", now],
        ["explain", "web-1", _CALL, "-o", "yaml"],
        ["inspect", "meshproxypatch", "planted-p0", "-f", now, "-o", "yaml"],
        ["lint", "-f", now],
        ["plan", "--from", before, "--to", now, "-o", "json"],
        ["diff", planted.first, planted.last, "--proxies"],
        ["apply", "--dry-run", "-f", before],
        *(["get", KINDS[document["type"]].plural, document["name"], "-o", "yaml"] for document in planted.documents),
    ]

    assert _printed(planted.koguma, commands) == []


def _printed(koguma: Koguma, commands: list[list[Any]]) -> list[str]:
    outputs = Outputs()
    for command in commands:
        ended = koguma(*command)
        assert "Traceback" not in ended.err
        outputs.add(f"koguma {command}", f"{ended.out}\n{ended.err}")
    return outputs.found


def test_no_file_has_a_secret(planted: Stored, tmp_path: Path) -> None:
    """The database with its log of writes, a backup of it, a copy, and the log of the control plane."""
    environment = {"KOGUMA_SECRETS_KEY_FILE": str(planted.folder / "keys")}
    store, koguma = f"sqlite:///{planted.folder}/koguma.db", Koguma()
    koguma.environment = environment
    assert koguma("backup", tmp_path / "backup.db", "--store", store).status == 0
    assert koguma("store", "copy", store, f"sqlite:///{tmp_path}/copy.db").status == 0
    outputs = Outputs()
    for file in (*planted.folder.rglob("*"), *tmp_path.rglob("*")):
        if file.is_file():
            outputs.add(file.name, file.read_bytes())

    assert outputs.found == []
    assert outputs.size > 500_000


def test_metrics_have_no_secret(planted: Stored) -> None:
    assert not markers_in(planted.client.get("/metrics").content)


def test_administrator_can_export_secrets(planted: Stored) -> None:
    """The markers are there: an administrator who wants to see them does."""
    hidden = planted.client.get("/_export").json()["hidden"]
    revealed = planted.client.get("/_export", params={"reveal": "true"})

    assert len(hidden) > 30
    assert len(markers_in(revealed.content)) > planted.planted / 4
