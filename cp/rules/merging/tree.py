"""The tree that a merge builds: one node for each field, with every layer that wrote the field.

The merge is a JSON merge patch (RFC 7396 section 2): objects are merged field by field, every other value replaces what
was there, and a null removes the field. It differs in four ways (record 0038 has the reasons for the first two):

- A null removes only values of its own level and of narrower levels, from the narrowest: route, section, service, mesh.
  It uncovers what a wider level wrote, so a field keeps every write and not only the last. Items without levels (of
  `from` and `rules`) are all of one level, which is what the RFC says.
- An object with nothing but nulls in it sets nothing, so it does not come into being. The RFC would make it `{}`.
- Lists whose name begins with `append` are joined.
- Lists that are merged by key are merged entry by entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.model.paths import step
from cp.rules.merging.origins import Conf, KeyedEntry, Layer, MergedField, Origin, Removal, Setting

_NO_KEYS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """What one layer writes to one field. The value None is a null."""

    value: Any
    layer: Layer

    def setting(self, conf_path: str, removed_by: Setting | None = None) -> Setting:
        return Setting(self.layer.origin, self.value, self.layer.place(conf_path), removed_by)


def _live(writes: Sequence[Write]) -> list[Write]:
    """The values that no null removed, the weakest first."""
    live: list[Write] = []
    for write in writes:
        if write.value is None:
            live = [value for value in live if not _removes(write, value)]
        else:
            live.append(write)
    return live


def _removes(null: Write, value: Write) -> bool:
    """Whether a null removes a weaker value: only if that is of the same level or of a narrower one (record 0038)."""
    return value.layer.origin.narrowness >= null.layer.origin.narrowness


class Leaf:
    """A field whose value is replaced as a whole.

    The rule of a route is merged by itself and then laid over that of its service (`over`). So a leaf is a chain: the
    writes of one merge and, below them, the leaf of the same field in the merge that this one was laid over.
    """

    __slots__ = ("below", "replaced", "writes")

    def __init__(self, writes: list[Write], below: Leaf | None = None, replaced: Object | None = None) -> None:
        self.writes = writes
        """The writes of one merge, the weakest first."""

        self.below = below
        """The same field in the merge that this one was laid over."""

        self.replaced = replaced
        """An object that stood here before a value replaced it. A later null does not bring it back."""

    @property
    def live(self) -> Write | None:
        """The write whose value shows; None where nulls left nothing."""
        # Most fields have one write, and every lookup of a conf comes here.
        if len(self.writes) == 1 and self.writes[0].value is not None:
            return self.writes[0]
        own = _live(self.writes)
        return own[-1] if own else None if self.below is None else self.below.live

    @property
    def has_value(self) -> bool:
        return self.live is not None

    @property
    def value(self) -> Any:
        live = self.live
        return None if live is None else live.value

    def write_null(self, layer: Layer) -> Leaf:
        """The node that takes the place of this one after a null of the next stronger layer."""
        self.writes.append(Write(None, layer))
        return self

    def leaves(self, path: str, conf_path: str) -> Iterator[MergedField]:
        settings, removals = self._history(conf_path)
        live = self.live
        losers = [setting for setting, write in settings if write is not live]
        if live is not None:
            yield MergedField(path, live.setting(conf_path), tuple(losers), tuple(removals))
        else:
            null = next((removal.null for removal in removals if removal.removed), removals[0].null)
            yield MergedField(path, null, tuple(losers), tuple(removals))

    def _history(self, conf_path: str) -> tuple[list[tuple[Setting, Write]], list[Removal]]:
        """Every value with its write, and every null, the strongest first."""
        settings: list[tuple[Setting, Write]] = []
        removals: list[Removal] = []
        stronger: Setting | None = None
        node: Leaf | None = self
        while node is not None:
            settings += _values(node.writes, conf_path)
            removals += _removals(node.writes, conf_path, stronger)
            own = _live(node.writes)
            stronger = stronger or (own[-1].setting(conf_path) if own else None)
            if node.replaced is not None:
                settings += [(write.setting(conf_path), write) for write in reversed(node.replaced.writes)][:1]
            node = node.below
        return settings, removals

    def over(self, below: Node) -> Node:
        """A leaf that shows this one's value or, where it has none, that of the leaf below."""
        if isinstance(below, Leaf):
            under = below if self.below is None else self.below.over(below)
            return Leaf(self.writes, under if isinstance(under, Leaf) else None, self.replaced)
        return self if self.has_value else below


def _values(writes: Sequence[Write], conf_path: str) -> list[tuple[Setting, Write]]:
    """The values of one merge, the strongest first, each with the null that removed it, if one did."""
    removed_by: dict[int, Setting] = {}
    for null, taken in _nulls(writes):
        removed_by.update({id(value): null.setting(conf_path) for value in taken})
    values = [write for write in reversed(writes) if write.value is not None]
    return [(write.setting(conf_path, removed_by.get(id(write))), write) for write in values]


def _removals(writes: Sequence[Write], conf_path: str, stronger: Setting | None) -> Iterator[Removal]:
    """The nulls of one merge, the strongest first. `stronger` is a value from the merge above, which beats all here."""
    own = _live(writes)
    last = writes.index(own[-1]) if own else -1
    for null, taken in reversed(list(_nulls(writes))):
        is_weaker = writes.index(null) < last
        overriding = stronger or (own[-1].setting(conf_path) if is_weaker else None)
        yield Removal(null.setting(conf_path), tuple(value.setting(conf_path) for value in reversed(taken)), overriding)


def _nulls(writes: Sequence[Write]) -> Iterator[tuple[Write, list[Write]]]:
    """Each null with the values that it removed, the weakest first."""
    for index, write in enumerate(writes):
        if write.value is None:
            yield write, [value for value in _live(writes[:index]) if _removes(write, value)]


class Object:
    """A field whose value is an object: its fields by name."""

    __slots__ = ("children", "writes")

    def __init__(self, *layers: Layer) -> None:
        self.writes = [Write({}, layer) for layer in layers]
        """The layers that wrote the object or a field of it, and those that wrote a null in place of it."""

        self.children: dict[str, Node] = {}

    @property
    def has_value(self) -> bool:
        return bool(_live(self.writes))

    @property
    def value(self) -> dict[str, Any]:
        return {name: node.value for name, node in self.children.items() if node.has_value}

    def patch(self, conf: Conf, layer: Layer, keys: Mapping[str, str] = _NO_KEYS) -> None:
        """Write a conf of the next stronger layer over this object."""
        for name, value in conf.items():
            old = self.children.get(name)
            if value is None:
                self.children[name] = Leaf([Write(None, layer)]) if old is None else old.write_null(layer)
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
        sets_nothing = _is_of_nulls(value)
        # An object of nulls does not replace a value: there are no fields in it that the nulls could remove.
        if sets_nothing and old is not None and not isinstance(old, Object) and old.has_value:
            return
        if not isinstance(old, Object):
            old = self.children[name] = Object()
        if not sets_nothing:
            old.writes.append(Write({}, layer))
        old.patch(value, layer)

    def _list(self, name: str, old: Node | None, layer: Layer, key: str | None) -> AppendedList | KeyedList:
        if not isinstance(old, AppendedList | KeyedList):
            old = self.children[name] = AppendedList(layer) if key is None else KeyedList(layer, key)
        return old

    def write_null(self, layer: Layer) -> Node:
        for name, node in self.children.items():
            self.children[name] = node.write_null(layer)
        self.writes.append(Write(None, layer))
        return self

    def leaves(self, path: str, conf_path: str) -> Iterator[MergedField]:
        for name, node in self.children.items():
            yield from node.leaves(step(path, name), step(conf_path, name))
        live = _live(self.writes)
        if live and not any(node.has_value for node in self.children.values()):
            yield MergedField(path, live[-1].setting(conf_path))

    def over(self, below: Node) -> Node:
        """A new object with the fields of both; where both have a field, this one's comes over the other."""
        if not isinstance(below, Object):
            return self if self.has_value or not below.has_value else below
        both = Object()
        both.writes = [*_live(below.writes), *_live(self.writes)]
        both.children = {**below.children}
        for name, node in self.children.items():
            under = below.children.get(name)
            both.children[name] = node if under is None else node.over(under)
        return both


def _is_of_nulls(conf: Any) -> bool:
    """Whether an object has nothing but nulls in it, at whatever depth. An empty object is a value."""
    return (
        isinstance(conf, dict) and bool(conf) and all(value is None or _is_of_nulls(value) for value in conf.values())
    )


class AppendedList:
    """A list to which every layer adds its elements. A null does not remove what other layers added."""

    __slots__ = ("elements", "layer")

    has_value: Final = True

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.elements: list[tuple[Any, Layer, int]] = []

    @property
    def value(self) -> list[Any]:
        return [element for element, _, _ in self.elements]

    def extend(self, _name: str, values: Sequence[Any], layer: Layer) -> None:
        self.elements.extend((value, layer, index) for index, value in enumerate(values))

    def write_null(self, layer: Layer) -> Node:  # noqa: ARG002  # a null does not remove it
        return self

    def setting(self, conf_path: str) -> Setting:
        return Setting(self.layer.origin, self.value, self.layer.place(conf_path))

    def leaves(self, path: str, conf_path: str) -> Iterator[MergedField]:
        for at, (element, layer, index) in enumerate(self.elements):
            where = layer.place(step(conf_path, index))
            yield MergedField(step(path, at), Setting(layer.origin, element, where))
        if not self.elements:
            yield MergedField(path, self.setting(conf_path))

    def over(self, below: Node) -> Node:
        if not isinstance(below, AppendedList):
            return self
        both = AppendedList(below.layer)
        both.elements = below.elements + self.elements
        return both


class KeyedList:
    """A list of entries, each with a key and a `default`. Entries with equal keys are merged, in the place of the last.

    As with appended lists, a null does not remove it.
    """

    __slots__ = ("entries", "key", "layer")

    has_value: Final = True

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
            path, places = _path_of_entry(layer, name, raw, index), _places_of_entry(layer, step(name, index))
            entry.add(raw, Layer(raw.get("default") or {}, layer.origin, path, places=places))
            self.entries[text] = entry

    def write_null(self, layer: Layer) -> Node:  # noqa: ARG002  # a null does not remove it
        return self

    def setting(self, conf_path: str) -> Setting:
        return Setting(self.layer.origin, self.value, self.layer.place(conf_path))

    def leaves(self, path: str, conf_path: str) -> Iterator[MergedField]:
        if not self.entries:
            yield MergedField(path, self.setting(conf_path))
        for index, entry in enumerate(self.entries.values()):
            yield from entry.leaves(step(path, index))

    def over(self, below: Node) -> Node:  # noqa: ARG002  # such lists are merged within one level only
        return self


class _Entry:
    """One entry of a keyed list. Its layers are those of its `default`, each with its own path in its document."""

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


def _path_of_entry(layer: Layer, name: str, raw: Any, index: int) -> str:
    """The path of an entry in its document. The conf may have the entries of the item in another order."""
    if layer.places:
        return layer.place(step(name, index))
    written = layer.item.get(name)
    if isinstance(written, list):
        written_index = next((at for at, entry in enumerate(written) if entry is raw), None)
        if written_index is not None:
            return step(step(layer.origin.path, name), written_index)
    return step(step(layer.path, name), index)


def _places_of_entry(layer: Layer, path: str) -> Conf:
    """The places of the fields of an entry, by their paths in it."""
    inner = f"{path}."
    return {name.removeprefix(inner): place for name, place in layer.places.items() if name.startswith(inner)}


Node: TypeAlias = Leaf | Object | AppendedList | KeyedList
