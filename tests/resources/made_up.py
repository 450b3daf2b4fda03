"""Documents that are made up along a schema: mostly what may stand there, and now and then anything at all."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from cp.model.duration import Duration
from cp.resources.kinds import Kind

_TEXTS = (
    *("", "x", "-", "*", "/", "/a/", "{", "(", "(?=a)", "é", "\x00", "٣", "a" * 300, "1e9", "1.5", "50%", "[::1]:1"),
    *("Mesh", "MeshService", "MeshSubset", "MeshServiceSubset", "MeshGateway", "MeshHTTPRoute", "MeshTCPRoute"),
    *("Dataplane", "kuma.io/service", "spiffe://a/b", "http://a:1", "a:1", "10.0.0.1", "10.0.0.0/8", "*.a.b"),
    *("Add", "AddBefore", "Patch", "Remove", "replace", "name: x\n", "- a\n", "5xx", "503", "0s", "5s", "10 kbps"),
)
_NUMBERS = (-1, 0, 1, 2, 80, 404, 1024, 10007, 70000, 10**7, 2**40, 10**30)
_OTHERS = (None, True, False, 0.5, -0.0, float("nan"), float("inf"))
_DURATIONS = ("0s", "5s", "-1s", "1h", "10ms", "1 minute", "7")
_KEYS = ("a", "", "kuma.io/service", "kuma.io/servce", "é", "kind", "name", "to")


class Maker:
    """Makes documents, the same ones from the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def document(self, kind: Kind) -> dict[str, Any]:
        envelope = {"type": kind.name, "mesh": "default", "name": "x"}
        made = self._value(msgspec.inspect.type_info(kind.schema), 0)
        if not kind.is_inlined:
            return envelope | {"spec": made}
        return made | envelope if isinstance(made, dict) else envelope

    def _value(self, kind: msgspec.inspect.Type, depth: int) -> Any:
        if self._chance.random() < 0.06:
            return self._anything(2)
        if isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
            within = (kind.type,) if isinstance(kind, msgspec.inspect.Metadata) else kind.types
            return self._value(self._chance.choice(within), depth)
        match kind:
            case msgspec.inspect.StructType():
                return self._struct(kind, depth)
            case msgspec.inspect.ListType():
                return [self._value(kind.item_type, depth + 1) for _ in range(self._chance.randint(0, 3))]
            case msgspec.inspect.DictType():
                return {key: self._value(kind.value_type, depth + 1) for key in self._chance.sample(_KEYS, 2)}
            case _:
                return self._leaf(kind)

    def _struct(self, kind: msgspec.inspect.StructType, depth: int) -> dict[str, Any]:
        share = 0.75 if depth < 3 else 0.5
        fields = [field for field in kind.fields if self._chance.random() < share]
        made = {field.encode_name: self._value(field.type, depth + 1) for field in fields}
        return made | {self._chance.choice(_KEYS): self._anything(1)} if self._chance.random() < 0.03 else made

    def _leaf(self, kind: msgspec.inspect.Type) -> Any:
        choices: dict[type, tuple[Any, ...]] = {
            msgspec.inspect.NoneType: (None,),
            msgspec.inspect.BoolType: (True, False),
            msgspec.inspect.IntType: _NUMBERS,
            msgspec.inspect.StrType: _TEXTS,
        }
        if isinstance(kind, msgspec.inspect.LiteralType):
            return self._chance.choice(kind.values)
        if isinstance(kind, msgspec.inspect.CustomType):
            return self._chance.choice(_DURATIONS if kind.cls is Duration else _TEXTS)
        given = choices.get(type(kind))
        return self._chance.choice(given) if given else self._anything(2)

    def _anything(self, depth: int) -> Any:
        sort = self._chance.random()
        if depth and sort < 0.2:
            return [self._anything(depth - 1) for _ in range(self._chance.randint(0, 2))]
        if depth and sort < 0.4:
            return {self._chance.choice(_KEYS): self._anything(depth - 1) for _ in range(self._chance.randint(0, 2))}
        return self._chance.choice((*_TEXTS, *_NUMBERS, *_OTHERS))
