"""`Kind`: the names, the schema, the validation and the merging of one type of resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cp.model.source import GLOBAL, INLINED, NAME_LABEL
from cp.model.violation import Violation


@dataclass(frozen=True, slots=True)
class DocumentMeta:
    """What a validator needs of a document beside its spec."""

    type: str
    mesh: str
    name: str
    labels: Mapping[str, str]

    @property
    def display_name(self) -> str:
        """The name by which policies refer to it, whatever name it is stored under."""
        return self.labels.get(NAME_LABEL, self.name)

    @property
    def role(self) -> str:
        """The role of a policy. On Universal it is `system` unless a label says otherwise."""
        return self.labels.get("kuma.io/policy-role", "system")


def _unchanged(spec: dict[str, Any]) -> dict[str, Any]:
    return spec


def _default_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    conf: Mapping[str, Any] = item.get("default") or {}
    return conf


@dataclass(frozen=True, slots=True)
class PolicyShape:
    """The lists of a policy's spec and how their confs merge. Merging gets this and knows no policy by name."""

    to: bool = False
    from_: bool = False
    rules: bool = False
    single: bool = False
    """One `default` for the whole proxy, in place of lists."""

    from_as_rules: bool = False
    """Whether `from` items count as inbound rules without matches."""

    side_by_side: bool = False
    """Whether inbound rules are not merged: each holds with its own conf, beside those of all other policies."""

    conf_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _default_of
    """The conf of one item of `to`, `from` or `rules`."""

    finish: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """The last step, from a merged conf to the one that is used."""

    merge_by_key: Mapping[str, str] = field(default_factory=dict)
    """Fields that are lists of items with a key and a `default`, merged item by item: field to name of the key."""

    group_by: str | None = None
    """A field that is a list of texts, for each of which confs are merged separately."""


ENVELOPE: Final = frozenset({"type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri"})
"""The fields of every document beside those of its kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of resource: its names, its schema, and what must hold beyond the schema."""

    name: str
    short: str
    plural: str
    schema: type[Any]
    validate: Callable[[Any, DocumentMeta], Iterator[Violation]]
    """Every fault of a decoded spec, with paths from the top of the document."""

    deprecations: Callable[[Any, DocumentMeta], Iterator[Violation]] = lambda _spec, _meta: iter(())
    """Warnings about what still works and should be written in another way."""

    complete: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """The spec with the defaults that are part of its schema filled in. Keeps explicit nulls."""

    policy: PolicyShape | None = None

    needs_spec: bool = False
    """Whether a document must have a `spec`, which may be empty."""

    customary: tuple[tuple[str, str], ...] = ()
    """Patterns and replacements that turn the path of a field into the path that programs know it by.

    They are for fields for which Kuma's API answers with a path that is not in the document.
    """

    @property
    def is_global(self) -> bool:
        return self.name in GLOBAL

    @property
    def is_inlined(self) -> bool:
        """Whether its fields stand beside `type` and `name`, and not under `spec`."""
        return self.name in INLINED

    @property
    def root(self) -> str:
        """The path at which its spec stands in a document."""
        return "" if self.is_inlined else "spec"


class Kinds(Mapping[str, Kind]):
    """Every known kind by its name."""

    def __init__(self, *kinds: Kind) -> None:
        self._by_name: Final = {kind.name: kind for kind in kinds}
        clashes = len(kinds) - len(self._by_name)
        if clashes:
            raise ValueError("two kinds share a name")

    def __getitem__(self, name: str) -> Kind:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, text: str) -> Kind | None:
        """A kind by any of its names, as typed on a command line or in a URL."""
        spelling = text.lower().replace("-", "")
        for kind in self._by_name.values():
            if spelling in {kind.name.lower(), kind.plural.replace("-", ""), kind.short}:
                return kind
        return None
