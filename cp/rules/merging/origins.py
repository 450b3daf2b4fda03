"""What a merge remembers beside the values: who set each value, and where that is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.model.document import Source
from cp.model.names import Identity, Key
from cp.model.violation import join

Conf: TypeAlias = Mapping[str, Any]

_LAST_STEP: Final = re.compile(r"(\.[^.\[\]]+|\[[0-9]+\])$")
_LEGACY: Final = "conf"
_SINGLE: Final = frozenset({"default", _LEGACY})
_NARROWNESS: Final = MappingProxyType({"mesh": 0, "service": 1, "section": 2, "route": 3})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a conf was written: an item of a list of a policy. Moving the file does not make it another one."""

    policy: Key
    identity: Identity
    """The identity of the policy, by which others refer to it."""

    part: str
    """`to`, `from`, `rules`; `default`, or `conf` of a legacy policy, for one with a single conf."""

    index: int = 0
    level: str = field(default="", compare=False)
    """The level of the item's target: mesh, service, section or route; empty where items have no levels.

    Of a legacy policy: service, inbound or proxy. An item with an old name (`a_ns_svc_8080`) is for a section of some
    services and for others as a whole, and is one item all the same.
    """

    path: str = ""
    """The path of the item in the document."""

    source: Source = field(default_factory=Source, compare=False, repr=False)

    @property
    def item(self) -> str:
        """The item by its name: `to[0]`, or `default`."""
        return self.part if self.part in _SINGLE else f"{self.part}[{self.index}]"

    @property
    def narrowness(self) -> int:
        """How narrow the level is, from 0 for the mesh. Items without levels, and legacy policies, are all of one."""
        return 0 if self.part == _LEGACY else _NARROWNESS.get(self.level, 0)

    @property
    def file(self) -> str:
        return self.source.file

    @property
    def line(self) -> int:
        return self.source.line(self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One conf to be merged."""

    conf: Conf
    origin: Origin
    path: str = ""
    """The path of the conf in the document."""

    item: Conf = field(default_factory=dict)
    """The item that the conf belongs to. Entries of its lists are looked up there for their paths in the document."""

    places: Conf = field(default_factory=dict)
    """The paths in the document of those fields of the conf that are written elsewhere than under `path`."""

    def place(self, conf_path: str) -> str:
        """Where in the document a field of the conf is written: at its own place, or in that of the field around it."""
        outer = conf_path if self.places else ""
        while outer and outer not in self.places:
            outer = _LAST_STEP.sub("", outer) if _LAST_STEP.search(outer) else ""
        return f"{self.places[outer]}{conf_path[len(outer) :]}" if outer else join(self.path, conf_path)


@dataclass(frozen=True, slots=True)
class Setting:
    """What one origin writes to one field. The value None is a null: it removes what weaker origins wrote."""

    origin: Origin
    value: Any
    path: str
    """The path of the value in the document."""

    removed_by: Setting | None = None
    """The null that removed it, if one did."""

    @property
    def line(self) -> int:
        return self.origin.source.line(self.path)


@dataclass(frozen=True, slots=True)
class Removal:
    """A null and the values that it removed, the strongest first; none where no weaker item set any."""

    null: Setting
    removed: tuple[Setting, ...] = ()
    overridden_by: Setting | None = None
    """The value that holds, if it is stronger than the null."""


@dataclass(frozen=True, slots=True)
class MergedField:
    """One field of a merged conf: the setting that holds, and those that lost, the strongest first.

    The winner is a null where a null removed every value.
    """

    path: str
    winner: Setting
    losers: tuple[Setting, ...] = ()
    removals: tuple[Removal, ...] = ()
    """Every null that was written to the field, the strongest first."""

    @property
    def value(self) -> Any:
        return self.winner.value


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """One entry of a list that is merged by key, with the origins of all entries with this key, the weakest first."""

    key: Any
    value: Conf
    path: str
    origins: tuple[Origin, ...]
    setters: frozenset[Origin] = frozenset()
    """The origins of which some value in `default` still holds."""

    @property
    def owner(self) -> Origin:
        """The strongest origin, to which the entry belongs."""
        return self.origins[-1]
