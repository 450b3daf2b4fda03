"""Names of fields, headers and parameters whose values are secret, and secrets inside a text.

Everything that hides secrets asks this module: documents (`cp.resources.redaction`), plain data (`secret_data`) and the
lines that an Envoy prints (`envoy_secrets`). See record 0097.
"""

from __future__ import annotations

import base64
import binascii
import re
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
    r".*(?:password|passwd|passphrase|pwd|secret|token|credential|signature"
    r"|(?:api|access|secret|private|auth|subscription|functions?|signing|encryption|shared|master|session)key)s?"
    r"|.*authorization|(?:set)?cookie2?|x?auth|jwt|sig"
)

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
    *("pkcs12", "configyaml", "config_yaml", "kty", "session", "csrf", "xsrf", "hmac", "otp", "bearer", "assertion"),
)
SHORT_HINT_WORDS: Final = ("sig", "sid", "pin")
"""Parts of many other words, so they count at the beginning of a word alone."""

NAME_HINTS: Final = (
    rf"{'|'.join(HINT_WORDS)}|(?:(?<![a-zA-Z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{'|'.join(SHORT_HINT_WORDS)})"
)
"""A regular expression: without a match in the text around it, no name makes anything secret."""

_SEPARATORS: Final = str.maketrans("", "", "-_. ")
_LONGEST_NAME: Final = 256
_COOKIES: Final = frozenset({"cookie", "cookie2", "setcookie", "setcookie2"})
_ALSO_PARAMETERS: Final = frozenset({"code"})

_BASE64_GROUP: Final = 4


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """A name without its separators and in lower case: `privateKey` and `private_key` are one field."""
    return name.translate(_SEPARATORS).lower()


def is_secret_field(name: str) -> bool:
    """True if everything in a field of this name is secret, in any of Envoy's messages."""
    return len(name) <= _LONGEST_NAME and plain_name(name) in _FIELDS


def is_secret_name(name: object) -> bool:
    """True if the value of a field or entry of this name is secret."""
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and _is_secret_name(name)


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(plain_name(name)) is not None


def is_secret_header(name: object) -> bool:
    """True if the value of a header or parameter of this name is secret.

    Anybody can give a header a name, so any word of it counts; names of fields are known, and their last word decides.
    """
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and _is_secret_header(name)


@lru_cache(maxsize=4096)
def _is_secret_header(name: str) -> bool:
    if name.lower() in _SHOWN_HEADERS:
        return False
    if name.startswith("envoy."):  # the name of a filter
        return _is_secret_name(name)
    words = (word.lower() for word in _WORD.findall(name))
    has_word = any(word in _SECRET_WORDS or word.removesuffix("s") in _SECRET_WORDS for word in words)
    return has_word or _is_secret_name(name) or _ENDS_SECRET.fullmatch(plain_name(name)) is not None


def is_secret_entry(name: str) -> bool:
    """True if an entry of this name is secret. No field of Envoy's or of a document has a hyphen, as headers do."""
    return is_secret_header(name) if "-" in name else is_secret_name(name)


_FORMAT: Final = re.compile(
    r"(?:(?i:bearer|basic) )?(?:%[A-Z0-9_]{1,64}(?:\([\w.:?<>/@, -]{0,128}\))?(?::\d{1,6})?%|[\s,;:/|-])*"
)
_PRESENCE: Final = re.compile(
    r"\^?(?i:(?:bearer|basic)(?:\\?s[+*]?|\s))?"
    r"(?:\\[swdb.]|A-Z|a-z|0-9|\{\d{1,4}(?:,\d{0,4})?\}|[-_.*+?^$()|\[\]{},=/ ])*",
    re.ASCII,
)


def is_harmless(name: str, value: object) -> bool:
    """True if a value cannot be a secret, whatever its name says.

    Such are numbers (unless the name is that of a password), commands of a format as `%REQ(x-token)%`, and regular
    expressions without a word, which ask whether there is anything.
    """
    if isinstance(value, str):
        return value in {"true", "false"} or any(form.fullmatch(value) is not None for form in (_FORMAT, _PRESENCE))
    return isinstance(value, bool) or _PASSWORD.search(plain_name(name[:_LONGEST_NAME])) is None


def shown_value(name: str, value: str) -> str:
    """The value of a header or parameter as it may be shown."""
    is_hidden = is_secret_header(name) and not is_harmless(name, value)
    return REDACTED if is_hidden else without_secrets(value)


def is_cookie(name: str) -> bool:
    """True for the name of a header that carries cookies. A field of this name can have the name of a cookie."""
    return plain_name(name) in _COOKIES


_JWT: Final = r"eyJ[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]{5,}+(?P<signature>\.[A-Za-z0-9_-]*+)?+)?+"
"""Text that begins like a token and is none is passed over in one piece, so that a hostile text costs no more."""

_BEARER: Final = r"(?<=bearer )(?!%)(?=[^\s\"\\]*[\d._~+/=-]|(?!(?:tokens?|auth\w*|headers?)\b)\w{6})"
_BASIC: Final = r"(?<=basic )(?=(?P<basic>[A-Za-z0-9+/]{4,}={0,2}))"
_TOKEN: Final = re.compile(rf"{_JWT}|(?i:{_BEARER}|{_BASIC})[^\s\"\\]++")
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
_USER: Final = re.compile(r"(?<=://)([^\s/?#\"'<>@:]*)(:(?!\d+[/?#])(?:(?!://)[^\s\"'<>])*)?@")
_BARE_USER: Final = re.compile(r"^([^\s/?#\"'<>@:]+):(?!(?:[\da-f:]*:)?\d{1,5}@)([^\s/@]+)@(?=[\w.\[\]:-]+$)")
"""Of an address without a scheme. Names of clusters of inbounds begin with an address and a port."""

_PARAMETER: Final = re.compile(r"(?<=[?&;#])([\w.-]{1,64}=)([^&;#\s\"'<>]+)")
_ASSIGNED: Final = re.compile(r"\b(pass(?:word|wd)|pwd)=[^\s&;,\"'\[]+", re.IGNORECASE)
_HINTS: Final = re.compile(r"eyJ|bearer |basic |-----BEGIN|://|[?&;#][\w.-]{1,64}=|passw(?:or)?d=|pwd=", re.IGNORECASE)
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
    """A text without keys, tokens, and passwords of URLs. Each of them is passed to `report`."""
    if any(part in text for part in KEY_IN_BASE64):
        report(text)
        return REDACTED
    if _HINTS.search(text) is None and ("@" not in text or _BARE_USER.match(text) is None):
        return text

    def hide(secret: str) -> str:
        if secret != REDACTED:
            report(secret)
        return REDACTED

    text = _KEY.sub(lambda match: hide(match[0]), text)
    text = _TOKEN.sub(lambda match: hide(match[0]) if _is_token(match) else match[0], text)
    text = _USER.sub(lambda match: _without_password(match, hide), text)
    text = _BARE_USER.sub(lambda match: f"{match[1]}:{hide(match[2])}@", text)
    text = _PARAMETER.sub(lambda match: match[1] + hide(match[2]) if _is_parameter(match[1]) else match[0], text)
    return _ASSIGNED.sub(lambda match: f"{match[1]}={hide(match[0].partition('=')[2])}", text)


def _is_token(match: re.Match[str]) -> bool:
    if match[0].startswith("eyJ"):
        return match["signature"] is not None
    return match["basic"] is None or _has_colon(match["basic"])


def _has_colon(text: str) -> bool:
    """True for the base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % _BASE64_GROUP))
    except binascii.Error:
        return False


def _without_password(match: re.Match[str], hide: Callable[[str], str]) -> str:
    """A user without a password may be a token itself."""
    user, password = match[1], match[2]
    return f"{hide(user)}@" if password is None else f"{user}:{hide(password[1:])}@"


def _is_parameter(beginning: str) -> bool:
    name = beginning.removesuffix("=")
    return is_secret_header(name) or name.lower() in _ALSO_PARAMETERS
