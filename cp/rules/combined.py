"""What items come to together, worked out once for as long as somebody needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.rules.items import PolicyItem, recipe, shape_of
from cp.rules.merging import NOTHING, MergedConf, MergeOptions, Origin, merge_groups, overlay

_Items: TypeAlias = tuple[PolicyItem, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CombinedConf:
    """The confs that items come to: one, or one for each group of a policy that has groups."""

    items: _Items
    confs: tuple[MergedConf, ...]

    @property
    def conf(self) -> MergedConf:
        return self.confs[0] if self.confs else NOTHING

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the items stand, in the order of merging."""
        return tuple(dict.fromkeys(item.origin for item in self.items))


class MergeCache:
    """Everything combined that is in use, by its items. Items are themselves alone, so no World can be mistaken."""

    def __init__(self) -> None:
        self._combined: WeakValueDictionary[_Items, CombinedConf] = WeakValueDictionary()
        self._laid: WeakValueDictionary[tuple[MergedConf, ...], MergedConf] = WeakValueDictionary()
        self.merged = 0
        """How often something had to be merged."""

    def combine(self, items: _Items) -> CombinedConf:
        found = self._combined.get(items)
        if found is None:
            self.merged += 1
            found = self._combined[items] = CombinedConf(items, _merge(items))
        return found

    def lay(self, levels: tuple[MergedConf, ...]) -> MergedConf:
        """Confs over each other, from the most general to the most specific (record 0007)."""
        found = self._laid.get(levels)
        if found is None:
            found = self._laid[levels] = overlay(levels)
        return found


def _merge(items: Sequence[PolicyItem]) -> tuple[MergedConf, ...]:
    how = recipe(shape_of(items[0].policy)) if items else MergeOptions()
    return merge_groups([item.layer for item in items], how)
