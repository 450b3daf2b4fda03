"""Who said what, and where: what a merge remembers beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cp.model.document import Source
from cp.model.names import Identity, Key

Conf: TypeAlias = Mapping[str, Any]


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

    @property
    def line(self) -> int:
        return self.origin.source.line(self.path)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a merged conf: who set it, and who lost, the strongest first."""

    path: str
    winner: Setting
    losers: tuple[Setting, ...] = ()

    @property
    def value(self) -> Any:
        return self.winner.value


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a list that is merged by key, with all who wrote an entry with this key, the weakest first."""

    key: Any
    value: Conf
    path: str
    origins: tuple[Origin, ...]

    @property
    def owner(self) -> Origin:
        """Whose entry it is: of those who wrote it, the strongest."""
        return self.origins[-1]
