"""Plain data against a schema of frozen Structs: every fault at once, each with its path and a hint.

msgspec decodes fast and stops at the first fault. So a document is decoded first, and only one that fails is walked
here, field by field. What is faulty is taken out, so that the rest can still be decoded and judged.

See record 0017.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from cp.model.duration import Duration
from cp.model.numbers import Long
from cp.model.paths import entry, step
from cp.model.violation import Violation

T = TypeVar("T")
Number: TypeAlias = Long | str
"""A whole number bare, a fraction as a text, so that no digit is lost: so Kuma reads both."""

MOST_FAULTS: Final = 200
"""So many faults of one document are told. Each takes time to work out and room in an answer."""

_FAULTY: Any = object()
_LONGEST_QUOTE: Final = 80
_LONGEST_MISSPELT: Final = 100


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The base of every schema: camel case outside, snake case inside, unknown fields refused.

    A field that may be left out is `X | None = None`: `None` is "not given", and an explicit null is the same.
    """

    def wire(self) -> tuple[str, ...]:
        """The fields that are given, by their names from the outside."""
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return tuple(name for field, name in names if getattr(self, field) is not None)


def the_one(**given: object) -> str | None:
    """The name of the only value that is given, from which its type follows."""
    names = [name for name, value in given.items() if value is not None]
    return names[0] if len(names) == 1 else None


def decode(schema: type[T], data: Any) -> T:
    """Plain data that is known to be valid, as its schema."""
    return msgspec.convert(data, schema, dec_hook=_custom)


def check(schema: type[T], data: Any, path: str = "") -> tuple[T | None, list[Violation]]:
    """The decoded data with everything wrong with it. `None` where nothing of it can be decoded."""
    try:
        return decode(schema, data), []
    except msgspec.ValidationError:
        violations: list[Violation] = []
        try:
            sound = _Walk(violations).value(msgspec.inspect.type_info(schema), data, path)
        except _Enough:
            sound = _FAULTY
    if sound is _FAULTY:
        return None, violations
    try:
        return decode(schema, sound), violations
    except msgspec.ValidationError as error:
        return None, violations or [Violation(path, str(error))]


class Word(str):
    """A text that may be written as a bare number, as a status of HTTP may."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Word:
        return cls(text)


def _custom(kind: type[Any], value: Any) -> Any:
    if kind is Word and isinstance(value, int) and not isinstance(value, bool):
        return Word(value)
    if not isinstance(value, str):
        raise ValueError(f"must be {_custom_wanted(kind)}")  # noqa: TRY004  # what msgspec takes for a violation
    return kind.parse(value)


def _custom_wanted(kind: type[Any]) -> str:
    return "a duration such as `15s`" if kind is Duration else "a text"


class _Enough(Exception):
    """More is wrong than is told."""


class _Walk:
    """Walks a schema and the data side by side; answers with the data less its faulty parts.

    A faulty part that cannot be left out, because items after it would be counted wrongly, has a stand-in.
    """

    def __init__(self, violations: list[Violation]) -> None:
        self._violations = violations

    def value(self, kind: msgspec.inspect.Type, data: Any, path: str) -> Any:
        kind = kind.type if isinstance(kind, msgspec.inspect.Metadata) else kind
        if isinstance(kind, msgspec.inspect.UnionType):
            return self._union(kind, data, path)
        if isinstance(kind, msgspec.inspect.StructType):
            return self._struct(kind, data, path)
        if isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            return self._list(kind.item_type, data, path)
        if isinstance(kind, msgspec.inspect.DictType):
            return self._dict(kind.value_type, data, path)
        return self._leaf(kind, data, path)

    def _union(self, kind: msgspec.inspect.UnionType, data: Any, path: str) -> Any:
        if data is None and kind.includes_none:
            return None
        choices = [choice for choice in kind.types if not isinstance(choice, msgspec.inspect.NoneType)]
        if len(choices) == 1:
            return self.value(choices[0], data, path)
        for choice in choices:
            faults: list[Violation] = []
            if _Walk(faults).value(choice, data, path) is not _FAULTY and not faults:
                return data
        is_fraction = isinstance(data, float) and any(isinstance(choice, msgspec.inspect.StrType) for choice in choices)
        hint = f'write `"{data}"`' if is_fraction else ""
        return self._fault(path, f"must be {' or '.join(map(_wanted, choices))}, not {_given(data)}", hint)

    def _struct(self, kind: msgspec.inspect.StructType, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            return self._fault(path, f"must be an object, not {_sort(data)}", _fields_hint(kind))
        fields = {field.encode_name: field for field in kind.fields}
        sound: dict[str, Any] = {}
        for name, given in data.items():
            if name not in fields:
                self._fault(step(path, str(name)), "unknown field", _meant(str(name), kind))
                continue
            found = self.value(fields[name].type, given, step(path, name))
            if found is not _FAULTY:
                sound[name] = found
        for name, field in fields.items():
            if field.required and name not in sound:
                sound[name] = _stand_in(field.type)
                if name not in data:
                    self._fault(step(path, name), "must be set")
        return sound

    def _list(self, item: msgspec.inspect.Type, data: Any, path: str) -> Any:
        if not isinstance(data, list | tuple):
            return self._fault(path, f"must be a list, not {_sort(data)}", "begin each item with `- `")
        found = [self.value(item, given, step(path, index)) for index, given in enumerate(data)]
        return [_stand_in(item) if value is _FAULTY else value for value in found]

    def _dict(self, value: msgspec.inspect.Type, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            return self._fault(path, f"must be a mapping of names to values, not {_sort(data)}")
        found = {str(key): self.value(value, given, path + entry(str(key))) for key, given in data.items()}
        return {key: given for key, given in found.items() if given is not _FAULTY}

    def _leaf(self, kind: msgspec.inspect.Type, data: Any, path: str) -> Any:
        if isinstance(kind, msgspec.inspect.CustomType):
            return self._custom_leaf(kind.cls, data, path)
        if isinstance(kind, msgspec.inspect.LiteralType):
            if any(data == value and type(data) is type(value) for value in kind.values):
                return data
            hint = near(data, map(str, kind.values)) if isinstance(data, str) else ""
            return self._fault(path, f"`{data}` is not one of {', '.join(map(str, kind.values))}", hint)
        if _fits(kind, data):
            return data if _is_within(kind, data) else self._fault(path, f"must be {_bounds(kind)}, not `{data}`")
        hint = f'write `"{data}"`' if isinstance(kind, msgspec.inspect.StrType) and _is_scalar(data) else ""
        return self._fault(path, f"must be {_wanted(kind)}, not {_given(data)}", hint)

    def _custom_leaf(self, kind: type[Any], data: Any, path: str) -> Any:
        try:
            _custom(kind, data)
        except ValueError as error:
            is_number = kind is Duration and isinstance(data, int | float) and not isinstance(data, bool)
            return self._fault(path, str(error), f"write `{data}s`" if is_number else "")
        return data

    def _fault(self, path: str, message: str, hint: str = "") -> Any:
        self._violations.append(Violation(path, message, hint))
        if len(self._violations) > MOST_FAULTS:
            raise _Enough
        return _FAULTY


def _stand_in(kind: msgspec.inspect.Type) -> Any:
    match kind:
        case msgspec.inspect.UnionType():
            return None if kind.includes_none else _stand_in(kind.types[0])
        case msgspec.inspect.StructType():
            return {field.encode_name: _stand_in(field.type) for field in kind.fields if field.required}
        case msgspec.inspect.LiteralType():
            return kind.values[0]
        case msgspec.inspect.IntType():
            return kind.ge or 0
        case msgspec.inspect.CustomType():
            return "0s" if kind.cls is Duration else ""
        case _:
            return _BLANK.get(type(kind))


_BLANK: Final[Mapping[type, Any]] = {
    msgspec.inspect.BoolType: False,
    msgspec.inspect.FloatType: 0.0,
    msgspec.inspect.StrType: "",
    msgspec.inspect.ListType: [],
    msgspec.inspect.DictType: {},
}


def _fits(kind: msgspec.inspect.Type, data: Any) -> bool:
    match kind:
        case msgspec.inspect.BoolType():
            return isinstance(data, bool)
        case msgspec.inspect.IntType():
            return isinstance(data, int) and not isinstance(data, bool)
        case msgspec.inspect.FloatType():
            return isinstance(data, int | float) and not isinstance(data, bool)
        case msgspec.inspect.StrType():
            return isinstance(data, str)
        case _:
            return True


def _is_within(kind: msgspec.inspect.Type, data: Any) -> bool:
    if not isinstance(kind, msgspec.inspect.IntType):
        return True
    return (kind.ge is None or data >= kind.ge) and (kind.le is None or data <= kind.le)


def _bounds(kind: msgspec.inspect.Type) -> str:
    least, most = getattr(kind, "ge", None), getattr(kind, "le", None)
    return f"{least} or more" if most is None else f"{least} to {most}"


def _wanted(kind: msgspec.inspect.Type) -> str:
    names: dict[type, str] = {
        msgspec.inspect.BoolType: "true or false",
        msgspec.inspect.IntType: "a whole number",
        msgspec.inspect.FloatType: "a number",
        msgspec.inspect.StrType: "a text",
        msgspec.inspect.ListType: "a list",
        msgspec.inspect.DictType: "a mapping",
        msgspec.inspect.StructType: "an object",
    }
    if isinstance(kind, msgspec.inspect.CustomType):
        return _custom_wanted(kind.cls)
    return names.get(type(kind), "something else")


def _given(data: Any) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, bool):
        return f"`{str(data).lower()}`"
    if isinstance(data, list):
        return "a list"
    return "an object" if isinstance(data, Mapping) else f"`{shortened(str(data))}`"


def _sort(data: Any) -> str:
    """Of what sort data is, without saying what it is: it may be a secret."""
    return "a text" if isinstance(data, str) else "a number" if _is_scalar(data) else _given(data)


def shortened(text: str, most: int = _LONGEST_QUOTE) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _is_scalar(data: Any) -> bool:
    return isinstance(data, bool | int | float)


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A question about what may have been meant; empty when nothing known looks like it."""
    if len(name) > _LONGEST_MISSPELT:
        return ""
    known = list(known)
    exact = [one for one in known if one.lower() == name.lower()]
    near = exact or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"did you mean `{near[0]}`?" if near else ""


def _meant(name: str, kind: msgspec.inspect.StructType) -> str:
    """What an unknown field may have meant: one of that name further inside comes before one that looks like it."""
    fields = [field.encode_name for field in kind.fields]
    inside = [path for path in _wire_names(kind, "") if path.endswith(f".{name}") and "[]" not in path]
    is_known = name.lower() in map(str.lower, fields)
    return f"did you mean `{min(inside, key=len)}`?" if inside and not is_known else near(name, fields)


def _fields_hint(kind: msgspec.inspect.StructType) -> str:
    names = [field.encode_name for field in kind.fields]
    return f"it has {', '.join(f'`{name}`' for name in names[:8])}" if names else ""


@cache
def wire_names(schema: type[Any]) -> tuple[str, ...]:
    """Every field of a schema, by its path from the outside: what tables and documentation are checked against."""
    return tuple(_wire_names(msgspec.inspect.type_info(schema), ""))


def _wire_names(kind: msgspec.inspect.Type, path: str) -> Iterator[str]:
    if isinstance(kind, msgspec.inspect.UnionType):
        for choice in kind.types:
            yield from _wire_names(choice, path)
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _wire_names(kind.item_type, f"{path}[]")
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            inner = step(path, field.encode_name)
            yield inner
            yield from _wire_names(field.type, inner)
