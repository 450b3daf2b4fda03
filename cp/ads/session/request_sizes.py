"""The size of requests and of the memory that they take, measured by what the client is sent.

A client that reconnects names all that it has. In a mesh of 30,000 services these are megabytes, in a small one they
are not. So the names of what a client is sent cost it nothing, and its requests may be as much larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from sys import getsizeof
from typing import Final

from cp.ads.session.messages import TooManyNames
from cp.translate.packing import TYPES
from cp.translate.snapshot import Snapshot

MOST_UNEXPECTED: Final = 2 * 1024 * 1024
"""Bytes of a request in addition to the names and versions of what its client is sent."""

_PER_RESOURCE: Final = 40
"""Bytes of a version of ours (16), and of the tags and sizes around it and two names."""

_PER_NAME: Final = 64
"""Bytes of memory for each name in a set, beyond its text."""

_VERSION: Final = getsizeof("0" * 16)


def check_size(size: int, given: Snapshot) -> None:
    """Check the size of a request of a client that is given this snapshot. Raises `TooManyNames`.

    It is checked before the request is parsed, which takes several times as much memory.
    """
    if size <= MOST_UNEXPECTED:
        return
    most = MOST_UNEXPECTED + max(_bytes_of_request(given, type_url) for type_url in TYPES)
    if size > most:
        raise TooManyNames(f"a request has {size} bytes: {most} are the most, by what this proxy is sent")


def held_bytes(type_url: str, names: AbstractSet[str], versions: Mapping[str, str], given: Snapshot) -> int:
    """Return the memory that names and versions of a client take, about, without what it is given."""
    known = [part.names(type_url) for part in given.parts]
    unknown, old = frozenset(names).difference(*known), frozenset(versions).difference(*known)
    size = sum(map(getsizeof, (*unknown, *old))) + _PER_NAME * (len(unknown) + len(old))
    known_versions = _VERSION * (len(versions) - len(old))
    return size + max(0, sum(map(getsizeof, versions.values())) - known_versions)


def _bytes_of_request(given: Snapshot, type_url: str) -> int:
    """Return the bytes with which a delta client names all resources of a type: it subscribes to each, and has one."""
    count = given.count(type_url)
    return 2 * sum(map(len, given.names(type_url))) + _PER_RESOURCE * count
