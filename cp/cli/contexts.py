"""Control planes by name, in a file of the user's: what `koguma config` writes and other commands take from it.

The file has the form of kumactl's, so a copy of that is understood. It is written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cp.client.problem import Problem
from cp.model.wording import without_user

_OF_OTHERS: Final = 0o077
_DEEPEST: Final = 50
_TOKENS: Final = "tokens"
_CONTROL_PLANES: Final = "controlPlanes"
_CONTEXTS: Final = "contexts"
_CURRENT: Final = "currentContext"
_REDACTED: Final = "[redacted]"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OF_THE_CLIENT: Final = frozenset({"connection", "content-length", "content-type", "transfer-encoding"})
"""Headers that say what a request is, and not who calls."""

_FILES: Final = ("caCertFile", "clientCertFile", "clientKeyFile", "tokenFile")
_SHOWN: Final = frozenset({"name", "url", "authType", "skipVerify", "key", "controlPlane", "mesh", _CURRENT, *_FILES})
"""The fields of which values are printed. All others may be secrets."""

Data = Mapping[str, Any]
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KnownControlPlane:
    """A control plane of the file, and how one calls it."""

    name: str
    """Its own. That of a context may be another one."""

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    authority_file: str = ""
    verifies: bool = True
    client_certificate: str = ""
    client_key: str = ""
    headers: Headers = field(default=(), repr=False)
    faults: tuple[str, ...] = ()
    """What the file says of it beside that, and cannot be done."""

    def must_be_understood(self) -> None:
        """Raises `Problem` if the file asks for something that is not done, or names no address."""
        if self.faults:
            hint = "Mend it in the file, or add it again with --overwrite."
            raise Problem(f"{config_file()} has {'; '.join(self.faults)}, for {self.name}", hint)
        if not self.url:
            raise Problem(f"{config_file()} has no address for {self.name}", "Add it again with --overwrite.")

    @property
    def has_secrets(self) -> bool:
        """Whether who reads the file could call in its user's name."""
        return bool(self.token or self.headers)

    @property
    def data(self) -> dict[str, Any]:
        """What `koguma config control-planes add` writes of it."""
        server: dict[str, Any] = {"url": self.url}
        server |= {"caCertFile": self.authority_file} if self.authority_file else {}
        server |= {"authType": _TOKENS, "authConf": {"token": self.token}} if self.token else {}
        server |= {"tokenFile": self.token_file} if self.token_file else {}
        return {"name": self.name, "coordinates": {"apiServer": server}}


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The file of one user, of which a change leaves everything as it is that it is not about."""

    data: Data = field(default_factory=dict, repr=False)
    """All that the file says, secrets and what nobody here understands included."""

    @property
    def control_planes(self) -> Mapping[str, KnownControlPlane]:
        """Control planes by the names of their contexts, without contexts whose control plane is not in the file."""
        known, contexts = _by_name(self._items(_CONTROL_PLANES)), _by_name(self._items(_CONTEXTS))
        names = {name: _control_plane_of(context) for name, context in contexts.items()}
        return {name: _known(known[behind]) for name, behind in names.items() if behind in known}

    @property
    def current(self) -> str:
        """The name of the context that is used."""
        return str(self.data.get(_CURRENT) or "")

    def named(self, name: str) -> KnownControlPlane:
        """Raises `Problem` if there is none of that name."""
        control_planes = self.control_planes
        if name not in control_planes and (context := _by_name(self._items(_CONTEXTS)).get(name)) is not None:
            behind = _control_plane_of(context) or "none"
            hint = f"`koguma config control-planes add --overwrite --name {name}` gives it one."
            message = f"the context {name} in {config_file()} is for a control plane {behind}, which is not in it"
            raise Problem(message, hint)
        if name not in control_planes:
            names = ", ".join(control_planes)
            hint = f"There is {names}." if names else "`koguma config control-planes add` makes one."
            raise Problem(f"there is no context {name} in {config_file()}", hint, status=2)
        return control_planes[name]

    def has(self, name: str) -> bool:
        """Whether a context or a control plane has the name."""
        return any(name in _by_name(self._items(key)) for key in (_CONTEXTS, _CONTROL_PLANES))

    def using(self, name: str) -> ClientConfig:
        """With another context in use; empty: none."""
        return ClientConfig({**self.data, _CURRENT: name})

    def adding(self, known: KnownControlPlane) -> ClientConfig:
        """With a control plane and a context of its name in the place of those that had it, and in use."""
        before = _by_name(self._items(_CONTEXTS)).get(known.name, {})
        context = {**before, "name": known.name, "controlPlane": known.name}
        added = ClientConfig({**self.data, _CONTROL_PLANES: _replaced(self._items(_CONTROL_PLANES), known.data)})
        return added._with_contexts(_replaced(self._items(_CONTEXTS), context)).using(known.name)

    def removing(self, name: str) -> ClientConfig:
        """Without a context, and without its control plane unless another context has that too."""
        left = self._with_contexts([context for context in self._items(_CONTEXTS) if not _is_named(context, name)])
        return left.using("") if self.current == name else left

    def _with_contexts(self, contexts: Sequence[Any]) -> ClientConfig:
        """With other contexts, and without the control planes that have lost their last one by that."""
        used, still_used = (set(map(_control_plane_of, items)) for items in (self._items(_CONTEXTS), contexts))
        gone = used - still_used
        kept = [known for known in self._items(_CONTROL_PLANES) if str(_mapping(known).get("name")) not in gone]
        return ClientConfig({**self.data, _CONTROL_PLANES: kept, _CONTEXTS: list(contexts)})

    @property
    def shown(self) -> Any:
        """What the file says, without what is or may be secret in it."""
        lists = {key: list(self._items(key)) for key in (_CONTROL_PLANES, _CONTEXTS)}
        return _without_secrets({**self.data, **lists, _CURRENT: self.current})

    def _items(self, key: str) -> Sequence[Any]:
        return self.data.get(key) or ()


def config_file() -> Path:
    return Path.home() / ".koguma" / "config"


def read_config() -> ClientConfig:
    """What the file says; nothing if there is none. Raises `Problem`."""
    file = config_file()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ClientConfig()
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    return ClientConfig(_parsed(text, file))


def write_config(config: ClientConfig) -> None:
    """Write the file as a whole, for its owner's eyes alone. Raises `Problem`."""
    from cp.cli.private_files import replace_file  # noqa: PLC0415  # few commands write

    file = config_file()
    try:
        replace_file(file, json.dumps(config.data, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None
    except UnicodeError:
        raise Problem(f"{file} cannot be written: a name or a path is no text") from None


def is_open_to_others() -> bool:
    """Whether others than its owner can read the file, in which there may be tokens."""
    try:
        return bool(config_file().stat().st_mode & _OF_OTHERS)
    except OSError:
        return False


def _parsed(text: str, file: Path) -> Data:
    data = _parsed_json(text)
    if data is None:
        data = _parsed_yaml(text, file)
    is_of_control_planes = isinstance(data, Mapping) and all(
        isinstance(data.get(name), list | None) for name in (_CONTROL_PLANES, _CONTEXTS)
    )
    if not is_of_control_planes:
        raise Problem(f"{file} is no file of control planes", "Move it away, and `koguma config` writes a new one.")
    return data  # type: ignore[no-any-return]  # it was looked at


def _parsed_json(text: str) -> Any:
    """None for what is no JSON, and for what is nested too deeply to be looked into: the reader of YAML says where."""
    with suppress(ValueError, RecursionError):
        data = json.loads(text)
        return None if _is_deeper(data, _DEEPEST) else data
    return None


def _is_deeper(value: Any, most: int) -> bool:
    """Whether values are nested in more than so many others."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return most < 0 or any(_is_deeper(item, most - 1) for item in inner)


def _parsed_yaml(text: str, file: Path) -> Any:
    from cp.model.yaml import NotYaml, parse_all  # noqa: PLC0415  # only who copied or edited the file waits for it

    try:
        documents = [document.data for document in parse_all(text)] or [{}]
    except NotYaml as error:
        raise Problem(f"{file}:{error.line} is no YAML: {error.message}") from None
    return documents[0] if len(documents) == 1 else None


def _known(data: Data) -> KnownControlPlane:
    server = _mapping(_mapping(data.get("coordinates")).get("apiServer"))
    uses_tokens = server.get("authType") == _TOKENS
    return KnownControlPlane(
        str(data["name"]),
        str(server.get("url") or ""),
        str(_mapping(server.get("authConf")).get("token") or "") if uses_tokens else "",
        str(server.get("tokenFile") or ""),
        str(server.get("caCertFile") or ""),
        server.get("skipVerify") is not True,
        str(server.get("clientCertFile") or ""),
        str(server.get("clientKeyFile") or ""),
        _headers(server),
        tuple(_faults(server)),
    )


def _faults(server: Data) -> Iterator[str]:
    if server.get("authType") not in {None, "", _TOKENS}:
        yield "an authType that is not supported: Koguma calls control planes with tokens"
    files = ("clientCertFile", "clientKeyFile")
    if given := [name for name in files if server.get(name)]:
        yield from (f"{given[0]} without {name}" for name in files if name not in given)
    headers = server.get("headers")
    if headers and not (isinstance(headers, list) and all(map(_is_header, headers))):
        yield "headers of which one is no `key` with its `value`, or belongs to the request itself"


def _headers(server: Data) -> Headers:
    headers = server.get("headers")
    items = headers if isinstance(headers, list) else ()
    return tuple((item["key"], str(item.get("value", ""))) for item in items if _is_header(item))


def _is_header(item: Any) -> bool:
    key, value = (_mapping(item).get(name, "") for name in ("key", "value"))
    is_name = isinstance(key, str) and _HEADER_NAME.fullmatch(key) and key.lower() not in _OF_THE_CLIENT
    return bool(is_name) and isinstance(value, str) and value.isascii() and (value.isprintable() or not value)


def _control_plane_of(context: Any) -> str:
    return str(_mapping(context).get("controlPlane") or "")


def _replaced(items: Sequence[Any], new: Data) -> list[Any]:
    """Items with another one of a name, in the place of the one that had it, or as the last."""
    replaced = [new if _is_named(item, new["name"]) else item for item in items]
    return replaced if new in replaced else [*replaced, new]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _shown(field) if key in _SHOWN and not isinstance(field, list | Mapping) else _without_secrets(field)
            for key, field in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return _REDACTED if value not in ("", None) else value


def _shown(value: Any) -> Any:
    return without_user(value) if isinstance(value, str) else value


def _is_named(item: Any, name: str) -> bool:
    return isinstance(item, Mapping) and bool(item.get("name")) and str(item["name"]) == name


def _by_name(items: Iterable[Any]) -> Mapping[str, Data]:
    """The items that have names. Of two with the same name, the first is meant."""
    named: dict[str, Data] = {}
    for item in items:
        if isinstance(item, Mapping) and item.get("name"):
            named.setdefault(str(item["name"]), item)
    return named


def _mapping(value: Any) -> Data:
    return value if isinstance(value, Mapping) else {}
