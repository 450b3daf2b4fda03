"""`Subscription`: what a client wants of one type on one stream, and which of its requests are not answered yet.

The rules are those of "How the client specifies what resources to return" and "Unsubscribing From Resources":
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-hints
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from cp.ads.session.messages import WILDCARD
from cp.translate.packing import ResourceBatch
from cp.translate.snapshot import Snapshot, SnapshotPart

_MANY = 32  # names in a part: below, a comparison of name sets costs more than it saves


class Subscription:
    """All resources of a type (`wildcard`), or those with these names."""

    __slots__ = (
        *(
            "_covered_part",
            "has_named",
            "initial_version",
            "initial_versions",
            "names",
            "requested",
            "requests_all",
            "resends",
        ),
        *("type_url", "wildcard"),
    )

    def __init__(self, type_url: str) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.has_named = False  # state of the world: the client has named a resource, or `*`
        self.names: frozenset[str] = frozenset()
        self.requested: frozenset[str] = frozenset()  # names to send in any case, even if the client may have them
        self.requests_all = False  # every name is to be sent in any case
        self.resends: list[frozenset[str]] = []  # names that the client needs once more, if it subscribes to them
        self.initial_version = ""  # state of the world: the version that the client has from an earlier stream
        self.initial_versions: dict[str, str] = {}  # delta: the same for each name
        self._covered_part: tuple[frozenset[str], frozenset[str]] | None = None

    def __contains__(self, name: str) -> bool:
        return self.wildcard or name in self.names

    @property
    def has_open_requests(self) -> bool:
        return bool(self.requested or self.requests_all or self.resends or self.initial_versions)

    @property
    def has_versions(self) -> bool:
        """The client has named versions of an earlier stream, with which it was not compared yet."""
        return self.initial_version != "" or bool(self.initial_versions)

    # --- requests ---

    def add(self, names: frozenset[str]) -> None:
        """Names that the client had already are sent again too: it may have dropped what it had."""
        self.names = _union(self.names, names)
        self.requested = _union(self.requested, names)

    def remove(self, names: frozenset[str]) -> None:
        """Names to which the client never subscribed are ignored."""
        if WILDCARD in names:
            self.wildcard = False
        self.names -= names
        self.requested -= names
        for name in names & self.initial_versions.keys():
            del self.initial_versions[name]

    def take_requested(self, snapshot: Snapshot) -> frozenset[str]:
        """The names that have to be sent in any case; from here on they count as answered."""
        requested, self.requested = self.requested, frozenset()
        if self.requests_all:
            self.requests_all = False
            requested = requested.union(*(batch.names for batch in self.batches_of(snapshot)))
        for names in self.resends:
            # The difference first: it leaves `requested` the object that it was if nothing is added.
            requested = _union(requested, (names - requested) & self.names)
        self.resends.clear()
        return requested

    def take_initial_version(self) -> str:
        version, self.initial_version = self.initial_version, ""
        return version

    def take_initial_versions(self) -> Mapping[str, str]:
        versions, self.initial_versions = self.initial_versions, {}
        return versions

    # --- what it selects ---

    def batches_of(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """The subscribed resources of a snapshot."""
        if self.wildcard:
            return snapshot.whole(self.type_url)
        filled = (part for part in snapshot.parts if part.of(self.type_url))
        return tuple(batch for part in filled if (batch := self._batch_of(part)))

    def _batch_of(self, part: SnapshotPart) -> ResourceBatch:
        # Parts that succeed one another share one frozenset of names. So whether a subscription covers the whole of a
        # large part is found out once for all of them, and until then by identity.
        names = part.names(self.type_url)
        if self._covered_part is not None and self._covered_part[0] is self.names and self._covered_part[1] is names:
            return part.whole(self.type_url)
        if len(names) >= _MANY and names <= self.names:
            self._covered_part = (self.names, names)
        return part.select(self.type_url, self.names)

    def select(self, updated: ResourceBatch, without: AbstractSet[str]) -> ResourceBatch:
        """The subscribed ones among updated resources, without some names: the very batch if that is all of it."""
        if not without and (self.wildcard or updated.names <= self.names):
            return updated
        return ResourceBatch(packed for packed in updated if packed.name in self and packed.name not in without)


def _union(names: frozenset[str], added_names: frozenset[str]) -> frozenset[str]:
    """Where one of them is empty it is the other, the very object that other streams hold too."""
    return names | added_names if names and added_names else names or added_names
