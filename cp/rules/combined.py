"""The confs that several items come to together, merged once for as long as somebody needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.rules.items import PolicyItem, recipe
from cp.rules.merging import NOTHING, MergedConf, MergeOptions, Origin, merge_group, merge_groups, overlay

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
    """Every combined conf that is in use, by its items.

    An item equals only itself, so one cache serves all Worlds (record 0003).
    """

    def __init__(self) -> None:
        self._combined: WeakValueDictionary[_Items, CombinedConf] = WeakValueDictionary()
        self._of_groups: WeakValueDictionary[tuple[str, _Items], CombinedConf] = WeakValueDictionary()
        self._laid: WeakValueDictionary[tuple[MergedConf, ...], MergedConf] = WeakValueDictionary()
        self.merged = 0
        """How often something had to be merged."""

    def combine(self, items: _Items) -> CombinedConf:
        combined = self._combined.get(items)
        if combined is None:
            self.merged += 1
            combined = self._combined[items] = CombinedConf(items, _merge(items))
        return combined

    def combine_group(self, text: str, items: _Items) -> CombinedConf:
        """What the items of one group come to, such as routes of one hostname."""
        combined = self._of_groups.get((text, items))
        if combined is None:
            self.merged += 1
            how = recipe(items[0].shape) if items else MergeOptions()
            conf = merge_group([item.layer for item in items], how, text)
            combined = self._of_groups[text, items] = CombinedConf(items, (conf,))
        return combined

    def lay(self, levels: tuple[MergedConf, ...]) -> MergedConf:
        """Confs over each other, field by field, from the most general to the most specific (record 0007)."""
        conf = self._laid.get(levels)
        if conf is None:
            conf = self._laid[levels] = overlay(levels)
        return conf


def _merge(items: Sequence[PolicyItem]) -> tuple[MergedConf, ...]:
    how = recipe(items[0].shape) if items else MergeOptions()
    return merge_groups([item.layer for item in items], how)
