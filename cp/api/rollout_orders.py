"""What `POST /_apply` makes of resources that are to be rolled out: a rollout in place of the resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from cp.api.errors import bad_request, invalid
from cp.api.pruning import Leftovers
from cp.api.writes import conflict, is_same
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.kinds import Kind, Kinds
from cp.resources.parse import finding
from cp.resources.rollout import RolledResource, RolloutSpec, content_of, rollout_document, rollout_key
from cp.resources.schema import decode
from cp.serving.rollouts.conditions import limit_of
from cp.serving.rollouts.steps import steps_of
from cp.store.port import ABSENT, Put, Stored

_TITLE: Final = "Could not begin a rollout"
_MOST: Final = 200
_LARGEST: Final = 1024 * 1024
_LONGEST_HOLD: Final = Duration.parse("24h")


class RolloutOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How somebody wants resources to be rolled out, as he writes it."""

    steps: str
    hold: str = "30s"
    until: str = ""


@dataclass(frozen=True, slots=True)
class RolloutTerms:
    """What a rollout keeps to: an order that has been read and found to be possible."""

    steps: tuple[str, ...]
    hold: Duration
    until: str | None

    @classmethod
    def of(cls, order: RolloutOrder) -> RolloutTerms:
        """Raises `ApiError`."""
        try:
            steps = tuple(map(str, steps_of(order.steps)))
        except ValueError as error:
            raise bad_request("rollout.steps", str(error), title=_TITLE) from None
        try:
            if order.until:
                limit_of(order.until)
        except ValueError as error:
            raise bad_request("rollout.until", str(error), title=_TITLE) from None
        return cls(steps, _hold(order.hold), order.until.strip() or None)


def _hold(text: str) -> Duration:
    try:
        hold = Duration.parse(text)
    except ValueError as error:
        raise bad_request("rollout.hold", str(error), title=_TITLE) from None
    if not Duration() < hold <= _LONGEST_HOLD:
        raise bad_request("rollout.hold", f"`{text}` is not between 0s and {_LONGEST_HOLD}", title=_TITLE)
    return hold


@dataclass(frozen=True, slots=True)
class RolloutScope:
    """What is to be rolled out, and what is there."""

    documents: Sequence[Document]
    stored_by_key: Mapping[Key, Stored]
    left: Leftovers
    kinds: Kinds
    author: str
    now: datetime

    @property
    def changed(self) -> list[Document]:
        return [document for document in self.documents if not is_same(self.stored_by_key.get(document.key), document)]

    @property
    def number(self) -> int:
        """Higher than those of all rollouts that are stored: each was stored after what it was based on."""
        return max((stored.revision for stored in self.stored_by_key.values()), default=0)


def rollout_put(terms: RolloutTerms, scope: RolloutScope) -> Put | None:
    """What begins a rollout; None where nothing would change. Raises `ApiError` for what cannot be rolled out."""
    keys = [*(document.key for document in scope.changed), *scope.left.keys]
    if not keys:
        return None
    gone = [stored.document for stored in scope.left.deleted]
    if faults := [fault for document in (*scope.changed, *gone) if (fault := _fault(document, scope.kinds))]:
        raise invalid(_TITLE, faults)
    mesh = _mesh_of(keys)
    stored = scope.stored_by_key.get(rollout_key(mesh))
    if stored is not None:
        _must_have_ended(mesh, stored.document)
    spec = _spec(terms, scope, keys)
    _must_be_small(spec)
    return Put(rollout_document(mesh, spec), ABSENT if stored is None else stored.revision)


def _spec(terms: RolloutTerms, scope: RolloutScope, keys: Sequence[Key]) -> RolloutSpec:
    proposed = [_dated(document, scope.stored_by_key.get(document.key), scope.now) for document in scope.changed]
    return RolloutSpec(
        number=scope.number,
        author=scope.author,
        begun=timestamp(scope.now),
        resources=[_rolled(key, scope.stored_by_key, scope.left) for key in keys],
        content=content_of([*proposed, *(None for _ in scope.left.keys)]),
        steps=list(terms.steps),
        hold=terms.hold,
        until=terms.until,
        state="Going",
        since=timestamp(scope.now),
        proxies=[],
    )


def _fault(document: Document, kinds: Kinds) -> Finding | None:
    """Why a resource is not one that some proxies can have before others; None if it is."""
    kind = kinds[document.key.type]
    if not (reason := reason_against(kind)):
        return None
    hint = "apply it without --rollout"
    return finding(document, "invalid", Severity.ERROR, Violation("type", f"cannot be rolled out: {reason}", hint))


def reason_against(kind: Kind) -> str:
    """Why resources of a kind cannot be rolled out; empty if they can."""
    if kind.policy is None and kind.legacy is None:
        return f"a {kind.name} is no policy, so it is about all proxies at once"
    return ""


def _mesh_of(keys: Sequence[Key]) -> str:
    meshes = sorted({key.mesh for key in keys})
    if len(meshes) > 1:
        hint = "roll out those of each mesh by themselves"
        raise bad_request("resources", f"they are in several meshes: {', '.join(meshes)}", hint, _TITLE)
    return meshes[0]


def _must_have_ended(mesh: str, rollout: Document) -> None:
    """Check that no rollout is under way in a mesh. Raises `ApiError`."""
    spec = decode(RolloutSpec, rollout.data["spec"])
    if spec.is_under_way:
        hint = "wait for its end, or end it with `koguma rollout abort`"
        text = f"rollout {spec.number} of mesh {mesh} is under way, begun by {spec.author} at {spec.begun}; {hint}"
        raise conflict(text)


def _dated(document: Document, stored: Stored | None, now: datetime) -> Document:
    """With the date that it will have: of legacy policies the newest holds."""
    made = timestamp(stored.created) if stored is not None else document.source.created or timestamp(now)
    return replace(document, source=replace(document.source, created=made))


def _rolled(key: Key, stored_by_key: Mapping[Key, Stored], left: Leftovers) -> RolledResource:
    stored = stored_by_key.get(key)
    if stored is None:
        return RolledResource(type=key.type, name=key.name, based_on=ABSENT, change="Created")
    is_deleted = key in left.keys
    return RolledResource(
        type=key.type, name=key.name, based_on=stored.revision, change="Deleted" if is_deleted else "Updated"
    )


def _must_be_small(spec: RolloutSpec) -> None:
    size = len(spec.content.reveal()) if spec.content is not None else 0
    if len(spec.resources) > _MOST or size > _LARGEST:
        text = f"{len(spec.resources)} resources with {size} characters are too many to roll out"
        hint = f"{_MOST} resources with {_LARGEST} characters are the most; roll out a part of them first"
        raise bad_request("resources", text, hint, _TITLE)
