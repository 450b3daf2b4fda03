"""`GET /_export`: everything that is stored, at one revision, in a form that can be applied again.

See record 0080.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.near import not_found
from cp.api.parameters import is_asked
from cp.api.past import named
from cp.api.payload import payload
from cp.api.revisions import contents_at, without_contents
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.model.registration import unlabelled
from cp.model.secret_names import is_trust_record
from cp.resources.initial_policies import initial_policies
from cp.resources.kinds import Kinds
from cp.resources.redaction import has_secrets
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.port import Contents, Stored

_MESH: Final = "Mesh"
_SKIPPED: Final = "skipCreatingInitialPolicies"
_GLOBAL_SECRET: Final = "GlobalSecret"  # noqa: S105  # a kind of resource
_OF_THE_STORE: Final = frozenset({"modificationTime", "kri"})
"""What a control plane says of a resource that nobody writes."""

log = structlog.get_logger()


@dataclass(slots=True)
class Export:
    """What is exported, and what is not."""

    resources: list[dict[str, Any]] = field(default_factory=list)
    hidden: list[Key] = field(default_factory=list)
    """Those that have secrets, which were not asked for."""

    own: list[Key] = field(default_factory=list)
    """Those that the control plane alone writes: nobody could apply them."""


class ExportHandler:
    """The handler. Only administrators may have secrets exported."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        caller, mesh = caller_of(request), request.query_params.get("mesh", "")
        reveals = is_asked(request, "reveal")
        if reveals:
            caller.must_be_administrator("export what is secret")
        contents = await contents_at(request, self._api)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            chosen = [stored for stored in checked(contents.stored, checkpoint) if _is_wanted(stored, mesh, caller)]
            if mesh and not any(stored.document.key.type == _MESH for stored in chosen):
                raise not_found(_MESH, mesh, _meshes(contents, caller))
            exported = _export(chosen, self._api.kinds, checkpoint, caller, reveals=reveals)
            unreadable = [key for key in without_contents(contents) if _is_of(key, mesh) and caller.may_read_key(key)]
            left_out = {"hidden": exported.hidden, "own": exported.own, "unreadable": unreadable}
            named_keys = {reason: list(map(named, keys)) for reason, keys in left_out.items()}
            return {"revision": contents.revision, "resources": exported.resources} | named_keys

        exported = await self._api.works.resources.json(request, answer)
        if reveals:
            exported.headers["cache-control"] = "no-store"
            log.info("api.revealed", resource=f"an export of {mesh or 'everything'}", **caller.traces)
        return exported


def _is_wanted(stored: Stored, mesh: str, caller: ApiCaller) -> bool:
    """What belongs to no mesh may be needed by each, but for the Secrets of the control plane itself."""
    return _is_of(stored.document.key, mesh) and caller.may_read_key(stored.document.key)


def _is_of(key: Key, mesh: str) -> bool:
    """Whether something belongs to a mesh, or may be needed in it. Everything does if none is named."""
    of_mesh = key.name if key.type == _MESH else key.mesh
    is_of_mesh = of_mesh == mesh if of_mesh or key.type == _GLOBAL_SECRET else True
    return not mesh or is_of_mesh


def _meshes(contents: Contents, caller: ApiCaller) -> Iterator[str]:
    keys = (stored.document.key for stored in contents.stored)
    return (key.name for key in keys if key.type == _MESH and caller.may_read_key(key))


def _export(
    chosen: Iterable[Stored], kinds: Kinds, checkpoint: Checkpoint, caller: ApiCaller, *, reveals: bool
) -> Export:
    """Meshes first, as everything else is in one."""
    export = Export()
    known = [stored for stored in chosen if stored.document.key.type in kinds]
    keys = {stored.document.key for stored in known}
    for stored in checked(sorted(known, key=_place), checkpoint):
        kind = kinds[stored.document.key.type]
        if is_trust_record(stored.document.key) or kind.name == ROLLOUT_KIND:
            export.own.append(stored.document.key)
            continue
        if not reveals and has_secrets(kind, stored.document.data):
            export.hidden.append(stored.document.key)
            continue
        written = Stored(unlabelled(stored.document), stored.revision, stored.created, stored.modified)
        data = payload(written, kind, reveals=reveals)
        resource = {name: value for name, value in data.items() if name not in _OF_THE_STORE}
        export.resources.append(resource | _without_default_policies(stored, keys, caller))
    return export


def _place(stored: Stored) -> tuple[bool, Key]:
    return stored.document.key.type != _MESH, stored.document.key


def _without_default_policies(stored: Stored, keys: set[Key], caller: ApiCaller) -> dict[str, Any]:
    """A Mesh of which some default policy was deleted must not get it again where it is applied.

    Of its kind the others are in the export. What the caller may not read is not, whether it is there or not.
    """
    wanted = [policy.key for policy in initial_policies(stored.document)]
    missing = {key.type for key in wanted if key not in keys and caller.may_read_key(key)}
    skipped = stored.document.data.get(_SKIPPED) or []
    return {_SKIPPED: [*skipped, *sorted(missing)]} if missing else {}
