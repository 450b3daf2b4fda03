"""`Kind`: the names, the schema, the validation and the merging of one type of resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cp.model.source import GLOBAL, INLINED, NAME_LABEL
from cp.model.violation import Violation
from cp.resources.limits import DEFAULT_BUDGET, Budget


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

    fields_of_clients: tuple[str, ...] = ()
    """The fields that can differ between clients, field by field: all rules that a client meets are merged.

    Without such fields, of several rules that a client meets the most specific holds alone.
    """

    conf_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _default_of
    """The conf of one item of `to`, `from` or `rules`."""

    finish: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """The last step, from a merged conf to the one that is used."""

    merge_by_key: Mapping[str, str] = field(default_factory=dict)
    """Fields that are lists of items with a key and a `default`, merged item by item: field to name of the key."""

    group_by: str | None = None
    """A field that is a list of texts, for each of which confs are merged separately."""


class LegacySide(StrEnum):
    """What a legacy policy is about."""

    OUTBOUND = "outbound"
    """The services that a proxy calls: `sources` choose proxies, and `destinations` services."""

    INBOUND = "inbound"
    """Those who call a proxy: `destinations` choose its inbounds, and `sources` clients."""

    PROXY = "proxy"
    """The proxies that `selectors` choose."""


@dataclass(frozen=True, slots=True)
class LegacyConf:
    """What a legacy policy comes to, written as the conf of a policy with a targetRef."""

    kind: str
    """The kind of that policy."""

    conf: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    """For fields of the conf, by their paths, the paths in the document that say so."""


@dataclass(frozen=True, slots=True)
class LegacyShape:
    """How a kind of legacy policies selects, and what its policies come to.

    Of all policies of a kind that fit, one holds: the one with the most specific selectors, then the newest. Nothing
    is merged.
    """

    side: LegacySide
    confs: Callable[[Mapping[str, Any], Mapping[str, Any], str], Iterable[LegacyConf]]
    """From the data of a policy, what it reads of its Mesh, and the protocol of the service or inbound."""

    reads: str = ""
    """The field of the Mesh to which its policies refer; `confs` is given no other."""

    holds_alone: bool = True
    """Whether one policy holds, or all that fit an inbound, each for its clients and the most specific first."""


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
    """The spec with the defaults that are part of its schema filled in.

    Keeps explicit nulls where confs are merged: there they remove what a weaker policy sets.
    """

    policy: PolicyShape | None = None
    legacy: LegacyShape | None = None
    """For policies of Kuma's first versions that come to confs of policies with a targetRef, and lie under those.

    Not so a VirtualOutbound, which comes to names, nor a MeshGatewayRoute, which comes to routes of listeners.
    """

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
    """Every known kind by its name, and how documents are to be understood where settings say so."""

    def __init__(self, *kinds: Kind, derives_reachability: bool = False, budget: Budget = DEFAULT_BUDGET) -> None:
        self.derives_reachability: Final = derives_reachability
        """Whether permissions say what a proxy reaches at virtual addresses."""

        self.budget: Final = budget
        """The bytes that the destinations of proxies may take."""

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
