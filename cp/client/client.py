"""A client of the control plane's HTTP API. Every failure is a `Problem` that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from cp.client.api_calls import LARGEST, ApiCalls, Conversation
from cp.client.credentials import NO_CREDENTIALS, Credentials
from cp.client.failures import NoControlPlane
from cp.client.http import HttpAnswer

T = TypeVar("T")

CREATED: Final = 201
PRODUCTS: Final = frozenset({"Koguma", "Kuma", "Kong Mesh"})
"""The programs with this HTTP API, by the name that each gives itself."""

_REVISION: Final = "koguma-revision"
_OWNER: Final = "koguma-owner"
_SILENCE: Final = 30.0
"""Seconds for which a feed may be silent. A control plane sends a comment twice in them."""

_EVENT: Final = b"event:"
_PAGE: Final = "1000"
_MOST_PAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of a write."""

    is_new: bool
    warnings: tuple[str, ...]
    revision: int | None
    """The revision that the write made; None where it changed nothing."""

    preflight: Mapping[str, Any] | None = None
    """The answer of an Envoy to the write; None if none was asked."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome of a write of many resources."""

    outcomes: Sequence[Mapping[str, Any]]
    revision: int | None
    """The revision that the write made; None where it changed nothing."""

    preflight: Mapping[str, Any] | None = None
    """The answer of an Envoy to the write; None if none was asked."""


class Client:
    """The HTTP API of a control plane, or of several on one store, of which it asks the first that can be reached."""

    def __init__(self, address: str, timeout: float = 60.0, credentials: Credentials = NO_CREDENTIALS) -> None:
        """The address may be several, separated by commas."""
        self._calls = ApiCalls(address, timeout, credentials)

    @property
    def address(self) -> str:
        """The one that is asked next."""
        return self._calls.address

    @property
    def hosts(self) -> list[str]:
        """Where control planes are."""
        return self._calls.hosts

    def must_be_control_plane(self) -> None:
        """Raise `NoControlPlane` if another program answers at the address."""
        path = "/"
        about = self._calls.object_of(path, self._calls.send("GET", path), ("product", "version"))
        if about["product"] not in PRODUCTS:
            raise NoControlPlane(self.address, path, "is answered by another program")

    def get(self, path: str, **parameters: str | list[str]) -> Any:
        return self._calls.data_of(path, self._calls.send("GET", path, params=parameters))

    def answer(self, path: str, fields: Collection[str], **parameters: str | list[str]) -> Mapping[str, Any]:
        """An answer that has these fields, at the least."""
        return self._calls.object_of(path, self._calls.send("GET", path, params=parameters), fields)

    def all_pages(self, path: str, **parameters: str) -> dict[str, Any]:
        """A whole list, read page by page."""
        items: list[dict[str, Any]] = []
        offsets: dict[str, None] = {}
        left, parameters = LARGEST, {**parameters, "size": _PAGE}
        for _ in range(_MOST_PAGES):
            answer = self._calls.send("GET", path, params=parameters, largest=left)
            left -= len(answer.content)
            page = self._calls.data_of(path, answer)
            items += self._items(path, page)
            if not page.get("next"):
                return {**page, "total": len(items), "items": items, "next": None}
            offset = _offset(page["next"])
            if not offset or offset in offsets:
                raise NoControlPlane(self.address, path, "has a page whose next one is none, or one before it")
            offsets[offset] = None
            parameters = {**parameters, "offset": offset}
        raise NoControlPlane(self.address, path, f"has more than {_MOST_PAGES} pages")

    def put(self, path: str, text: str, location: str = "", owner: str = "") -> WriteResult:
        """Write a resource as YAML.

        The location (file and line) is what the control plane names in its findings. The owner is a run of a proxy:
        the resource is removed when that run has ended.
        """
        headers = {"content-type": "application/yaml"} | ({"koguma-source": _ascii(location)} if location else {})
        headers |= {_OWNER: owner} if owner else {}
        answer = self._calls.send("PUT", path, content=text.encode(), headers=headers)
        warnings = self._calls.object_of(path, answer).get("warnings", ())
        return WriteResult(answer.status_code == CREATED, tuple(warnings), _revision(answer))

    def put_data(self, path: str, data: Any) -> Mapping[str, Any]:
        """Ask for something that is no resource. Returns what came of it."""
        return self._calls.object_of(path, self._calls.send("PUT", path, content=json.dumps(data).encode()))

    def roll_out(
        self,
        resources: Sequence[tuple[str, str]],
        order: Mapping[str, str],
        *,
        managed_by: str = "",
        prune: bool = False,
        preflight: bool | None = None,
    ) -> Mapping[str, Any]:
        """Have resources rolled out. Returns their outcomes and, unless nothing is to change, the rollout."""
        body = {"resources": _pieces(resources), "managedBy": managed_by, "prune": prune, "rollout": order}
        parameters = _of_preflight(is_asked=preflight)
        answer = self._calls.send("POST", "/_apply", json.dumps(body).encode(), params=parameters, is_repeatable=False)
        return self._calls.object_of("/_apply", answer, ["resources"])

    def steer_rollout(self, mesh: str, action: str, number: int) -> Mapping[str, Any]:
        """Pause, continue or abort the rollout of a mesh, if it is still the one with this number."""
        path, content = f"/meshes/{mesh}/_rollout", json.dumps({"action": action, "number": number}).encode()
        answer = self._calls.send("POST", path, content, is_repeatable=False)
        return self._calls.object_of(path, answer, ["course", "number"])

    def apply(  # what can be asked of a write
        self,
        resources: Sequence[tuple[str, str]],
        *,
        dry_run: bool = False,
        managed_by: str = "",
        prune: bool = False,
        preflight: bool | None = None,
    ) -> ApplyResult:
        """Write resources in one request, each as YAML with its location.

        A dry run writes nothing and returns the outcomes that a write would have. `prune` deletes what is managed by
        the same name and is not among them. Warnings about all of them stand with the first.
        """
        content = _pushed(resources, managed_by, prune=prune)
        parameters = ({"dryRun": "true"} if dry_run else {}) | _of_preflight(is_asked=preflight)
        answer = self._calls.send("POST", "/_apply", content, params=parameters, is_repeatable=dry_run)
        data = self._calls.object_of("/_apply", answer, ["resources"])
        outcomes, warnings = list(data["resources"]), data.get("warnings", ())
        if outcomes and warnings:
            outcomes[0] = {**outcomes[0], "warnings": [*outcomes[0].get("warnings", ()), *warnings]}
        return ApplyResult(outcomes, _revision(answer), data.get("preflight"))

    def plan(
        self, resources: Sequence[tuple[str, str]], *, managed_by: str = "", prune: bool = False, **further: str
    ) -> Mapping[str, Any]:
        """What it would do to write resources, as `apply` takes them: their outcomes, the plan, and what is asked for
        by further parameters."""
        content = _pushed(resources, managed_by, prune=prune)
        parameters = {"dryRun": "true", "plan": "true", **further}
        answer = self._calls.send("POST", "/_apply", content, params=parameters)
        return self._calls.object_of("/_apply", answer, ["resources", "plan"])

    def rollback(
        self, revision: int, choice: Mapping[str, Any], *, dry_run: bool = False, preflight: bool | None = None
    ) -> tuple[Mapping[str, Any], int | None]:
        """Bring the resources of a choice back. Returns what became of them, and the revision that this made."""
        content = json.dumps({"revision": revision, **choice}).encode()
        parameters = ({"dryRun": "true"} if dry_run else {}) | _of_preflight(is_asked=preflight)
        answer = self._calls.send("POST", "/_rollback", content, params=parameters, is_repeatable=dry_run)
        return self._calls.object_of("/_rollback", answer, ["resources", "leftOut", "rolledBackTo"]), _revision(answer)

    def delete(self, path: str, *, preflight: bool | None = None, **parameters: str) -> WriteResult:
        """Delete a resource."""
        answer = self._calls.send(
            "DELETE", path, params=parameters | _of_preflight(is_asked=preflight), is_repeatable=False
        )
        data = self._calls.object_of(path, answer) if answer.content else {}
        warnings = tuple(data.get("warnings", ()))
        preflight = data.get("preflight")
        return WriteResult(is_new=False, warnings=warnings, revision=_revision(answer), preflight=preflight)

    def take_away(self, path: str, owner: str) -> None:
        """Delete the Dataplane that a run of a proxy registered, unless it has another owner by now."""
        self._calls.send("DELETE", path, headers={_OWNER: owner})

    def readiness(self, path: str, owner: str, *, ready: bool) -> int | None:
        """Say whether callers may call a proxy. Returns the revision that this made."""
        return _revision(
            self._calls.send("POST", f"{path}/_readiness", json.dumps({"owner": owner, "ready": ready}).encode())
        )

    def lines(self, path: str, data: Any, seconds: float) -> Iterator[Any]:
        """The answer to a question, line by line. The control plane may take so many seconds for it."""
        with self._calls.lines("POST", path, json.dumps(data).encode(), seconds) as lines:
            for line in filter(None, map(bytes.strip, lines)):
                yield self._calls.object_of_line(path, line)

    def converse(self, talk: Callable[[Conversation], T]) -> T:
        """What comes of requests on one connection, to the first control plane that can be reached."""
        return self._calls.converse(talk)

    def events(self, path: str) -> Iterator[str]:
        """The names of events as a control plane sends them, until it ends the answer."""
        with self._calls.lines("GET", path, None, _SILENCE) as lines:
            for line in lines:
                if line.startswith(_EVENT):
                    yield line.removeprefix(_EVENT).decode(errors="replace").strip()

    def post(self, path: str, data: Any, **headers: str) -> str:
        return self._calls.send("POST", path, content=json.dumps(data).encode(), headers=headers).text

    def _items(self, path: str, page: Any) -> list[dict[str, Any]]:
        items = page.get("items") if isinstance(page, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise NoControlPlane(self.address, path, "is answered with something else than a list of resources")
        return items


def _offset(link: Any) -> str:
    """Where the next page begins; empty if a link does not say it."""
    try:
        return parse_qs(urlsplit(str(link)).query).get("offset", [""])[0]
    except ValueError:
        return ""


def _pushed(resources: Sequence[tuple[str, str]], managed_by: str, *, prune: bool) -> bytes:
    """The body of what is written together."""
    name = {"managedBy": managed_by} if managed_by else {}
    return json.dumps({"resources": _pieces(resources), **name, **({"prune": True} if prune else {})}).encode()


def _pieces(resources: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"text": text, "place": location} for text, location in resources]


def _of_preflight(*, is_asked: bool | None) -> dict[str, str]:
    """What a request says of preflight. If it says nothing the control plane does as it is set up."""
    return {} if is_asked is None else {"preflight": "true" if is_asked else "false"}


def _revision(answer: HttpAnswer) -> int | None:
    text = answer.headers.get(_REVISION, "")
    return int(text) if text.isdecimal() else None


def _ascii(location: str) -> str:
    return location.encode("ascii", "backslashreplace").decode()
