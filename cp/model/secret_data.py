"""Plain data without its secrets: confs of policies, Envoy's messages, and answers that have parts of them.

Only the data decides: the names of fields, the name of a header next to its value, and the texts themselves. The same
rules apply to a document, to a merged conf and to the resources that a proxy is served. A text in YAML or JSON is
redacted as the data that it describes.

See record 0097.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

from cp.model.checkpoint import Checkpoint, pass_checkpoint
from cp.model.envoy_dumps import redacted_error
from cp.model.secret_texts import (
    HINT_WORDS,
    KEY_IN_BASE64,
    NAME_HINTS,
    REDACTED,
    SHORT_HINT_WORDS,
    is_cookie,
    is_harmless,
    is_secret_entry,
    is_secret_field,
    is_secret_header,
    is_secret_name,
    plain_name,
    usual_letters,
    without_forms,
    without_secrets,
)
from cp.model.yaml import MAX_DIGITS, NotYaml, parse_all
from cp.model.yaml_text import yaml_text

_NAMING: Final = ("name", "key", "tag", "header", "headerKey", "header_key")
"""Fields that name a header, a parameter or an entry, whose value stands beside them."""

_NAMING_FIELDS: Final = frozenset(map(plain_name, _NAMING))

_VALUES: Final = frozenset(
    (
        *("value", "rawvalue", "literal", "default", "defaultvalue", "stringvalue", "bytesvalue"),
        *("exact", "prefix", "suffix", "contains", "regex", "ignorecase"),
    )
)
_NOT_SECRET: Final = frozenset(("@type", "filename", "environmentvariable", "watcheddirectory"))
"""Fields within a secret that say where it comes from."""

_OF_ROUTES: Final = frozenset(("route", "redirect", "direct_response", "directResponse"))
"""Fields of a route, whose name is not that of what its `match` is about."""

_HEADER_NAME: Final = re.compile(r":?[A-Za-z]{1,32}(?:[-_][A-Za-z]{1,32}|-[0-9]{1,3})*")
_OF_HEADER_NAMES: Final = frozenset(("header", "headername", "headerkey"))
"""Fields that name the header which has the secret."""

_INLINE: Final = frozenset({"inlinestring", "inlinebytes"})
_OF_REFERENCE: Final = frozenset({"@type", "name", "filename", "secret", "file"})
_SECRET_TYPES: Final = ("GenericSecret", "TlsSessionTicketKeys", "PrivateKeyProvider")
_PRIVATE_OF_JWK: Final = frozenset({"k", "d", "p", "q", "dp", "dq", "qi"})
_OF_API_KEY: Final = frozenset({"key", "client"})
_IN_HEADERS: Final = re.compile(r"/[^/]*(?:header|metadata|queryparam|cookie)[^/]*(?:/|$)", re.IGNORECASE)
_OF_HEADERS: Final = re.compile(r"headers$", re.IGNORECASE)
_INDEX: Final = re.compile(r"\d+|-")
_DATA: Final = re.compile(r"\s*[{\[]|(?:#.*\n|\s)*[\"']?[@\w./-]{1,128}[\"']?\s*:(?:\s|$)")
_ALIAS: Final = re.compile(r"(?<![^\s\[{,])\*[^\s,\[\]{}]")
_COMMENT: Final = re.compile(r"#(?<![^\s]#)[^\n\r]*")
_ENTRY_SIGN: Final = re.compile(r":[ \t]|=")
_COMMENTED_ENTRY: Final = re.compile(
    r"""(?<![\w.-])([\w.-]{1,64}+)["']?[ \t]{0,4}(?::[ \t]{1,4}|=[ \t]{0,4})["']?([^\s"',}]+)"""
)
_MARKS: Final = ("eyJ", "basic", "://", "@", "code=", r"\\", *map(re.escape, KEY_IN_BASE64))
_SUSPICIOUS: Final = re.compile(rf"{NAME_HINTS}|{'|'.join(_MARKS)}", re.IGNORECASE)
"""Without one of these, nothing in a text is secret, and it is not parsed. An escape may stand for any letter."""

_SUSPICIOUS_PARTS: Final = tuple(
    re.sub(r"\\(.)", r"\1", word).lower() for word in (*HINT_WORDS, *SHORT_HINT_WORDS, *_MARKS)
)
"""Each of its matches has one of these in lower case. They are found in a tenth of its time."""


def redacted(data: Any, checkpoint: Checkpoint = pass_checkpoint) -> Any:
    """Data without what is secret in it, nor a copy of a long secret in another field."""
    redaction = _Redaction(checkpoint)
    shown = redaction.value(data)
    copies = {secret for secret in redaction.hidden if len(secret) >= _LONG_SECRET and secret != REDACTED}
    return _without_copies(shown, copies) if copies else shown


def redacted_answer(answer: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """The same for an answer, which may be large."""
    shown: dict[str, Any] = redacted(answer, checkpoint)
    return shown


def without_secret_fields(data: Any) -> Any:
    """Data without the fields whose names say that they are secret: an Envoy has emptied some of them."""
    if isinstance(data, Mapping):
        return {
            name: without_secret_fields(value)
            for name, value in data.items()
            if not (is_secret_field(name) or (is_secret_name(name) and _is_scalar(value)))
        }
    return [without_secret_fields(item) for item in data] if isinstance(data, list) else data


def hidden_texts(data: Any) -> Iterator[str]:
    """The secrets that `redacted` leaves out."""
    redaction = _Redaction()
    redaction.value(data)
    return (text for text in redaction.hidden if text != REDACTED)


def without_quotes(message: str, secrets: Iterable[str]) -> str:
    """A message without the secrets that it quotes, also where it quotes only the beginning of one."""
    quoted = (secret for secret in set(secrets) if secret and secret[:_SHORTEST_BEGINNING] in message)
    for secret in sorted(quoted, key=len, reverse=True):
        is_word = len(secret) < _SHORTEST
        message = message.replace(f"`{secret}`" if is_word else secret, f"`{REDACTED}`" if is_word else REDACTED)
        message = _without_beginning(message, secret)
    return message


_LONG_SECRET: Final = 16
"""Characters of a secret of which a copy is no accident. A shorter one may be the name of something."""

_SHORTEST: Final = 4
"""Characters of a secret that is found anywhere in a message. A shorter one is part of ordinary words."""

_SHORTEST_BEGINNING: Final = 12


def _without_beginning(message: str, secret: str) -> str:
    if len(secret) <= _SHORTEST_BEGINNING:
        return message
    first, *quotes = message.split(secret[:_SHORTEST_BEGINNING])
    tail = secret[_SHORTEST_BEGINNING:]
    return first + "".join(REDACTED + _behind(quote, tail) for quote in quotes)


def _behind(text: str, beginning: str) -> str:
    """A text without as much of its beginning as is like another text."""
    different = (index for index, pair in enumerate(zip(text, beginning, strict=False)) if pair[0] != pair[1])
    return text[next(different, min(len(text), len(beginning))) :]


class _Redaction:
    """One walk through data. It remembers what it hides."""

    def __init__(self, checkpoint: Checkpoint = pass_checkpoint) -> None:
        self._checkpoint = checkpoint
        self.hidden: list[str] = []

    def value(self, data: Any) -> Any:
        if isinstance(data, str):
            return self._text(data)
        if isinstance(data, Mapping):
            return self._message(data)
        return [self.value(item) for item in data] if isinstance(data, list | tuple) else data

    def _message(self, data: Mapping[Any, Any], is_secret: Callable[[str], bool] = is_secret_entry) -> dict[Any, Any]:
        """A message without its secrets; `is_secret` judges the names of its entries."""
        self._checkpoint()
        named = _secret_header(data)
        is_route = bool(data.keys() & _OF_ROUTES)
        path = str(data["path"]) if "op" in data and "path" in data else None
        if str(data.get("@type", "")).endswith(_SECRET_TYPES):
            return self._blank_fields(data)
        secret = _private_fields(data)
        out = {}
        for name, value in data.items():
            field = str(name)
            if field in secret or is_secret_field(field):
                out[name] = self._blank(value)
            elif named is not None and _is_value(field, value) and not (is_route and field == "match"):
                out[name] = self._blank(value, named)
            elif path is not None and field == "value":
                out[name] = self._patched(path, value)
            elif isinstance(value, str) and _is_native(field, data):
                out[name] = self._native(value)
            else:
                out[name] = self._entry(field, value, is_secret)
        return out

    def _entry(self, name: str, value: Any, is_secret: Callable[[str], bool]) -> Any:
        """A value by its name. What names a Secret is a message, and not a text."""
        if plain_name(name) == "cookienames":
            return value
        if name == "details" and isinstance(value, str):  # the error of an Envoy that rejects a resource
            return redacted_error(value)
        if isinstance(value, Mapping) and _OF_HEADERS.search(name) is not None:
            return self._message(value, is_secret_header)
        if not is_secret(name) or (is_cookie(name) and isinstance(value, str) and "=" not in value):
            return self.value(value)
        is_message = isinstance(value, Mapping) and _is_match_or_source(value)
        is_blank = is_message or _is_scalar(value) or _is_list_of_texts(value)
        return self._blank(value, name) if is_blank else self.value(value)

    def _patched(self, path: str, value: Any) -> Any:
        """What a JSON Patch writes at a path."""
        steps = [step for step in path.split("/") if step and _INDEX.fullmatch(step) is None]
        last = steps[-1] if steps else ""
        is_part = plain_name(last) in _INLINE | {"key"} and any(map(is_secret_name, steps))
        if is_part or any(map(is_secret_field, steps)):
            return self._blank(value)
        if _IN_HEADERS.search(path) is not None and plain_name(last) in _VALUES and _is_scalar(value):
            return self._blank(value)
        return self._message({last: value})[last]

    def _blank(self, value: Any, name: str | None = None) -> Any:
        """The same structure, with no text in it; below the `name` of a header, with those that are no secret."""
        if isinstance(value, Mapping):
            return self._blank_fields(value, name)
        if isinstance(value, list | tuple):
            return [self._blank(item, name) for item in value]
        if not _is_scalar(value) or value == "" or (name is not None and is_harmless(name, value)):
            return value
        self.hidden.append(str(value))
        return REDACTED

    def _blank_fields(self, data: Mapping[Any, Any], header: str | None = None) -> dict[Any, Any]:
        return {
            name: self.value(value) if _is_reference(str(name), value, header) else self._blank(value, header)
            for name, value in data.items()
        }

    def _text(self, text: str) -> str:
        if not _is_suspicious(text):
            return text
        is_data = text.lstrip()[:1] in {"{", "["} or ("\n" in text and _DATA.match(text) is not None)
        shown = self._parsed(text) if is_data else None
        return without_secrets(text, self.hidden.append) if shown is None else shown

    def _native(self, text: str) -> str:
        """A message of Envoy's as YAML. Nobody can tell what is secret in a text that is not YAML."""
        if not _is_suspicious(text):
            return text
        shown = self._parsed(text)
        if shown is not None:
            return shown
        self.hidden.append(text)
        return REDACTED

    def _parsed(self, text: str) -> str | None:
        """A text without what is secret in the data that it describes; None if it is no data."""
        shown, hidden = _shown_data(text)
        self.hidden += hidden
        return shown


def _is_reference(name: str, value: Any, header: str | None) -> bool:
    """True for a field within a secret that names its source, or the header that has it."""
    plain = plain_name(name)
    if plain in _OF_HEADER_NAMES:
        return header is not None and isinstance(value, str) and _HEADER_NAME.fullmatch(value) is not None
    return plain in _NOT_SECRET and (isinstance(value, str) or plain == "watcheddirectory")


def _is_suspicious(text: str) -> bool:
    text = usual_letters(text)
    lower = text.lower()
    return any(part in lower for part in _SUSPICIOUS_PARTS) and _SUSPICIOUS.search(text) is not None


_LONGEST_KEPT: Final = 16 * 1024


def _shown_data(text: str) -> tuple[str | None, tuple[str, ...]]:
    return _kept_data(text) if len(text) <= _LONGEST_KEPT else _read_data(text)


@lru_cache(maxsize=1024)
def _kept_data(text: str) -> tuple[str | None, tuple[str, ...]]:
    return _read_data(text)


def _read_data(text: str) -> tuple[str | None, tuple[str, ...]]:
    try:
        documents = [document.data for document in parse_all(text)]
    except (NotYaml, RecursionError, ValueError):
        return None, ()
    if not all(isinstance(data, dict | list) for data in documents):
        return None, ()
    redaction = _Redaction()
    shown = [redaction.value(data) for data in documents]
    comments = _secret_comments(text)
    if _ALIAS.search(text) is not None:
        copies = {hidden for hidden in redaction.hidden if hidden != REDACTED}
        shown = [_without_copies(data, copies) for data in shown]
    redaction.hidden += comments
    shown_text = _dumped(text, shown) if comments or shown != documents else text
    return without_forms(shown_text, redaction.hidden.append), tuple(redaction.hidden)


def _secret_comments(text: str) -> list[str]:
    """All comments of a text, if one has a secret in it or names one next to a value; otherwise none."""
    comments = _COMMENT.findall(text) if "#" in text else []
    joined = "\n".join(comments)
    is_secret = _is_suspicious(joined) and (without_secrets(joined) != joined or _has_secret_entry(joined))
    return comments if is_secret else []


def _has_secret_entry(comments: str) -> bool:
    has_entries = _ENTRY_SIGN.search(comments) is not None
    return has_entries and any(_is_secret_pair(*pair) for pair in _COMMENTED_ENTRY.findall(comments))


def _is_secret_pair(name: str, value: str) -> bool:
    if plain_name(name) in _NAMING_FIELDS:
        return is_secret_header(value)
    number = int(value) if value.isdecimal() and len(value) <= MAX_DIGITS else value
    return (is_secret_entry(name) or is_secret_field(name)) and not is_harmless(name, number)


def _without_copies(data: Any, secrets: set[str]) -> Any:
    """Data without what is hidden elsewhere in it: an alias has the value of its anchor."""
    if isinstance(data, Mapping):
        return {name: _without_copies(value, secrets) for name, value in data.items()}
    if isinstance(data, list):
        return [_without_copies(item, secrets) for item in data]
    return REDACTED if _is_scalar(data) and str(data) in secrets else data


def _dumped(text: str, documents: list[Any]) -> str:
    if text.lstrip()[:1] in {"{", "["} and len(documents) == 1:
        return json.dumps(documents[0], ensure_ascii=False)
    return "---\n".join(map(yaml_text, documents))


def _secret_header(data: Mapping[Any, Any]) -> str | None:
    """The name of the header or parameter with a secret that a message is about."""
    return next((data[name] for name in _NAMING if is_secret_header(data.get(name))), None)


def _private_fields(data: Mapping[Any, Any]) -> frozenset[str]:
    """The fields that are secret because of those beside them: of a JSON Web Key, and of one of Envoy's API keys."""
    if "kty" in data:
        return _PRIVATE_OF_JWK
    return frozenset({"key"}) if data.keys() == _OF_API_KEY else frozenset()


def _is_native(name: str, data: Mapping[Any, Any]) -> bool:
    """True for the text of a change to one of Envoy's messages, or of such a message."""
    return (name == "value" and "operation" in data) or (name == "resource" and "version" in data)


def _is_value(name: str, value: Any) -> bool:
    """True for the value of the header, the parameter or the entry that another field names."""
    plain = plain_name(name)
    if plain in _VALUES:
        return _is_scalar(value) or (isinstance(value, Mapping) and {plain_name(str(key)) for key in value} <= _VALUES)
    return plain.endswith("match") and (isinstance(value, Mapping) or _is_scalar(value))


def _is_match_or_source(message: Mapping[Any, Any]) -> bool:
    """True for the match of a header, a source that has the secret itself, and texts without a name."""
    names = {plain_name(str(name)) for name in message}
    is_flat = not names & _OF_REFERENCE and all(map(_is_scalar, message.values()))
    return bool(names) and (names <= _VALUES or not names.isdisjoint(_INLINE) or is_flat)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_scalar, value))


def _is_scalar(value: Any) -> TypeGuard[str | int | float]:
    """True for what can be a secret by itself."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)
