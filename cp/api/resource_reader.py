"""Resources over HTTP as Kuma has them: GET of one and of lists, as they are now or were at a revision."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import ApiError
from cp.api.kuma_only import KUMA_ONLY, OVERVIEW
from cp.api.near import not_found
from cp.api.paging import Page, page, place_of, wanted
from cp.api.parameters import is_asked
from cp.api.past import named
from cp.api.payload import etag, payload, universal
from cp.api.plurals import kind_of_plural
from cp.api.revisions import AT, contents_at, must_be_known, without_contents
from cp.api.work import is_small
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.resources.kinds import Kind
from cp.resources.redaction import holds_secrets
from cp.store.port import Contents, Store, Stored

_MESH: Final = "Mesh"

log = structlog.get_logger()


class ResourceReader:
    """The handlers of what is read, and what is stored of a name for those who write it."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._store: Store = collaborators.store

    async def get(self, request: Request) -> Response:
        if request.path_params["plural"] in KUMA_ONLY:
            return await self._of_kuma_only(request)
        kind, key = self.named(request)
        reveals = _reveals(request, kind)
        is_past = AT in request.query_params
        stored = await (self._existing_at(request, key) if is_past else self.existing(request, key))
        form, data = request.query_params.get("format", ""), stored.document.data
        answer = await self._api.works.resources.json(
            request, lambda _: _shown(payload(stored, kind, form, reveals=reveals), is_past), is_small=is_small(data)
        )
        if not is_past:  # what is written is based on what is there now
            answer.headers["etag"] = etag(stored.revision)
        if reveals:
            answer.headers["cache-control"] = "no-store"
            log.info("api.revealed", resource=str(key), **caller_of(request).traces)
        return answer

    async def listing(self, request: Request) -> Response:
        """The resources of one mesh, of a global kind, or of a kind in all meshes."""
        if request.path_params["plural"] in KUMA_ONLY:
            return await self._of_kuma_only(request)
        kind = self._kind(request)
        mesh, is_past = request.path_params.get("mesh"), AT in request.query_params
        contents = await (self._readable_at if is_past else self.readable)(request, mesh)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            part = page_of(contents, kind, mesh, request, checkpoint)
            items = [_shown(universal(stored, kind), is_past) for stored in checked(part.items, checkpoint)]
            return part.as_data(request.url, items) | (_untold(contents, kind, mesh, request) if is_past else {})

        return await self._api.works.resources.json(request, answer)

    async def _of_kuma_only(self, request: Request) -> Response:
        """There is no resource of a type that Koguma has not: its lists are empty."""
        plural, mesh = request.path_params["plural"], request.path_params.get("mesh")
        name = request.path_params.get("name", OVERVIEW)
        if mesh is not None:
            await self._must_have_mesh(request, mesh)
        if name != OVERVIEW:
            raise not_found(KUMA_ONLY[plural], name, (), "Koguma does not have this type of Kuma's")
        return JSONResponse({"total": 0, "items": [], "next": None})

    async def readable(self, request: Request, mesh: str | None) -> Contents:
        """Everything that is stored, or an answer that says that there is no such mesh."""
        if mesh is not None:
            await self._must_have_mesh(request, mesh)
        return await self._api.contents(request)

    async def _readable_at(self, request: Request, mesh: str | None) -> Contents:
        """Everything that was stored at a revision, or an answer that says that there was no such mesh."""
        contents = await contents_at(request, self._api)
        meshes = await self._api.works.resources.do(request, lambda _: _names_of(contents, _MESH, ""))
        if mesh is not None and mesh not in meshes:
            must_be_known(contents, Key(_MESH, "", mesh))
            raise not_found("Mesh", mesh, meshes)
        return contents

    async def _existing_at(self, request: Request, key: Key) -> Stored:
        contents = await self._readable_at(request, key.mesh or None)

        def search(_: Checkpoint) -> Stored:
            for stored in contents.stored:
                if stored.document.key == key:
                    return stored
            must_be_known(contents, key)
            raise not_found(key.type, key.name, _names_of(contents, key.type, key.mesh))

        return await self._api.works.resources.do(request, search)

    async def existing(self, request: Request, key: Key) -> Stored:
        """What is stored of a name, or an answer with what is near."""
        stored = await self.stored_or_none(request, key)
        if stored is None:
            raise not_found(key.type, key.name, await self._names(request, key.type, key.mesh))
        return stored

    async def stored_or_none(self, request: Request, key: Key) -> Stored | None:
        """What is stored of a name, or an answer that says that there is no such mesh. It is read at one time."""
        mesh = Key(_MESH, "", key.mesh)
        stored_by_key = await self._store.find(key, mesh)
        if key.mesh and mesh not in stored_by_key:
            raise await self._no_mesh(request, key.mesh)
        return stored_by_key.get(key)

    async def _must_have_mesh(self, request: Request, mesh: str) -> None:
        if await self._store.get(Key(_MESH, "", mesh)) is None:
            raise await self._no_mesh(request, mesh)

    async def _no_mesh(self, request: Request, mesh: str) -> ApiError:
        return not_found("Mesh", mesh, await self._names(request, _MESH, ""), f"create it with PUT /meshes/{mesh}")

    async def _names(self, request: Request, type_: str, mesh: str) -> Iterator[str]:
        contents = await self._api.contents(request)
        keys = (stored.document.key for stored in contents.stored)
        return (key.name for key in keys if key.type == type_ and key.mesh == mesh)

    def _kind(self, request: Request) -> Kind:
        """The kind in the URL, by its plural name."""
        plural = request.path_params["plural"]
        in_mesh = "mesh" in request.path_params
        if plural in KUMA_ONLY:
            raise not_found("type of resource", plural, (), f"Koguma does not have Kuma's {KUMA_ONLY[plural]}")
        kind = kind_of_plural(plural, self._api.kinds)
        if kind is None or (in_mesh and kind.is_global):
            known = (known.plural for known in self._api.kinds.values() if not (in_mesh and known.is_global))
            raise not_found("type of resource", plural, known)
        return kind

    def named(self, request: Request) -> tuple[Kind, Key]:
        """The resource that the URL names."""
        kind, mesh = self._kind(request), request.path_params.get("mesh", "")
        if not kind.is_global and not mesh:
            raise not_found("path", request.url.path, (), f"write /meshes/MESH/{kind.plural}/NAME")
        return kind, Key(kind.name, mesh, request.path_params["name"])


def _names_of(contents: Contents, type_: str, mesh: str) -> list[str]:
    keys = (stored.document.key for stored in contents.stored)
    return [key.name for key in keys if key.type == type_ and key.mesh == mesh]


def _shown(data: dict[str, Any], is_past: bool) -> dict[str, Any]:  # noqa: FBT001  # the only question there is
    """A resource as it was has no date of its last change: the history has it."""
    return {name: value for name, value in data.items() if not (is_past and name == "modificationTime")}


def page_of(contents: Contents, kind: Kind, mesh: str | None, request: Request, checkpoint: Checkpoint) -> Page[Stored]:
    """One page of the resources of a kind, in a mesh or in all: those that the caller may read."""
    accepts, caller = wanted(request.query_params), caller_of(request)
    is_readable = cache(lambda mesh_or_name: caller.may_read(kind.name, mesh_or_name))
    accepted = [
        stored
        for stored in checked(contents.stored, checkpoint)
        if stored.document.key.type == kind.name
        and mesh in {None, stored.document.key.mesh}
        and is_readable(stored.document.key.name if kind.name == _MESH else stored.document.key.mesh)
        and accepts(stored)
    ]
    return page(accepted, request.query_params, place_of)


def _untold(contents: Contents, kind: Kind, mesh: str | None, request: Request) -> dict[str, Any]:
    """What is left out of a list of the past because nobody knows how it was."""
    caller = caller_of(request)
    of_kind = (key for key in without_contents(contents) if key.type == kind.name and mesh in {None, key.mesh})
    keys = [named(key) for key in of_kind if caller.may_read_key(key)]
    return {"unreadable": keys} if keys else {}


def _reveals(request: Request, kind: Kind) -> bool:
    """Whether secrets are to be shown, which only administrators may ask for."""
    if not is_asked(request, "reveal") or not holds_secrets(kind):
        return False
    caller_of(request).must_be_administrator(f"read what is secret in a {kind.name}")
    return True
