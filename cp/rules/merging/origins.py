"""Who said what, and where: what a merge remembers beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.model.document import Source
from cp.model.names import Identity, Key

Conf: TypeAlias = Mapping[str, Any]

_REACH: Final = MappingProxyType({"mesh": 0, "service": 1, "section": 2, "route": 3})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a conf was written: an item of a list of a policy. Moving the file does not make it another one."""

    policy: Key
    identity: Identity
    """Of the policy, by which others refer to it."""

    part: str
    """`to`, `from`, `rules`, or `default` for a policy with one conf."""

    index: int = 0
    level: str = ""
    """How far the item reaches: mesh, service, section or route; empty where there are no levels."""

    path: str = ""
    """Where the item stands in the document."""

    source: Source = field(default_factory=Source, compare=False, repr=False)

    @property
    def reach(self) -> int:
        """How narrow the level is: the higher, the narrower."""
        return _REACH.get(self.level, 0)

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
    """Where the conf stands in the document."""

    item: Conf = field(default_factory=dict)
    """The item that it belongs to, by which entries of its lists are found in the document."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What one origin says of one field. The value None is a null: it takes away what others say."""

    origin: Origin
    value: Any
    path: str
    """Where it stands in the document."""

    removed_by: Setting | None = None
    """The null that took it away, if one did."""

    @property
    def line(self) -> int:
        return self.origin.source.line(self.path)


@dataclass(frozen=True, slots=True)
class Removal:
    """A null, and the values that it took away, the strongest first; none where no weaker item set any."""

    null: Setting
    removed: tuple[Setting, ...] = ()
    overridden_by: Setting | None = None
    """The value that holds, if it is stronger than the null."""


@dataclass(frozen=True, slots=True)
class MergedField:
    """One field of a merged conf: who set it, and who lost, the strongest first.

    The winner is a null where a null took away every value.
    """

    path: str
    winner: Setting
    losers: tuple[Setting, ...] = ()
    removals: tuple[Removal, ...] = ()
    """Every null that was written for it, the strongest first."""

    @property
    def value(self) -> Any:
        return self.winner.value


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """One entry of a list that is merged by key, with all who wrote an entry with this key, the weakest first."""

    key: Any
    value: Conf
    path: str
    origins: tuple[Origin, ...]
    setters: frozenset[Origin] = frozenset()
    """Those of whom a value of the `default` is left."""

    @property
    def owner(self) -> Origin:
        """Whose entry it is: of those who wrote it, the strongest."""
        return self.origins[-1]
