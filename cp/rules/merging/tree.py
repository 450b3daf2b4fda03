"""The tree that a merge builds: one node for each field, with everybody who wrote it.

A null takes away what weaker items of its own level or a narrower one wrote, and uncovers what a wider level wrote:
route, section, service, mesh, from the narrowest to the widest. Where there are no levels this is RFC 7386, but for
objects with nothing but nulls in them: they say nothing, so they do not come into being.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.model.paths import step
from cp.model.violation import join
from cp.rules.merging.origins import Conf, KeyedEntry, Layer, MergedField, Origin, Removal, Setting

_NO_KEYS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """What one layer writes. None is a null."""

    value: Any
    layer: Layer

    def setting(self, place: str, removed_by: Setting | None = None) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place), removed_by)


def _live(writes: Sequence[Write]) -> list[Write]:
    """The values that no null took away, the weakest first."""
    live: list[Write] = []
    for write in writes:
        if write.value is None:
            live = [value for value in live if not _takes_away(write, value)]
        else:
            live.append(write)
    return live


def _takes_away(null: Write, value: Write) -> bool:
    return value.layer.origin.reach >= null.layer.origin.reach


class Leaf:
    """A value that is replaced as a whole."""

    __slots__ = ("below", "object", "writes")

    def __init__(self, writes: list[Write], below: Leaf | None = None, replaced: Object | None = None) -> None:
        self.writes = writes
        """Of one merge, the weakest first."""

        self.below = below
        """The same field of the merge below this one."""

        self.object = replaced
        """An object that stood in this place before; it does not come back."""

    @property
    def live(self) -> Write | None:
        if len(self.writes) == 1 and self.writes[0].value is not None:
            return self.writes[0]
        own = _live(self.writes)
        return own[-1] if own else None if self.below is None else self.below.live

    @property
    def is_there(self) -> bool:
        return self.live is not None

    @property
    def value(self) -> Any:
        live = self.live
        return None if live is None else live.value

    def gone(self, layer: Layer) -> Leaf:
        self.writes.append(Write(None, layer))
        return self

    def leaves(self, path: str, place: str) -> Iterator[MergedField]:
        settings, removals = self._history(place)
        live = self.live
        losers = [setting for setting, write in settings if write is not live]
        if live is not None:
            yield MergedField(path, live.setting(place), tuple(losers), tuple(removals))
        else:
            null = next((removal.null for removal in removals if removal.removed), removals[0].null)
            yield MergedField(path, null, tuple(losers), tuple(removals))

    def _history(self, place: str) -> tuple[list[tuple[Setting, Write]], list[Removal]]:
        """Every value and every null, the strongest first."""
        settings: list[tuple[Setting, Write]] = []
        removals: list[Removal] = []
        stronger: Setting | None = None
        node: Leaf | None = self
        while node is not None:
            settings += _values(node.writes, place)
            removals += _removals(node.writes, place, stronger)
            own = _live(node.writes)
            stronger = stronger or (own[-1].setting(place) if own else None)
            if node.object is not None:
                settings += [(write.setting(place), write) for write in reversed(node.object.writes)][:1]
            node = node.below
        return settings, removals

    def over(self, below: Node) -> Node:
        """The same leaf over another one, which has its say where this one has none."""
        if isinstance(below, Leaf):
            under = below if self.below is None else self.below.over(below)
            return Leaf(self.writes, under if isinstance(under, Leaf) else None, self.object)
        return self if self.is_there else below


def _values(writes: Sequence[Write], place: str) -> list[tuple[Setting, Write]]:
    """The values of one merge, each with the null that took it away, if one did; the strongest first."""
    removed_by: dict[int, Setting] = {}
    for null, taken in _nulls(writes):
        removed_by.update({id(value): null.setting(place) for value in taken})
    values = [write for write in reversed(writes) if write.value is not None]
    return [(write.setting(place, removed_by.get(id(write))), write) for write in values]


def _removals(writes: Sequence[Write], place: str, stronger: Setting | None) -> Iterator[Removal]:
    """The nulls of one merge, the strongest first. A merge above it may have a value that is stronger than all here."""
    own = _live(writes)
    last = writes.index(own[-1]) if own else -1
    for null, taken in reversed(list(_nulls(writes))):
        is_weaker = writes.index(null) < last
        overriding = stronger or (own[-1].setting(place) if is_weaker else None)
        yield Removal(null.setting(place), tuple(value.setting(place) for value in reversed(taken)), overriding)


def _nulls(writes: Sequence[Write]) -> Iterator[tuple[Write, list[Write]]]:
    """Each null with the values that it took away, the weakest first."""
    for index, write in enumerate(writes):
        if write.value is None:
            yield write, [value for value in _live(writes[:index]) if _takes_away(write, value)]


class Object:
    """Fields by name."""

    __slots__ = ("children", "writes")

    def __init__(self, *layers: Layer) -> None:
        self.writes = [Write({}, layer) for layer in layers]
        """Of those who wrote the object, or a field of it, and of those who wrote a null in its place."""

        self.children: dict[str, Node] = {}

    @property
    def is_there(self) -> bool:
        return bool(_live(self.writes))

    @property
    def value(self) -> dict[str, Any]:
        return {name: node.value for name, node in self.children.items() if node.is_there}

    def patch(self, conf: Conf, layer: Layer, keys: Mapping[str, str] = _NO_KEYS) -> None:
        """Write a conf over what is here."""
        for name, value in conf.items():
            old = self.children.get(name)
            if value is None:
                self.children[name] = Leaf([Write(None, layer)]) if old is None else old.gone(layer)
            elif isinstance(value, dict):
                self._patch_object(name, value, layer)
            elif isinstance(value, list) and (name in keys or name.startswith("append")):
                self._list(name, old, layer, keys.get(name)).extend(name, value, layer)
            elif isinstance(old, Leaf):
                old.writes.append(Write(value, layer))
            else:
                self.children[name] = Leaf([Write(value, layer)], replaced=old if isinstance(old, Object) else None)

    def _patch_object(self, name: str, value: dict[str, Any], layer: Layer) -> None:
        old = self.children.get(name)
        says_nothing = _is_of_nulls(value)
        if says_nothing and old is not None and not isinstance(old, Object) and old.is_there:
            return
        if not isinstance(old, Object):
            old = self.children[name] = Object()
        if not says_nothing:
            old.writes.append(Write({}, layer))
        old.patch(value, layer)

    def _list(self, name: str, old: Node | None, layer: Layer, key: str | None) -> AppendedList | KeyedList:
        if not isinstance(old, AppendedList | KeyedList):
            old = self.children[name] = AppendedList(layer) if key is None else KeyedList(layer, key)
        return old

    def gone(self, layer: Layer) -> Node:
        for name, node in self.children.items():
            self.children[name] = node.gone(layer)
        self.writes.append(Write(None, layer))
        return self

    def leaves(self, path: str, place: str) -> Iterator[MergedField]:
        for name, node in self.children.items():
            yield from node.leaves(step(path, name), step(place, name))
        live = _live(self.writes)
        if live and not any(node.is_there for node in self.children.values()):
            yield MergedField(path, live[-1].setting(place))

    def over(self, below: Node) -> Node:
        """A new object with the fields of both; where both have one, this one's."""
        if not isinstance(below, Object):
            return self if self.is_there or not below.is_there else below
        both = Object()
        both.writes = [*_live(below.writes), *_live(self.writes)]
        both.children = {**below.children}
        for name, node in self.children.items():
            under = below.children.get(name)
            both.children[name] = node if under is None else node.over(under)
        return both


def _is_of_nulls(conf: Any) -> bool:
    """Whether an object has nothing but nulls in it, at whatever depth. An empty one is a value."""
    return (
        isinstance(conf, dict) and bool(conf) and all(value is None or _is_of_nulls(value) for value in conf.values())
    )


class AppendedList:
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

    def leaves(self, path: str, place: str) -> Iterator[MergedField]:
        for at, (element, layer, index) in enumerate(self.elements):
            where = join(layer.path, step(place, index))
            yield MergedField(step(path, at), Setting(layer.origin, element, where))
        if not self.elements:
            yield MergedField(path, self.setting(place))

    def over(self, below: Node) -> Node:
        if not isinstance(below, AppendedList):
            return self
        both = AppendedList(below.layer)
        both.elements = below.elements + self.elements
        return both


class KeyedList:
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
            text = canonical_json(raw.get(self.key))
            entry = self.entries.pop(text, None) or _Entry(self.key)
            entry.add(raw, Layer(raw.get("default") or {}, layer.origin, _place(layer, name, raw, index)))
            self.entries[text] = entry

    def gone(self, layer: Layer) -> Node:  # noqa: ARG002  # see above
        return self

    def setting(self, place: str) -> Setting:
        return Setting(self.layer.origin, self.value, join(self.layer.path, place))

    def leaves(self, path: str, place: str) -> Iterator[MergedField]:
        if not self.entries:
            yield MergedField(path, self.setting(place))
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
        default = {} if self.default is None else {"default": self.default.value}
        self.value = {**raw, **default}

    def leaves(self, path: str) -> Iterator[MergedField]:
        last = self.layers[-1]
        for name, value in self.raw.items():
            if name != "default":
                yield MergedField(step(path, name), Setting(last.origin, value, step(last.path, name)))
        if self.default is not None:
            yield from self._of_default(f"{path}.default")

    def _of_default(self, path: str) -> Iterator[MergedField]:
        assert self.default is not None  # noqa: S101  # narrows the type
        yield from self.default.leaves(path, "default")

    def of(self, path: str) -> KeyedEntry:
        key = self.raw.get(self.key)
        return KeyedEntry(key, self.value, path, tuple(layer.origin for layer in self.layers), self._setters())

    def _setters(self) -> frozenset[Origin]:
        nodes = () if self.default is None else self.default.children.items()
        fields = (field for name, node in nodes for field in node.leaves(name, name))
        return frozenset(field.winner.origin for field in fields if field.value is not None)


def _place(layer: Layer, name: str, raw: Any, index: int) -> str:
    """Where an entry stands in its document: the conf may have the entries of the item in another order."""
    written = layer.item.get(name)
    if isinstance(written, list):
        place = next((at for at, entry in enumerate(written) if entry is raw), None)
        if place is not None:
            return step(step(layer.origin.path, name), place)
    return step(step(layer.path, name), index)


Node: TypeAlias = Leaf | Object | AppendedList | KeyedList
