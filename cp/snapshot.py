"""`Snapshot`: what one proxy should have, as bytes versioned by their content.

A snapshot is a few parts. All proxies of a class share one part, the same object, and each adds a part of its own;
so a thousand proxies that see a thousand services hold a thousand services once, and whatever is worked out
about a shared part (its version, its joined bytes, how it differs from its predecessor) is worked out once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

# The order in which a change is sent so that nothing refers to what is not there yet (make before break).
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET)
SHORT = MappingProxyType(
    {CLUSTER: "clusters", ENDPOINTS: "endpoints", LISTENER: "listeners", ROUTES: "routes", SECRET: "secrets"}
)

_NOTHING: Mapping[str, Packed] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Packed:
    """One Envoy resource, serialised, hashed and framed once, whoever it is sent to."""

    type_url: str
    name: str
    body: bytes = field(repr=False)
    version: str
    frame: bytes = field(repr=False, compare=False)
    delta_frame: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, type_url: str, name: str, body: bytes) -> Packed:
        version = hashlib.sha256(body).hexdigest()[:16]
        inner = _text(1, type_url) + _bytes(2, body)
        return cls(
            type_url=type_url,
            name=name,
            body=body,
            version=version,
            frame=_bytes(2, inner),
            delta_frame=_bytes(2, _text(1, version) + _bytes(2, inner) + _text(3, name)),
        )


class Part:
    """Some resources that go together, shared by every proxy that has them."""

    __slots__ = ("_bodies", "_types", "_versions")

    def __init__(self, resources: Iterable[Packed] = ()) -> None:
        types: dict[str, dict[str, Packed]] = {}
        for packed in resources:
            types.setdefault(packed.type_url, {})[packed.name] = packed
        self._types = {type_url: dict(sorted(of_type.items())) for type_url, of_type in types.items()}
        self._versions: dict[str, str] = {}
        self._bodies: dict[str, bytes] = {}

    def of(self, type_url: str) -> Mapping[str, Packed]:
        return self._types.get(type_url, _NOTHING)

    def version(self, type_url: str) -> str:
        """What all resources of a type amount to: equal for equal resources."""
        if type_url not in self._versions:
            digest = hashlib.sha256()
            for name, packed in self.of(type_url).items():
                digest.update(f"{name}\0{packed.version}\0".encode())
            self._versions[type_url] = digest.hexdigest()[:16]
        return self._versions[type_url]

    def frames(self, type_url: str) -> bytes:
        """The resources of a type as they stand in a state-of-the-world response, joined once."""
        if type_url not in self._bodies:
            self._bodies[type_url] = b"".join(packed.frame for packed in self.of(type_url).values())
        return self._bodies[type_url]

    def __len__(self) -> int:
        return sum(map(len, self._types.values()))

    def __iter__(self) -> Iterator[Packed]:
        for type_url in TYPES:
            yield from self.of(type_url).values()


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to be said to get from one set of resources to another."""

    updated: tuple[Packed, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.removed)


class Snapshot:
    """Everything that one proxy should have. No name is in two parts."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Part) -> None:
        self.parts = parts

    def get(self, type_url: str, name: str) -> Packed | None:
        for part in self.parts:
            if (found := part.of(type_url).get(name)) is not None:
                return found
        return None

    def of(self, type_url: str) -> Iterator[Packed]:
        for part in self.parts:
            yield from part.of(type_url).values()

    def names(self, type_url: str) -> Iterator[str]:
        for part in self.parts:
            yield from part.of(type_url)

    def version(self, type_url: str) -> str:
        """The version of a whole type. Equal content has equal versions, however it is cut into parts."""
        filled = [part for part in self.parts if part.of(type_url)]
        if len(filled) == 1:
            return filled[0].version(type_url)
        return Part(self.of(type_url)).version(type_url)

    def frames(self, type_url: str) -> bytes:
        filled = [part for part in self.parts if part.of(type_url)]
        return filled[0].frames(type_url) if len(filled) == 1 else b"".join(p.frames(type_url) for p in filled)

    def since(self, before: Snapshot, type_url: str) -> Difference:
        """How the resources of a type differ from those of an earlier snapshot. Shared parts cost nothing."""
        ours = [part for part in self.parts if part not in before.parts]
        theirs = [part for part in before.parts if part not in self.parts]
        if not ours and not theirs:
            return Difference()
        old = {name: packed for part in theirs for name, packed in part.of(type_url).items()}
        new = {name: packed for part in ours for name, packed in part.of(type_url).items()}
        return Difference(
            updated=tuple(p for name, p in new.items() if name not in old or old[name].version != p.version),
            removed=tuple(name for name in old if name not in new),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return self.parts == other.parts or all(self.version(t) == other.version(t) for t in TYPES)

    __hash__ = None  # type: ignore[assignment]  # equality is by content, and content is not cheap to hash

    def __len__(self) -> int:
        return sum(map(len, self.parts))


EMPTY = Snapshot()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field_number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field. Messages join by concatenation, so framed resources can be joined too."""
    return _varint(field_number << 3 | 2) + _varint(len(value)) + value


def _text(field_number: int, value: str) -> bytes:
    return _bytes(field_number, value.encode())
