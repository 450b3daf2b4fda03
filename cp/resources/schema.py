"""Decodes plain data by a schema of frozen Structs, and finds every fault of it, each with its path and a hint.

msgspec decodes fast and stops at the first fault. So a document is decoded first, and only one that fails is walked
here, field by field. Faulty parts are taken out, so that the sound parts can still be decoded and validated.

See record 0017.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from cp.model.duration import Duration
from cp.model.numbers import Long
from cp.model.paths import entry, step
from cp.model.violation import Violation

T = TypeVar("T")
Number: TypeAlias = Long | str
"""A whole number, or a fraction as a text so that no digit is lost. Kuma reads both."""

_SENSITIVE: Final = {"sensitive": True}
SensitiveText: TypeAlias = Annotated[str, msgspec.Meta(extra=_SENSITIVE)]
"""A text with a secret in it, if what stands beside it or in it says so (`cp.model.secret_data`)."""

SensitiveData: TypeAlias = Annotated[Any, msgspec.Meta(extra=_SENSITIVE)]
"""Plain data that may have secrets in it."""

SensitiveMap: TypeAlias = Annotated[dict[str, T], msgspec.Meta(extra=_SENSITIVE)]
"""Values by names of which some may be secret."""

MOST_FAULTS: Final = 200
"""The faults of one document that are reported. Each takes time to find and room in an answer."""

_FAULTY: Any = object()
_LONGEST_QUOTE: Final = 80
_LONGEST_MISSPELT: Final = 100


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The base of every schema: camel case in documents, snake case in Python. An unknown field is a fault.

    A field that may be left out is `X | None = None`. An explicit null is the same as leaving it out.
    """

    def wire(self) -> tuple[str, ...]:
        """The names in documents of the fields that are set."""
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return tuple(name for field, name in names if getattr(self, field) is not None)


def is_sensitive(info: msgspec.inspect.Type) -> bool:
    """True for the types above, and where such a value may be left out."""
    if isinstance(info, msgspec.inspect.UnionType):
        return any(map(is_sensitive, info.types))
    return isinstance(info, msgspec.inspect.Metadata) and info.extra == _SENSITIVE


def only_set_name(**values: object) -> str | None:
    """The name of the only value that is set, from which a type follows; None if several are set, or none."""
    names = [name for name, value in values.items() if value is not None]
    return names[0] if len(names) == 1 else None


def decode(schema: type[T], data: Any) -> T:
    """Plain data that is known to be valid, as its schema."""
    return msgspec.convert(data, schema, dec_hook=_custom)


def check(schema: type[T], data: Any, path: str = "") -> tuple[T | None, list[Violation]]:
    """The decoded data and all of its faults. `None` where no part of it can be decoded."""
    try:
        return decode(schema, data), []
    except msgspec.ValidationError:
        violations: list[Violation] = []
        try:
            sound = _Walk(violations).value(msgspec.inspect.type_info(schema), data, path)
        except _TooManyFaults:
            sound = _FAULTY
    if sound is _FAULTY:
        return None, violations
    try:
        return decode(schema, sound), violations
    except msgspec.ValidationError as error:
        return None, violations or [Violation(path, str(error))]


class Word(str):
    """A text that may be written as a bare number, such as an HTTP status."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Word:
        return cls(text)


def _custom(kind: type[Any], value: Any) -> Any:
    if kind is Word and isinstance(value, int) and not isinstance(value, bool):
        return Word(value)
    if not isinstance(value, str):
        raise ValueError(f"must be {_custom_description(kind)}")  # noqa: TRY004  # what msgspec takes for a violation
    return kind.parse(value)


def _custom_description(kind: type[Any]) -> str:
    return "a duration such as `15s`" if kind is Duration else "a text"


class _TooManyFaults(Exception):
    """There are more faults than `MOST_FAULTS`."""


class _Walk:
    """Walks a schema and the data together, notes every fault, and returns the data without its faulty parts.

    A faulty item of a list has a stand-in, because the items after it would get other indexes without it. So has a
    faulty field that is required.
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
        return self._fault(path, f"must be {' or '.join(map(_description, choices))}, not {_quoted(data)}", hint)

    def _struct(self, kind: msgspec.inspect.StructType, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            return self._fault(path, f"must be an object, not {_sort(data)}", _fields_hint(kind))
        fields = {field.encode_name: field for field in kind.fields}
        sound: dict[str, Any] = {}
        for name, value in data.items():
            if name not in fields:
                self._fault(step(path, str(name)), "unknown field", _meant(str(name), kind))
                continue
            sound_value = self.value(fields[name].type, value, step(path, name))
            if sound_value is not _FAULTY:
                sound[name] = sound_value
        for name, field in fields.items():
            if field.required and name not in sound:
                sound[name] = _stand_in(field.type)
                if name not in data:
                    self._fault(step(path, name), "must be set")
        return sound

    def _list(self, item: msgspec.inspect.Type, data: Any, path: str) -> Any:
        if not isinstance(data, list | tuple):
            return self._fault(path, f"must be a list, not {_sort(data)}", "begin each item with `- `")
        values = [self.value(item, inner, step(path, index)) for index, inner in enumerate(data)]
        return [_stand_in(item) if value is _FAULTY else value for value in values]

    def _dict(self, value: msgspec.inspect.Type, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            return self._fault(path, f"must be a mapping of names to values, not {_sort(data)}")
        entries = {str(key): self.value(value, inner, path + entry(str(key))) for key, inner in data.items()}
        return {key: inner for key, inner in entries.items() if inner is not _FAULTY}

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
        return self._fault(path, f"must be {_description(kind)}, not {_quoted(data)}", hint)

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
            raise _TooManyFaults
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


def _description(kind: msgspec.inspect.Type) -> str:
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
        return _custom_description(kind.cls)
    return names.get(type(kind), "something else")


def _quoted(data: Any) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, bool):
        return f"`{str(data).lower()}`"
    if isinstance(data, list):
        return "a list"
    return "an object" if isinstance(data, Mapping) else f"`{shortened(str(data))}`"


def _sort(data: Any) -> str:
    """What sort of data it is, without quoting it: it may be a secret."""
    return "a text" if isinstance(data, str) else "a number" if _is_scalar(data) else _quoted(data)


def shortened(text: str, most: int = _LONGEST_QUOTE) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _is_scalar(data: Any) -> bool:
    return isinstance(data, bool | int | float)


def near(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint that asks for a similar name; empty where no candidate is similar."""
    if len(name) > _LONGEST_MISSPELT:
        return ""
    candidates = list(candidates)
    exact = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    likely = exact or difflib.get_close_matches(name, candidates, n=1, cutoff=cutoff)
    return f"did you mean `{likely[0]}`?" if likely else ""


def _meant(name: str, kind: msgspec.inspect.StructType) -> str:
    """A hint for an unknown field: a field of the same name further inside comes before a similar one."""
    fields = [field.encode_name for field in kind.fields]
    inside = [path for path in _wire_names(kind, "") if path.endswith(f".{name}") and "[]" not in path]
    is_known = name.lower() in map(str.lower, fields)
    return f"did you mean `{min(inside, key=len)}`?" if inside and not is_known else near(name, fields)


def _fields_hint(kind: msgspec.inspect.StructType) -> str:
    names = [field.encode_name for field in kind.fields]
    return f"it has {', '.join(f'`{name}`' for name in names[:8])}" if names else ""


@cache
def wire_names(schema: type[Any]) -> tuple[str, ...]:
    """The paths in documents of all fields of a schema. Tables and documentation are checked against them."""
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
