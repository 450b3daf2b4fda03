"""Every field for a text, of every kind: it is hidden and encrypted, or it is listed as one that is shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from cp.model import secret_data
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_data import _kept_data
from cp.model.secret_texts import without_secrets
from cp.policies import discover, kinds
from cp.resources.kinds import Kind
from cp.resources.limits import too_many
from cp.resources.parse import parse, parse_written
from cp.resources.redaction import has_secrets, placeholders, redacted
from cp.resources.world import World
from tests.secrecy.fields import TextField, text_fields
from tests.secrecy.markers import CORE, markers_in
from tests.store.secrets import NEW, codec

KINDS = kinds(discover())
FIELDS = [field for kind in KINDS.values() for field in text_fields(kind)]
SECRET = [field for field in FIELDS if field.is_secret]
SHOWN = Path(__file__).with_name("shown_fields.txt")


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_secret_fields_are_hidden(kind: Kind) -> None:
    for field in (field for field in SECRET if field.kind is kind):
        data = field.document(CORE)
        shown = redacted(kind, data)

        assert not markers_in(str(shown).encode()), field.path
        assert has_secrets(kind, data), field.path
        assert not has_secrets(kind, shown), field.path
        assert list(placeholders(kind, shown)), field.path


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_no_violation_quotes_a_secret(kind: Kind) -> None:
    for field in (field for field in SECRET if field.kind is kind):
        parsed = parse(_document(field), KINDS)

        assert not markers_in(str([*parsed.findings()]).encode()), field.path


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_secret_fields_are_encrypted(kind: Kind) -> None:
    documents = codec(NEW)
    for field in (field for field in SECRET if field.kind is kind and kind.name != "Rollout"):
        document = _document(field)

        assert kind.name in documents.types
        assert not markers_in(documents.encode(document.key, document.data).encode()), field.path


def test_stored_text_like_a_redacted_secret_stays_in_use() -> None:
    backend = {"kind": "MeshService", "name": "backend"}
    route = {"to": [{"targetRef": backend, "rules": [_rule("[redacted]")]}]}
    document = Document(Key("MeshHTTPRoute", "default", "one"), _named("MeshHTTPRoute", spec=route))

    world = World.of((document,), KINDS)

    assert world.get(document.key) is not None
    assert [(found.code, "is `[redacted]`" in found.message) for found in world.findings] == [("unwritable", True)]
    assert parse_written(document, KINDS).resource is None


def test_stored_secret_that_is_redacted_is_invalid() -> None:
    """A field that holds nothing but a secret was never valid with this text."""
    document = Document(Key("Secret", "default", "one"), _named("Secret", data="[redacted]"))

    assert parse(document, KINDS).resource is None


def _rule(value: str) -> dict[str, Any]:
    headers = {"set": [{"name": "authorization", "value": value}]}
    change = {"type": "RequestHeaderModifier", "requestHeaderModifier": headers}
    return {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {"filters": [change]}}


def _named(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "mesh": "default", "name": "one", **fields}


def test_shown_fields_are_listed() -> None:
    """A new field for a text has to be given a type of `cp.resources.schema`, or a line in the file."""
    shown = sorted({f"{field.kind.name} {field.path}" for field in FIELDS if not field.is_secret})

    assert SHOWN.read_text().splitlines() == shown


def test_shown_fields_stay_readable() -> None:
    for field in FIELDS:
        if not field.is_secret:
            data = field.document(CORE)
            assert redacted(field.kind, data) == data, field.path


def _document(field: TextField) -> Document:
    return Document(Key(field.kind.name, "default", "one"), field.document(CORE))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("localhost:8000@127.0.0.3:9001", "localhost:8000@127.0.0.3:9001"),
        ("10.0.0.5:8080@10.0.0.1:80", "10.0.0.5:8080@10.0.0.1:80"),
        ("fd00::5:8080@fd00::1:80", "fd00::5:8080@fd00::1:80"),
        ("user:pass@db:5432", "user:[redacted]@db:5432"),
        ("Bearer abcdefgh", "Bearer [redacted]"),
        ("the bearer token", "the bearer token"),
    ],
)
def test_names_of_clusters_are_no_passwords(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_long_texts_are_not_kept() -> None:
    before = _kept_data.cache_info().currsize

    redacted(KINDS["MeshProxyPatch"], {"spec": {"value": "token: " + "x" * 100_000}})

    assert _kept_data.cache_info().currsize == before


@pytest.mark.parametrize("beginning", ["", "a", "ab"])
def test_private_key_in_base64_is_hidden(beginning: str) -> None:
    """Wherever the groups of base64 begin, and with no other word that says that it is a secret."""
    pem = f"{beginning}-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n"
    text = base64.b64encode(pem.encode()).decode()

    assert text not in str(secret_data.redacted({"spec": {"x-client-pem": text}}))


def test_long_s_hides_no_word() -> None:
    assert "hunter" not in str(secret_data.redacted({"note": "pa\u017fsword=hunter"}))


def test_kinds_of_the_control_plane_have_no_limits() -> None:
    assert not list(too_many("Rollout", {"spec": {"proxies": ["p"] * 20_000}}))
    assert list(too_many("MeshTimeout", {"spec": {"to": [{}] * 20_000}}))
