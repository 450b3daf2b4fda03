"""The merge itself.

A merge of some of the layers is no use for the merge of all: with nulls, how layers are grouped changes the outcome.

See record 0006.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cp.model.canonical import canonical_json
from cp.model.names import Identity, Key
from cp.model.paths import step
from cp.model.remembered import remembered
from cp.rules.merging.origins import Conf, KeyedEntry, Layer, MergedField, Origin
from cp.rules.merging.tree import KeyedList, Object

_LAST_STEP: Final = re.compile(r"(\.[^.\[\]]+|\[[0-9]+\])$")


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How confs of one kind merge, beyond RFC 7396."""

    by_key: Mapping[str, str] = field(default_factory=dict)
    """Fields that are lists of entries with a key and a `default`: field to name of the key."""

    group_by: str | None = None
    """A field that is a list of texts, for each of which confs are merged separately."""

    finish: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """The last step, from a merged value to the one that is used."""


PLAIN: Final = MergeOptions()


class MergedConf:
    """A merged conf: plain data that nobody may change, and the origin of each of its fields."""

    def __init__(self, root: Object, finish: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged) -> None:
        self._root = root
        self._finish = finish
        self.value: Conf = finish(root.value)

    @remembered
    def canonical(self) -> bytes:
        """The value as JSON, the same for equal values."""
        return canonical_json(self.value)

    @remembered
    def fields(self) -> Mapping[str, MergedField]:
        """Every leaf of the value, by its path."""
        return {leaf.path: leaf for leaf in self._leaves if leaf.value is not None}

    @remembered
    def removed(self) -> Mapping[str, MergedField]:
        """The fields that have no value because a null removed it. The null is the winner."""
        return {leaf.path: leaf for leaf in self._leaves if leaf.value is None and leaf.losers}

    @remembered
    def nulls(self) -> Mapping[str, MergedField]:
        """Every field to which some layer wrote a null, whether that removed anything or not."""
        return {leaf.path: leaf for leaf in self._leaves if leaf.removals}

    def written(self, path: str) -> tuple[MergedField, str]:
        """The field that a path is in, or the first one within it, and where in its document the path is written."""
        fields, field_path = self.fields, path
        while field_path not in fields and (wider := _LAST_STEP.sub("", field_path)) != field_path:
            field_path = wider
        field = fields.get(field_path) or next(inner for name, inner in fields.items() if name.startswith(path))
        return field, f"{field.winner.path}{path.removeprefix(field_path)}"

    def entries(self, name: str) -> tuple[KeyedEntry, ...]:
        """The entries of a list that is merged by key, in the order of the value."""
        node = self._root.children.get(name)
        if not isinstance(node, KeyedList):
            return ()
        return tuple(entry.of(step(name, at)) for at, entry in self._in_order(name, node))

    @remembered
    def _leaves(self) -> tuple[MergedField, ...]:
        return tuple(self._walk())

    def _walk(self) -> Iterator[MergedField]:
        for name, node in self._root.children.items():
            if isinstance(node, KeyedList) and node.entries:
                for at, entry in self._in_order(name, node):
                    yield from entry.leaves(step(name, at))
            else:
                yield from node.leaves(name, name)

    def _in_order(self, name: str, node: KeyedList) -> Iterable[tuple[int, Any]]:
        """The entries with their indexes in the value: `finish` may have put them in another order."""
        indexes = {id(value): at for at, value in enumerate(self.value[name])}
        placed = ((indexes.get(id(entry.value), at), entry) for at, entry in enumerate(node.entries.values()))
        return sorted(placed, key=lambda pair: pair[0])

    def over(self, below: MergedConf) -> MergedConf:
        """This conf over a more general one, field by field."""
        both = self._root.over(below._root)
        assert isinstance(both, Object)  # noqa: S101  # two objects make one
        return MergedConf(both, self._finish)

    def __repr__(self) -> str:
        return f"Merged({self.value})"


def merge(layers: Sequence[Layer], recipe: MergeOptions = PLAIN) -> MergedConf:
    """Layers from the weakest to the strongest, merged into one."""
    if not layers:
        return NOTHING
    root = Object(layers[0])
    for layer in layers:
        root.patch(layer.conf, layer, recipe.by_key)
    return MergedConf(root, recipe.finish)


def merge_groups(layers: Sequence[Layer], recipe: MergeOptions = PLAIN) -> tuple[MergedConf, ...]:
    """As `merge`, once for each group that `group_by` makes, in the order in which the groups first appear."""
    if recipe.group_by is None:
        return (merge(layers, recipe),)
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        for text in groups_of(layer, recipe):
            groups.setdefault(text, []).append(_for_group(layer, recipe.group_by, text))
    return tuple(merge(group, recipe) for group in groups.values())


def merge_group(layers: Sequence[Layer], recipe: MergeOptions, text: str) -> MergedConf:
    """The merge of one group alone, from the layers that are in it."""
    if recipe.group_by is None:
        return merge(layers, recipe)
    return merge([_for_group(layer, recipe.group_by, text) for layer in layers], recipe)


def groups_of(layer: Layer, recipe: MergeOptions) -> Sequence[str]:
    """The groups that a layer is in; the empty one stands for none in particular."""
    return (layer.conf.get(recipe.group_by) if recipe.group_by is not None else None) or ("",)


def _for_group(layer: Layer, group_by: str, text: str) -> Layer:
    ungrouped = {name: value for name, value in layer.conf.items() if name != group_by}
    return replace(layer, conf={**ungrouped, group_by: [text]} if text else ungrouped)


def overlay(levels: Sequence[MergedConf]) -> MergedConf:
    """Merged confs from the most general to the most specific, field by field (record 0007).

    A field that a null removed on one level is taken from the next wider level.
    """
    result = levels[0] if levels else NOTHING
    for level in levels[1:]:
        result = level.over(result)
    return result


_NOBODY: Final = Origin(Key("", "", ""), Identity("", "", ""), "")
NOTHING: Final = MergedConf(Object(Layer({}, _NOBODY)))
"""The merge of no layers."""
