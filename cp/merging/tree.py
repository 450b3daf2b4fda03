"""The tree that a merge builds: one node for each field, with those that it replaced behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from cp.merging.origins import Conf, Entry, Field, Layer, Setting
from cp.model.paths import step
from cp.model.violation import join

_canonical: Final = msgspec.json.Encoder(order="deterministic").encode
_NO_KEYS: Final[Mapping[str, str]] = {}


class Leaf:
    """A value that is replaced as a whole. None is a null, which took away what stands behind it."""

    __slots__ = ("before", "layer", "value")

    def __init__(self, value: Any, layer: Layer, before: Node | None) -> None:
        self.value = value
        self.layer = layer
        self.before = before

    @property
    def is_there(self) -> bool:
        return self.value is not None

    def gone(self, layer: Layer) -> Node:
        return self if self.value is None else Leaf(None, layer, self)

    def setting(self, place: str) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place))

    def leaves(self, path: str, place: str) -> Iterator[Field]:
        losers: list[Setting] = []
        node = self.before
        while node is not None:
            losers.append(node.setting(place))
            node = node.before if isinstance(node, Leaf) else None
        yield Field(path, self.setting(place), tuple(losers))

    def over(self, below: Node) -> Node:
        """The same leaf with another history behind its own."""
        return Leaf(self.value, self.layer, below if self.before is None else self.before.over(below))


class Object:
    """Fields by name."""

    __slots__ = ("children", "is_there", "layer")

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.children: dict[str, Node] = {}
        self.is_there = True

    @property
    def value(self) -> dict[str, Any]:
        return {name: node.value for name, node in self.children.items() if node.is_there}

    def patch(self, conf: Conf, layer: Layer, keys: Mapping[str, str] = _NO_KEYS) -> None:
        """Write a conf over what is here."""
        children = self.children
        for name, value in conf.items():
            old = children.get(name)
            if value is None:
                if old is not None:
                    children[name] = old.gone(layer)
            elif isinstance(value, dict):
                self._object(name, old, layer).patch(value, layer)
            elif isinstance(value, list) and (name in keys or name.startswith("append")):
                self._list(name, old, layer, keys.get(name)).extend(name, value, layer)
            else:
                children[name] = Leaf(value, layer, old)

    def _object(self, name: str, old: Node | None, layer: Layer) -> Object:
        if not isinstance(old, Object):
            old = self.children[name] = Object(layer)
        elif not old.is_there:
            old.is_there, old.layer = True, layer
        return old

    def _list(self, name: str, old: Node | None, layer: Layer, key: str | None) -> Appended | Keyed:
        if not isinstance(old, Appended | Keyed):
            old = self.children[name] = Appended(layer) if key is None else Keyed(layer, key)
        return old

    def gone(self, layer: Layer) -> Node:
        for name, node in self.children.items():
            self.children[name] = node.gone(layer)
        self.is_there = False
        return self

    def setting(self, place: str) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place))

    def leaves(self, path: str, place: str) -> Iterator[Field]:
        for name, node in self.children.items():
            yield from node.leaves(step(path, name), step(place, name))
        if self.is_there and not any(node.is_there for node in self.children.values()):
            yield Field(path, self.setting(place))

    def over(self, below: Node) -> Node:
        """A new object with the fields of both; where both have one, this one's."""
        if not isinstance(below, Object):
            return self
        both = Object(self.layer)
        both.children = {**below.children}
        for name, node in self.children.items():
            under = below.children.get(name)
            if under is None:
                both.children[name] = node
            elif node.is_there:
                both.children[name] = node.over(under)
        return both


class Appended:
    """A list to which every layer adds. A null cannot take away what others added."""

    __slots__ = ("elements", "layer")

    is_there: Final = True

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.elements: list[tuple[Any, Layer, int]] = []

    @property
    def value(self) -> list[Any]:
        return [element for element, _, _ in self.elements]

    def extend(self, _name: str, values: Sequence[Any], layer: Layer) -> None:
        self.elements.extend((value, layer, index) for index, value in enumerate(values))

    def gone(self, layer: Layer) -> Node:  # noqa: ARG002  # see above
        return self

    def setting(self, place: str) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place))

    def leaves(self, path: str, place: str) -> Iterator[Field]:
        for at, (element, layer, index) in enumerate(self.elements):
            where = join(layer.path, step(place, index))
            yield Field(step(path, at), Setting(layer.origin, element, where))
        if not self.elements:
            yield Field(path, self.setting(place))

    def over(self, below: Node) -> Node:
        if not isinstance(below, Appended):
            return self
        both = Appended(below.layer)
        both.elements = below.elements + self.elements
        return both


class Keyed:
    """A list of entries, each with a key and a `default`: those with equal keys are merged, in the place of the last.

    As with lists that are appended to, a null cannot take it away.
    """

    __slots__ = ("entries", "key", "layer")

    is_there: Final = True

    def __init__(self, layer: Layer, key: str) -> None:
        self.layer = layer
        self.key = key
        self.entries: dict[bytes, _Entry] = {}

    @property
    def value(self) -> list[dict[str, Any]]:
        return [entry.value for entry in self.entries.values()]

    def extend(self, name: str, values: Sequence[Any], layer: Layer) -> None:
        for index, raw in enumerate(values):
            text = _canonical(raw.get(self.key))
            entry = self.entries.pop(text, None) or _Entry(self.key)
            entry.add(raw, Layer(raw.get("default") or {}, layer.origin, _place(layer, name, raw, index)))
            self.entries[text] = entry

    def gone(self, layer: Layer) -> Node:  # noqa: ARG002  # see above
        return self

    def setting(self, place: str) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place))

    def leaves(self, path: str, place: str) -> Iterator[Field]:
        if not self.entries:
            yield Field(path, self.setting(place))
        for index, entry in enumerate(self.entries.values()):
            yield from entry.leaves(step(path, index))

    def over(self, below: Node) -> Node:  # noqa: ARG002  # such lists are merged within one level only
        return self


class _Entry:
    """One entry of a keyed list. Its layers are those of its `default`, with their own places in the documents."""

    __slots__ = ("default", "key", "layers", "raw", "value")

    def __init__(self, key: str) -> None:
        self.key = key
        self.layers: list[Layer] = []
        self.raw: Conf = {}
        self.default: Object | None = None
        self.value: dict[str, Any] = {}

    def add(self, raw: Conf, layer: Layer) -> None:
        self.raw = raw
        self.layers.append(layer)
        if "default" in raw:
            self.default = self.default or Object(layer)
            self.default.patch(layer.conf, layer)
        rest = {} if self.default is None else {"default": self.default.value}
        self.value = {**raw, **rest}

    def leaves(self, path: str) -> Iterator[Field]:
        last = self.layers[-1]
        for name, value in self.raw.items():
            if name != "default":
                yield Field(step(path, name), Setting(last.origin, value, step(last.path, name)))
        if self.default is not None:
            yield from self._of_default(f"{path}.default")

    def _of_default(self, path: str) -> Iterator[Field]:
        assert self.default is not None  # noqa: S101  # narrows the type
        yield from self.default.leaves(path, "default")

    def of(self, path: str) -> Entry:
        key = self.raw.get(self.key)
        return Entry(key, self.value, path, tuple(layer.origin for layer in self.layers))


def _place(layer: Layer, name: str, raw: Any, index: int) -> str:
    """Where an entry stands in its document: the conf may have the entries of the item in another order."""
    written = layer.item.get(name)
    if isinstance(written, list):
        found = next((at for at, one in enumerate(written) if one is raw), None)
        if found is not None:
            return step(step(layer.origin.path, name), found)
    return step(step(layer.path, name), index)


Node: TypeAlias = Leaf | Object | Appended | Keyed
