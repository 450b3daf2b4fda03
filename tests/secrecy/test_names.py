"""Names of headers and parameters with secrets, and values next to such a name that cannot be one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cp.model.envoy_secrets import redacted_lines
from cp.model.secret_data import redacted, without_quotes
from cp.model.secret_texts import _SECRET_WORDS, NAME_HINTS, is_secret_header
from cp.policies import discover, kinds
from cp.resources.redaction import redacted as shown_document
from tests.secrecy.documents import entry_forms, text_forms
from tests.secrecy.markers import CORE, markers_in

SECRET = (
    *("X-Auth-Key", "X-Auth-Email-Key", "Ocp-Apim-Subscription-Key", "x-functions-key", "X-Api-Keys", "X-Goog-Api-Key"),
    *(
        "x-amz-security-token",
        "X-Vault-Token",
        "x-access-tokens",
        "authTokens",
        "X_AUTH_TOKEN",
        "XAuthKey",
        "X-Token-2",
    ),
    *(
        "X-Session",
        "sessionid",
        "JSESSIONID-cookie",
        "X-CSRF",
        "x-hub-signature-256",
        "x-credentials",
        "X-OAuth-Scopes",
    ),
    *("x-psk", "apikeyv2", "xapikey1", "x-token2", "privatekeydata", "x-secretvalue", "x-ticket", "envoy.token.x"),
    *("subscriptionkey", "x-sig", "xSig", "x_sid", "x-pin", "Proxy-Authorization", "X-Client-Secret-Id"),
)
HARMLESS = (
    *("accept", ":authority", "x-request-id", "keep-alive", "x-author", "content-type", "x-passenger", "traceparent"),
    *("idempotency-key", "sec-websocket-key", "x-design-id", "x-b3-traceid", "www-authenticate", "x-envoy-retry-on"),
    *("envoy.filters.http.jwt_authn", "x-v2", "x-http2-priority", "content-md5"),
    *("access-control-allow-credentials", "kuma.io/service", "x-assigned-to", "x-forwarded-client-cert"),
)
KINDS = kinds(discover())


@pytest.mark.parametrize("name", SECRET)
def test_header_with_a_secret_is_hidden(name: str) -> None:
    assert redacted({"name": name, "value": CORE}) == {"name": name, "value": "[redacted]"}
    assert redacted({"headers": {name: {"exact": CORE}}}) == {"headers": {name: {"exact": "[redacted]"}}}
    assert redacted({"uri": f"/path?{name}={CORE}&a=b"}) == {"uri": f"/path?{name}=[redacted]&a=b"}
    assert not markers_in(redacted({"value": f"headers:\n- name: {name}\n  value: {CORE}\n"})["value"].encode())
    lines = ["{\n", f'  "key": "{name}",\n', f'  "value": "{CORE}"\n', "}\n"]
    assert not markers_in("".join(redacted_lines(lines)).encode())


@pytest.mark.parametrize("name", HARMLESS)
def test_other_headers_are_shown(name: str) -> None:
    assert not is_secret_header(name)
    assert redacted({"name": name, "value": CORE}) == {"name": name, "value": CORE}


@pytest.mark.parametrize("kind", ["MeshHTTPRoute", "MeshGatewayRoute"])
def test_document_hides_such_a_header(kind: str) -> None:
    change = {"set": [{"name": "X-Auth-Key", "value": CORE}]}
    route = {"requestHeaderModifier" if kind == "MeshHTTPRoute" else "requestHeader": change}
    rules = [{"default": {"filters": [{"type": "RequestHeaderModifier", **route}]}, "filters": [route]}]
    data = {"type": kind, "name": "x", "spec": {"to": [{"rules": rules}]}, "conf": {"http": {"rules": rules}}}

    assert not markers_in(str(shown_document(KINDS[kind], _without_other_form(kind, data))).encode())


def _without_other_form(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != ("conf" if kind == "MeshHTTPRoute" else "spec")}


@pytest.mark.parametrize("word", sorted(_SECRET_WORDS))
def test_every_word_is_hinted_at(word: str) -> None:
    """A text without a hint is not examined."""
    for name in (word, f"x-{word}", f"x_{word}s", f"x{word.title()}"):
        assert is_secret_header(name)
        assert re.search(NAME_HINTS, name, re.IGNORECASE) is not None


SHOWN: dict[str, Any] = {
    "presence": {"name": "token", "present_match": True, "invert_match": False},
    "any value": {"name": "token", "string_match": {"safe_regex": {"regex": ".+"}}},
    "any bearer": {"name": "authorization", "regex": "^Bearer [A-Za-z0-9._-]{8,}$"},
    "a number": {"token": 5, "tokens": [1, 2.5], "session-key": 3600},
    "a format": {"token": "%REQ(x-token)%", "x-auth-key": "%PROTOCOL%"},
    "a format of a header": {"key": "authorization", "value": "Bearer %REQ(x-token?authorization)%"},
    "the name of a header": {"token": {"header": "x-token"}},
    "a text like a truth": {"name": "x-auth-cookie", "value": "true"},
    "the size of a bucket": {"max_tokens": 1_000_000, "tokens_per_fill": 5000, "token-timeout": 3600},
    "several commands": {"key": "authorization", "value": "Bearer %DYNAMIC_METADATA(a:b)%,%START_TIME%"},
    "a route": {"name": "auth-keys", "match": {"prefix": "/keys"}, "route": {"cluster": "auth"}},
}


@pytest.mark.parametrize("data", SHOWN.values(), ids=SHOWN)
def test_value_that_cannot_be_secret_is_shown(data: dict[str, Any]) -> None:
    assert redacted(data) == data


HIDDEN: dict[str, Any] = {
    "a number as a password": {"password": 123456, "x-pin": 1234},
    "digits": {"name": "x-auth-key", "value": "123456"},
    "beside a command": {"name": "x-auth-key", "value": "k3y%COMMAND%"},
    "digits as a number": {"x-api-key": 12312312, "headers": {"key": "x-token", "value": 123123123}},
    "a quantifier of nothing": {"name": "authorization", "value": "{1234}"},
    "an unknown command": {"name": "x-api-key", "value": "%KEY%", "x-token": "Bearer %KEY%"},
    "beside a field of routes": {"name": "authorization", "value": "k3y", "route": "", "redirect": {}},
    "no name of a header": {"token": {"header": "s3cret"}},
    "a key that is no file": {"private_key": {"filename": {"x": "s3cret"}}},
    "a regex with a word": {"name": "token", "regex": "^s3cret$"},
    "within a secret message": {"private_key": {"inline_string": "%KEY%", "header": "s3cret"}},
}


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
def test_value_that_may_be_secret_is_hidden(data: dict[str, Any]) -> None:
    assert not re.search(r"123|k3y|s3cret|%KEY%", str(redacted(data)))


@pytest.mark.parametrize("text", [*text_forms(CORE), f"user:{CORE}@{CORE}@host", f"\uff50assword={CORE}"])
def test_text_with_a_secret_is_hidden(text: str) -> None:
    assert not markers_in(redacted({"note": text})["note"].encode())


@pytest.mark.parametrize("entry", [*entry_forms(CORE)])
def test_patch_with_a_secret_is_hidden(entry: str) -> None:
    text = f"metadata: {{filter_metadata: {{x: {{{entry}}}}}}}"

    assert not markers_in(str(redacted({"operation": "Patch", "value": text})).encode())
    assert not markers_in(str(redacted({"note": f"a: 1\n{text}\n"})).encode())


HONEST = (
    "name: x  # the key of the route, see http://host/path#key",
    "timeout: 15s  # tokens: 5, max_tokens: 1000",
    "routes:\n- match: {prefix: /token, headers: [{name: x-token, present_match: true}]}\n  route: {cluster: auth}",
    "path_regex: '\\d+\\.auth'\nname: &a auth-service\ncluster: *a\nport_value: 8080",
    "name: envoy.filters.http.jwt_authn\ntyped_config: {'@type': x, stat_prefix: auth}",
    "format: '[%START_TIME%] %REQ(:METHOD)% %REQ(X-TOKEN)% key=%REQ(x-api-key)%'",
    "address: {socket_address: {address: fd00::1, port_value: 15006}}  # localhost:8000@127.0.0.3:9001",
    "note: 'contact a@example.com, or b@example.com; image@sha256:0011223344'",
    "note: 'the bearer token of a basic authorization; token bucket, key: value'",
    "tls: {private_key: {filename: /etc/key.pem, watched_directory: {path: /etc}}}",
)


@pytest.mark.parametrize("text", HONEST)
def test_honest_patch_stays_readable(text: str) -> None:
    data = {"operation": "Patch", "value": text, "note": text}

    assert redacted(data) == data


def test_harmless_forms_take_linear_time() -> None:
    """A hostile value costs no more than its length."""
    for text in ("%A(" * 50_000, "Bearer " + "{1," * 50_000 + "x", "-" * 100_000 + "x", "[" * 100_000 + "é"):
        assert redacted({"name": "token", "value": text}) == {"name": "token", "value": "[redacted]"}


def test_every_quote_of_a_secret_is_hidden() -> None:
    secret = f"{CORE}-0001"
    message = f"`{secret[:20]}…` is not `{secret[:12]}`, nor {secret}, nor {secret[:14]}s"

    shown = without_quotes(message, [secret])

    assert shown == "`[redacted]…` is not `[redacted]`, nor [redacted], nor [redacted]s"


def test_cluster_named_like_a_header_is_shown() -> None:
    """Fields deeper in what has the name belong to something else."""
    lines = ["{\n", '  "name": "auth-service",\n', '  "inner": {\n', '    "value": "kept"\n', "  }\n", "}\n"]

    assert "".join(redacted_lines(lines)) == "".join(lines)
