"""Names of fields, headers and parameters whose values are secret, and secrets inside a text.

Everything that hides secrets asks this module: documents (`cp.resources.redaction`), plain data (`secret_data`) and the
lines that an Envoy prints (`envoy_secrets`). See record 0097.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

REDACTED: Final = "[redacted]"
"""The text that is shown in place of a secret."""

ENVOY_FIELDS: Final = (
    *("private_key", "private_key_provider", "password", "passwords", "session_ticket_keys", "generic_secret"),
    *("config_yaml", "api_key", "auth_username", "auth_password", "downstream_auth_username", "pkcs12"),
    *("downstream_auth_password", "downstream_auth_passwords", "secret_access_key", "session_token", "access_token"),
    *("google_refresh_token", "authorization_token", "json_key", "backend_token", "secret_data", "users"),
    *("web_identity_token_data_source", "credentials_data_source", "context_extensions", "inline_credential"),
)
"""Fields of Envoy's messages in which every text is secret.

They include each field that Envoy's API marks as `sensitive`; `tests/secrecy` compares them with the descriptors.
"""

_FIELDS: Final = frozenset(name.replace("_", "") for name in ENVOY_FIELDS)
_SECRET_NAME: Final = re.compile(
    r".*(?:password|passwd|passphrase|pwd|secret|token|credential|signature|psk"
    r"|(?:api|access|secret|private|auth|subscription|functions?|signing|encryption|(?:pre)?shared|master|session)key)s?"
    r"(?:value|data|text|string|bytes|base64|b64|pem|hash)?"
    r"|.*authorization|(?:set)?cookie2?|x?auth|jwt|sig"
)
_VERSION: Final = re.compile(r"[-_.]?[vV]?\d+$")
"""Behind a name: `apikeyv2`, `token_2`."""

_SECRET_WORDS: Final = frozenset(
    (
        *(
            "key",
            "apikey",
            "token",
            "secret",
            "jwt",
            "bearer",
            "assertion",
            "signature",
            "sig",
            "hmac",
            "session",
            "sid",
            "psk",
            "ticket",
        ),
        *("auth", "oauth", "authn", "authz", "authorization", "authentication", "credential", "cred", "cookie"),
        *("password", "passwd", "passphrase", "passcode", "pwd", "pass", "pin", "otp", "csrf", "xsrf"),
    )
)
"""A header or parameter with one of these words in its name carries a secret, in the plural too."""

_ENDS_SECRET: Final = re.compile(r".*(?:key|token|secret|password|credential|cookie|signature|session)s?(?:id)?")
"""Words that are written as one: `subscriptionkey`, `sessionid`."""

_SHOWN_HEADERS: Final = frozenset(
    (
        *("sec-websocket-key", "idempotency-key", "surrogate-key", "cache-key", "x-cache-key"),
        *("access-control-allow-credentials", "x-envoy-auth-partial-body"),
    )
)
"""Headers that carry no secret although their names have such a word."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PASSWORD: Final = re.compile(r"pass|pwd|pin|otp|secret|cred")

HINT_WORDS: Final = (
    *("key", "secret", "token", "pass", "pwd", "auth", "cookie", "cred", "users", "extensions", "signature", "jwt"),
    *("pkcs12", "configyaml", "config_yaml", "kty", "session", "srf", "hmac", "otp", "bearer", "assertion"),
    *("psk", "ticket"),
)
SHORT_HINT_WORDS: Final = ("sig", "sid", "pin")
"""Parts of many other words, so they count at the beginning of a word alone."""

NAME_HINTS: Final = (
    rf"{'|'.join(HINT_WORDS)}|(?:(?<![a-zA-Z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{'|'.join(SHORT_HINT_WORDS)})"
)
"""A regular expression: without a match in the text around it, no name makes anything secret."""

_SEPARATORS: Final = str.maketrans("", "", "-_. ")
_FILTER: Final = re.compile(
    r"envoy\.(?:access_loggers|bootstrap|clusters|compression|config|extensions|filters|formatter|grpc_credentials"
    r"|health_check\w*|http|injected_credentials|lb|load_balancing_policies|matching|network|path|rbac|resource_\w+|retry_\w+|route|router"
    r"|stat_sinks|string_matcher|tls|tracers|transport_sockets|upstreams?|wasm|watchdog)(?:\.\w+)+",
    re.ASCII,
)
"""The name of an extension of Envoy's. Its words say what it does."""

_LONGEST_NAME: Final = 256
_COOKIES: Final = frozenset({"cookie", "cookie2", "setcookie", "setcookie2"})
_ALSO_PARAMETERS: Final = frozenset({"code"})

_BASE64_GROUP: Final = 4


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """A name without its separators and in lower case: `privateKey` and `private_key` are one field."""
    return usual_letters(name).translate(_SEPARATORS).lower()


def usual_letters(text: str) -> str:
    """A text with the usual form of letters that have several, such as the long s and those of full width."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def is_secret_field(name: str) -> bool:
    """True if everything in a field of this name is secret, in any of Envoy's messages."""
    return len(name) <= _LONGEST_NAME and plain_name(name) in _FIELDS


def is_secret_name(name: object) -> bool:
    """True if the value of a field or entry of this name is secret."""
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and _is_secret_name(name)


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(plain_name(_VERSION.sub("", name))) is not None


def is_secret_header(name: object) -> bool:
    """True if the value of a header or parameter of this name is secret.

    Anybody can give a header a name, so any word of it counts; names of fields are known, and their last word decides.
    """
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and _is_secret_header(name)


@lru_cache(maxsize=4096)
def _is_secret_header(name: str) -> bool:
    if name.lower() in _SHOWN_HEADERS:
        return False
    if _FILTER.fullmatch(name) is not None:
        return _is_secret_name(name)
    words = (word.lower() for word in _WORD.findall(usual_letters(name)))
    has_word = any(word in _SECRET_WORDS or word.removesuffix("s") in _SECRET_WORDS for word in words)
    plain = plain_name(_VERSION.sub("", name))
    return has_word or _is_secret_name(name) or _ENDS_SECRET.fullmatch(plain) is not None


def is_secret_entry(name: str) -> bool:
    """True if an entry of this name is secret. No field of Envoy's or of a document has a hyphen, as headers do."""
    return is_secret_header(name) if "-" in name or name.startswith("envoy.") else is_secret_name(name)


_FORMAT: Final = re.compile(
    r"(?:(?i:bearer|basic) )?(?:%(?P<command>[A-Z0-9_]{1,64})(?:\([\w.:?<>/@, -]{0,128}\))?(?::\d{1,6})?%|[\s,;:/|-])*"
)
_COMMANDS: Final = re.compile(
    r"%(?:REQ|RESP|TRAILER|QUERY_PARAMS?|COOKIE|PATH|PROTOCOL|METHOD|METADATA|\w+_METADATA|FILTER_STATE|\w+_FILTER_STATE"
    r"|ENVIRONMENT|FILE_CONTENT|SECRET|CEL|HOSTNAME|UNIQUE_ID|STREAM_ID|TRACE_ID|SPAN_ID|GRPC_STATUS\w*"
    r"|START_TIME\w*|EMIT_TIME\w*|\w*DURATION|BYTES_\w+|RESPONSE_\w+|REQUEST_\w+|REQUESTED_\w+|REQ_WITHOUT_QUERY"
    r"|CONNECTION_\w+|DOWNSTREAM_\w+|UPSTREAM_\w+|ROUTE_NAME|VIRTUAL_CLUSTER_NAME|CLUSTER_NAME|LOCAL_REPLY_BODY"
    r"|ACCESS_LOG_TYPE|TLS_\w+|CUSTOM_FLAGS|START_\w+|CONNECTION_ID|KUMA_\w+|CODEC\w*|BACKEND_\w+)[(:%]",
    re.ASCII,
)
"""The commands of Envoy's and Kuma's formats."""

_PRESENCE: Final = re.compile(
    r"\^?(?i:(?:bearer|basic)(?:\\?s[+*]?|\s))?"
    r"(?:\\[swdb.]|A-Z|a-z|0-9|(?<=[\]).swdb])\{\d{1,4}(?:,\d{0,4})?\}|[-_.*+?^$()|\[\]{},=/ ])*",
    re.ASCII,
)
_NUMBERED: Final = re.compile(r"key|auth|cookie|jwt|token$")
_SMALL: Final = 100_000
"""A smaller number next to the name of a key or token is its size, its age or how many there are."""


def is_harmless(name: str, value: object) -> bool:
    """True if a value cannot be a secret, whatever its name says.

    Such are small numbers (unless the name is that of a password), commands of a format as `%REQ(x-token)%`, and
    regular expressions without a word, which ask whether there is anything.
    """
    if isinstance(value, str):
        return value in {"true", "false"} or _is_format(value) or _PRESENCE.fullmatch(value) is not None
    plain = plain_name(name[:_LONGEST_NAME])
    is_large = isinstance(value, int | float) and abs(value) >= _SMALL and _NUMBERED.search(plain) is not None
    return isinstance(value, bool) or (_PASSWORD.search(plain) is None and not is_large)


def _is_format(value: str) -> bool:
    """True for a format that consists of known commands. The text of an unknown one may be anything."""
    match = _FORMAT.fullmatch(value)
    return match is not None and (match["command"] is None or value.count("%") == 2 * len(_COMMANDS.findall(value)))


def shown_value(name: str, value: str) -> str:
    """The value of a header or parameter as it may be shown."""
    is_hidden = is_secret_header(name) and not is_harmless(name, value)
    return REDACTED if is_hidden else without_secrets(value)


def is_cookie(name: str) -> bool:
    """True for the name of a header that carries cookies. A field of this name can have the name of a cookie."""
    return plain_name(name) in _COOKIES


_JWT: Final = r"eyJ[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]{5,}+(?P<signature>\.[A-Za-z0-9_-]*+)?+)?+"
"""Text that begins like a token and is none is passed over in one piece, so that a hostile text costs no more."""

_BEARER: Final = (
    r"(?P<bearer>bearer(?:[\s:=]|\\[tn]|%20){1,8})(?!%|\[redacted\])"
    r"(?=[^\s\"\\]{0,256}?[\d._~+/=-]|(?!(?:tokens?|auth\w*|headers?)\b)\w{6})"
)
_BASIC: Final = r"(?P<before>basic(?:[\s:=]|\\[tn]|%20){1,8})(?=(?P<basic>[A-Za-z0-9+/]{4,}={0,2}))"
_TOKEN: Final = re.compile(rf"{_JWT}|(?i:{_BEARER}|{_BASIC})[^\s\"\\]++")
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
_USER: Final = re.compile(r"(?<=://)([^\s/?#\"'<>@:]*)(:(?!\d+[/?#])(?:(?!://)[^\s\"'<>])*)?@")
_BARE_USER: Final = re.compile(
    r"(?<![^\s\"'(=,;])((?://)?[^\s/?#\"'<>@:(=,;]{1,256}+):(?!(?:[\da-fA-F:]*:)?\d{1,5}@)([^\s/\"'<>]{1,1024}+)"
)
"""Of an address without a scheme. Names of clusters of inbounds begin with an address and a port."""

_HOST: Final = re.compile(r"[\w\[]")
_PARAMETER: Final = re.compile(r"(?<=[?&;#])([\w.-]{1,64}=)([^&;#\s\"'<>]+)")
_ASSIGNED: Final = re.compile(r"(?<![\w.-])(?P<before>(?P<name>[\w.-]{1,64}+)=)(?P<quote>)(?P<value>[^\s&;,\"'\[\\]++)")
_QUOTED: Final = re.compile(
    r"(?<![\w.-])(?P<before>(?P<name>[\w.-]{1,64}+)(?:\\?[\"']?\s{0,4}[=:]\s{0,4}))"
    r"(?P<quote>\\?[\"'])(?P<value>[^\"'\\\n]++)"
)
_ARGUMENT: Final = re.compile(
    r"(?P<before>\(\s{0,4}\\?[\"'](?P<name>[\w.-]{1,64})\\?[\"']\s{0,4},\s{0,4})(?P<quote>\\?[\"'])(?P<value>[^\"'\\\n]++)"
)
"""In a program: `headers:add("authorization", "…")`."""

_ASSIGNMENTS: Final = (
    (re.compile(r"=[^\s&;,\"'\[\\]"), _ASSIGNED),
    (re.compile(r"[=:]\s{0,4}\\?[\"']"), _QUOTED),
    (re.compile(r"\(\s{0,4}\\?[\"']"), _ARGUMENT),
)
"""Each form with the part of it that is searched first, which takes a tenth of the time."""

_HINTS: Final = re.compile(r"eyJ|bearer|basic|-----BEGIN|://|[?&;#][\w.-]{1,64}=", re.IGNORECASE)
"""Most texts have none of these, and are not examined any further."""


def _in_base64(words: bytes) -> tuple[str, ...]:
    """Words as they stand in base64 at each of the three offsets, without the groups that their neighbours share."""
    return tuple(
        base64.b64encode(bytes(shift) + words)[_BASE64_GROUP if shift else 0 : -_BASE64_GROUP].decode()
        for shift in range(3)
    )


KEY_IN_BASE64: Final = _in_base64(b"PRIVATE KEY-----")
"""A text with one of these has a private key, in base64."""


def without_secrets(text: str, report: Callable[[str], None] = lambda _: None) -> str:
    """A text without keys, tokens, passwords of URLs, and values assigned to names of secrets.

    Each of them is passed to `report`.
    """
    hide = _hider(report)
    text = without_forms(text, report)
    for part, form in _ASSIGNMENTS:
        if part.search(text) is not None:
            text = form.sub(lambda match: _without_assigned(match, hide), text)
    return text


def without_forms(text: str, report: Callable[[str], None] = lambda _: None) -> str:
    """The same without what is known by its own form alone, and not by a name before it."""
    if any(part in text for part in KEY_IN_BASE64):
        report(text)
        return REDACTED
    hide = _hider(report)
    if "@" in text:
        text = _USER.sub(lambda match: _without_password(match, hide), text)
        text = _BARE_USER.sub(lambda match: _without_bare_password(match, hide), text)
    if _HINTS.search(text) is None:
        return text
    text = _KEY.sub(lambda match: hide(match[0]), text)
    text = _TOKEN.sub(lambda match: _without_token(match, hide), text)
    return _PARAMETER.sub(lambda match: match[1] + hide(match[2]) if _is_parameter(match[1]) else match[0], text)


def _hider(report: Callable[[str], None]) -> Callable[[str], str]:
    def hide(secret: str) -> str:
        if secret != REDACTED:
            report(secret)
        return REDACTED

    return hide


def _without_token(match: re.Match[str], hide: Callable[[str], str]) -> str:
    if not _is_token(match):
        return match[0]
    before = match["bearer"] or match["before"] or ""
    return before + hide(match[0][len(before) :])


def _without_bare_password(match: re.Match[str], hide: Callable[[str], str]) -> str:
    """A text up to its last @, behind which there is a host."""
    user, remainder = match.groups()
    password, at, host = remainder.rpartition("@")
    return f"{user}:{hide(password)}@{host}" if at and password and _HOST.match(host) is not None else match[0]


def _without_assigned(match: re.Match[str], hide: Callable[[str], str]) -> str:
    is_hidden = is_secret_entry(match["name"]) and not is_harmless(match["name"], match["value"])
    return f"{match['before']}{match['quote']}{hide(match['value'])}" if is_hidden else match[0]


def _is_token(match: re.Match[str]) -> bool:
    if match[0].startswith("eyJ"):
        return match["signature"] is not None
    return match["basic"] is None or _has_colon(match["basic"])


def _has_colon(text: str) -> bool:
    """True for the base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % _BASE64_GROUP))
    except ValueError:  # it is no base64; the long s counts as an s above
        return False


def _without_password(match: re.Match[str], hide: Callable[[str], str]) -> str:
    """A user without a password may be a token itself."""
    user, password = match[1], match[2]
    return f"{hide(user)}@" if password is None else f"{user}:{hide(password[1:])}@"


def _is_parameter(beginning: str) -> bool:
    name = beginning.removesuffix("=")
    return is_secret_header(name) or name.lower() in _ALSO_PARAMETERS
