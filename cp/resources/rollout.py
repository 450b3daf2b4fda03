"""Rollout: a change on its way, which some proxies of a mesh are served before all others. See record 0088.

A mesh has one at the most, so it always has the same name. The control plane alone writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from cp.model.document import Document, Source
from cp.model.duration import Duration
from cp.model.lines import Lines
from cp.model.made_here import MADE_HERE
from cp.model.names import Key
from cp.model.numbers import Natural
from cp.model.violation import Violation
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema
from cp.resources.sources import Redacted

RolloutState: TypeAlias = Literal["Going", "Holding", "Paused", "Done", "RolledBack", "Aborted"]
"""`Going`: the proxies of a step are sent what is new. `Holding`: all of them have it, and are watched."""

UNDER_WAY: Final = frozenset({"Going", "Holding", "Paused"})
LATEST: Final = "latest"
ROLLOUT_KIND: Final = "Rollout"
_STEP: Final = "rollout"


class RolledResource(Schema, frozen=True, kw_only=True):
    """A resource that is changed, and the revision at which it was last written; 0: it was not there."""

    type: str
    name: str
    based_on: Natural
    change: Literal["Created", "Updated", "Deleted"]

    def key(self, mesh: str) -> Key:
        return Key(self.type, mesh, self.name)


class RolloutSpec(Schema, frozen=True, kw_only=True):
    """What is changed, in which steps, and how far it has come. Times are written as all moments are."""

    number: Natural
    """The revision of the store on which it is based: no two rollouts of a mesh have the same."""

    author: str
    begun: str
    resources: list[RolledResource]
    content: Redacted | None = None
    """The documents as they are to be stored, in the order of `resources`; none once it has ended.

    Who may read a rollout need not be one who may read what it changes, so nothing of it is shown here.
    """

    steps: list[str]
    hold: Duration
    until: str | None = None
    state: RolloutState
    step: Natural = 0
    """The number of the step that is under way, beginning with 1; 0 before the first."""

    since: str
    """Since when it has been in this state."""

    reached: Natural = 0
    """How many proxies could be chosen when the step began.

    That is the number of those for which it makes a difference and that were in sync, without those that refused
    something and those for which something had failed.
    """

    proxies: list[str]
    """The names of the Dataplanes that are served it, or were at its end."""

    reason: str | None = None
    """Why it ended, or what it waits for."""

    @property
    def is_under_way(self) -> bool:
        return self.state in UNDER_WAY

    @property
    def course(self) -> str:
        """Where it stands, in a few words."""
        if not self.is_under_way:
            return {"Done": "done", "RolledBack": "rolled back", "Aborted": "aborted"}[self.state]
        if not self.step:
            return "about to begin"
        step = f"step {self.step} of {len(self.steps)} ({self.steps[self.step - 1]})"
        return f"{step}, {len(self.proxies)} of {self.reached} proxies, {self.state.lower()}"


def rollout_key(mesh: str) -> Key:
    return Key(ROLLOUT_KIND, mesh, LATEST)


def step_origin(number: int) -> str:
    """The origin of what the control plane writes on the way of a rollout."""
    return f"{_STEP} {number}"


def is_step(key: Key, origin: str) -> bool:
    """Whether a change of a resource says how far a rollout has come.

    Who begins, pauses or ends one comes another way, and what the rollout stores at its end is no Rollout.
    """
    way, _, number = origin.partition(" ")
    return key.type == ROLLOUT_KIND and way == _STEP and number.isdecimal()


def rollout_document(mesh: str, spec: RolloutSpec) -> Document:
    """A rollout as it is stored."""
    head = {"type": ROLLOUT_KIND, "mesh": mesh, "name": LATEST, "labels": dict(MADE_HERE)}
    return Document(rollout_key(mesh), {**head, "spec": _plain(spec)})


def _plain(spec: RolloutSpec) -> dict[str, Any]:
    values = {name: getattr(spec, field) for field, name in zip(spec.__struct_fields__, _names(spec), strict=True)}
    resources = [dict(zip(_names(resource), _values(resource), strict=True)) for resource in spec.resources]
    content = None if spec.content is None else spec.content.reveal()
    plain = {**values, "resources": resources, "content": content, "hold": str(spec.hold)}
    return {name: value for name, value in plain.items() if value is not None}


def _names(schema: Schema) -> tuple[str, ...]:
    return schema.__struct_encode_fields__


def _values(schema: Schema) -> list[Any]:
    return [getattr(schema, field) for field in schema.__struct_fields__]


def content_of(documents: Iterable[Document | None]) -> Redacted:
    """Documents as they stand in a rollout; None for one that is to be deleted."""
    return Redacted(json.dumps([None if document is None else _written(document) for document in documents]))


def _written(document: Document) -> dict[str, Any]:
    source = document.source
    place = {"file": source.file, "lines": source.lines.plain(), "created": source.created}
    return {"data": document.data, "source": place}


def changes_of(mesh: str, spec: RolloutSpec) -> Mapping[Key, Document | None]:
    """What a rollout would write. Nothing once it has ended."""
    documents = [] if spec.content is None else json.loads(spec.content.reveal())
    keys = [resource.key(mesh) for resource in spec.resources]
    return {key: _document(key, written) for key, written in zip(keys, documents, strict=False)}


def proposed_documents(data: Mapping[str, Any]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """The documents that a stored rollout would write. It need not be valid."""
    try:
        written = json.loads((data.get("spec") or {}).get("content") or "[]")
        documents = [item["data"] for item in written if item is not None]
        yield from ((Key(data["type"], data.get("mesh", ""), data["name"]), data) for data in documents)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return


def _document(key: Key, written: Mapping[str, Any] | None) -> Document | None:
    if written is None:
        return None
    place = written["source"]
    return Document(key, written["data"], Source(place["file"], Lines.of_plain(place["lines"]), place["created"]))


def validate(spec: RolloutSpec, meta: DocumentMeta) -> Iterator[Violation]:
    if meta.name != LATEST:
        yield Violation("name", f"must be `{LATEST}`", "the control plane alone writes it")
    if spec.step > len(spec.steps):
        yield Violation("spec.step", f"is above {len(spec.steps)}, the number of steps")
    if spec.content is not None and not _has_documents(spec, spec.content):
        yield Violation("spec.content", "does not have the documents of `resources`")


def _has_documents(spec: RolloutSpec, content: Redacted) -> bool:
    """Whether what is proposed is what this version writes: what is served is worked out with it."""
    try:
        return len(json.loads(content.reveal())) == len(changes_of("", spec)) == len(spec.resources)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


ROLLOUT: Final = Kind(ROLLOUT_KIND, "roll", "rollouts", RolloutSpec, validate)
