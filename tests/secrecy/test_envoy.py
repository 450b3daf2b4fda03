"""Every secret field of every Envoy message: it is hidden in whatever way a patch writes it."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter

from cp.model.envoy_dumps import redacted_error
from cp.model.secret_data import redacted
from cp.policies import discover, kinds
from cp.policies.mesh_proxy_patch.native import NotNative, native
from cp.resources.redaction import has_secrets, placeholders
from cp.resources.redaction import redacted as shown_document
from tests.secrecy.envoy import SecretField, secret_fields, shown_texts
from tests.secrecy.markers import CORE, Markers, markers_in

PATCH = kinds(discover())["MeshProxyPatch"]
FIELDS = [*secret_fields()]


def patch(change: dict[str, Any]) -> dict[str, Any]:
    conf = {"appendModifications": [{"httpFilter": {"operation": "Patch", **change}}]}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": {"default": conf}}


def test_fields_that_envoy_marks_are_found() -> None:
    assert sum(field.is_marked for field in FIELDS) > 20
    assert "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.private_key" in map(str, FIELDS)


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_field_is_hidden(field: SecretField) -> None:
    markers = Markers()
    for text in field.filter_texts(markers):
        native(text, HttpFilter)  # what is planted is a message
        must_be_hidden({"value": text})
    must_be_hidden({"jsonPatches": field.json_patches(markers)})
    assert markers.made > 1


def must_be_hidden(change: dict[str, Any]) -> None:
    document = patch(change)
    shown = shown_document(PATCH, document)
    assert not markers_in(str(shown).encode()), document
    assert has_secrets(PATCH, document)
    assert not has_secrets(PATCH, shown)
    assert list(placeholders(PATCH, shown))
    conf = document["spec"]["default"]
    assert not markers_in(str(redacted({"conf": conf, "path": "default", "origin": []})).encode())


CASES: dict[str, dict[str, Any]] = {
    "a header": {"header": {"key": "Authorization", "value": CORE}},
    "a raw header": {"header": {"key": "cookie", "raw_value": CORE}},
    "a header to match": {"headers": [{"name": "x-api-key", "string_match": {"exact": CORE}}]},
    "a parameter to match": {"query_parameters": [{"name": "token", "string_match": {"exact": CORE}}]},
    "a Struct": {"value": {"nested": {"api_key": CORE, "list": [{"clientSecret": CORE}]}}},
    "JSON in a text": {"configuration": {"@type": "x", "value": f'{{"api_key": "{CORE}", "n": 1}}'}},
    "YAML in a text": {"configuration": f"db:\n  password: {CORE}\n  port: 5432\n"},
    "a private JSON Web Key": {"inline_string": f'{{"keys": [{{"kty": "oct", "k": "{CORE}"}}]}}'},
    "a password in a URL": {"uri": f"postgres://user:{CORE}@db/x"},
    "a token in a URL": {"uri": f"https://host/path?a=b&access_token={CORE}"},
    "a user that is a token": {"uri": f"https://{CORE}@host/"},
    "a Bearer token in code": {"inline_string": f'headers:add("x", "Bearer {CORE}")'},
    "a key in PEM": {"inline_string": f"-----BEGIN PRIVATE KEY-----\n{CORE}\n-----END PRIVATE KEY-----"},
    "headers of a route": {"headers": {"authorization": {"exact": CORE}}},
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_secret_without_a_descriptor_is_hidden(data: dict[str, Any]) -> None:
    assert not markers_in(str(redacted(data)).encode())
    assert redacted(redacted(data)) == redacted(data)


@pytest.mark.parametrize("text", [f"a: b: {{privateKey: {CORE}", f'{{"private_key": "{CORE}', f"- {CORE}\n  : \tkey"])
def test_broken_patch_is_hidden(text: str) -> None:
    assert not markers_in(str(shown_document(PATCH, patch({"value": text}))).encode())


def test_comment_beside_a_secret_is_hidden() -> None:
    text = f"# the old key was {CORE}\ntyped_config: {{private_key: {{inline_string: new}}}}\n"
    assert not markers_in(str(shown_document(PATCH, patch({"value": text}))).encode())


@pytest.mark.parametrize("value", ["5", f"[{CORE}]", CORE])
def test_error_about_a_message_quotes_no_secret(value: str) -> None:
    text = f"name: x\ntyped_config: {{'@type': type.googleapis.com/{FIELDS[-1].message.full_name}, password: {value}}}"
    with pytest.raises(NotNative) as error:
        native(text, HttpFilter)
    assert not markers_in(str(error.value).encode())


@pytest.mark.parametrize(
    "dump",
    [
        f'tls_certificates {{ private_key {{ inline_string: "{CORE}" }} }}',
        f'api_key: "{CORE}"',
        f'header {{ key: "authorization" value: "{CORE}" }}',
        f'header {{ key: \\"authorization\\" value: \\"{CORE}\\" }}',
        f'inline_bytes: "{CORE} that is cut off',
    ],
)
def test_error_of_an_envoy_quotes_no_secret(dump: str) -> None:
    shown = redacted_error(f'Proto constraint validation failed (X: value is required): {dump} name: "kept"')

    assert not markers_in(shown.encode())
    assert shown.startswith("Proto constraint validation failed (X: value is required)")


def test_other_texts_of_envoy_stay_readable() -> None:
    """The exceptions are names of cookies."""
    names = [name.rpartition(".")[2] for name in shown_texts()]
    hidden = sorted({name for name in names if redacted({name: "plain-text"}) != {name: "plain-text"}})

    assert hidden == ["bearer_token", "id_token", "refresh_token"]
    assert len(names) > 700
