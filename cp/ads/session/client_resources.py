"""`ClientResources`: what a client has of one type, without a list of its own.

The client has what `base` has, a snapshot that all streams share, except for the few names in `deviations`: what it
NACKed, what it is to lose only later, what it kept from an earlier stream. A thousand clients that have the same
thousand resources so cost a thousand references to one snapshot.

Three things always hold:

- a name in `nacked` is in `deviations` too: the client does not have what `base` has of it;
- a name in `deviations` was subscribed to when it was entered, and `advance_by` leaves it to `end_deviations`;
- where responses repeat everything, a deviation that the client has to keep is in `_kept`, as `base` no longer has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cp.ads.session.messages import NackedResource
from cp.ads.session.subscription import Subscription
from cp.translate.packing import CLUSTER, LISTENER, PackedResource, ResourceBatch
from cp.translate.snapshot import EMPTY, PartDifference, Snapshot

# Types with a wildcard. Their removal is sent: in a delta response by name, in a state-of-the-world response by leaving
# them out. Of other types Envoy drops a resource itself, once nothing that it has refers to it.
# https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#deleting-resources
WILDCARD_TYPES = frozenset({CLUSTER, LISTENER})

# Versions in `deviations` that no resource has, so that any resource differs from them.
ABSENT = ""  # the client does not have the resource
UNKNOWN = "?"  # the client has the resource, or not, in a version that we do not know


class ClientResources:
    __slots__ = (
        *("_kept", "_nacked_then_replaced", "_repeats_all", "_subscription", "_type_url"),
        *("base", "deviations", "nacked"),
    )

    def __init__(self, subscription: Subscription, *, repeats_all: bool) -> None:
        """`repeats_all`: each response holds all resources, so that what the client is to keep has to be in it."""
        self.base = EMPTY
        self.deviations: dict[str, str] = {}  # name -> the version that the client has instead of that in `base`
        self.nacked: dict[str, str] = {}  # name -> the version that is held back, because the client NACKed it
        self._kept: dict[str, PackedResource] = {}  # name -> what the client has instead, to be repeated
        # name -> a version that the client NACKed and that was replaced since
        self._nacked_then_replaced: dict[str, str] = {}
        self._repeats_all = repeats_all
        self._subscription = subscription
        self._type_url = subscription.type_url

    @property
    def has_open_deviations(self) -> bool:
        """Something is held back or has still to be removed."""
        # What is gone of a type without wildcard stays a deviation for ever: there is no message that removes it.
        return bool(self.deviations) and (bool(self.nacked) or self._type_url in WILDCARD_TYPES)

    def is_nacked(self, packed: PackedResource | None) -> bool:
        return packed is not None and self.nacked.get(packed.name) == packed.version

    def names_nacked_in(self, snapshot: Snapshot) -> list[str]:
        """The names of which a snapshot has the very version that the client NACKed."""
        resources = (snapshot.get(self._type_url, name) for name in self.nacked)
        return [packed.name for packed in resources if packed is not None and self.is_nacked(packed)]

    def forget(self, names: Iterable[str]) -> None:
        """The client has unsubscribed from these, so it is free to drop them."""
        for name in names:
            self.deviations.pop(name, None)
            self.nacked.pop(name, None)
            self._kept.pop(name, None)
            self._nacked_then_replaced.pop(name, None)

    # --- on the way to another snapshot ---

    def advance_by(self, difference: PartDifference, requested: frozenset[str]) -> ResourceBatch:
        """The part of a difference that is new to the client; what it removes becomes a deviation.

        Requested names are left out, as they are answered in any case, and deviations, as they are resolved later.
        """
        # Nothing deviates most of the time; then the batch that all streams share is passed on as it is.
        without = requested | self.deviations.keys() if self.deviations else requested
        for name in difference.removed:
            if name in self._subscription and name not in without:
                self._enter_removed(name)
        return self._subscription.select(difference.updated, without)

    def _enter_removed(self, name: str) -> None:
        packed = self.base.get(self._type_url, name)
        self.deviations[name] = UNKNOWN if packed is None else packed.version
        if self._repeats_all and packed is not None:
            self._kept[name] = packed

    def end_deviations(
        self, snapshot: Snapshot, outgoing: Snapshot, *, may_remove: bool
    ) -> tuple[list[PackedResource], list[str]]:
        """What can be sent now to end deviations: resources that differ, and names that are gone.

        `outgoing` has what the snapshot has no more and other resources may still need; `may_remove` tells whether
        clusters may go yet.
        """
        updated: list[PackedResource] = []
        removed: list[str] = []
        can_remove = may_remove and self._type_url in WILDCARD_TYPES
        # A client that no longer subscribes to all does not name what it has unsubscribed from.
        self.forget([name for name in self.deviations if name not in self._subscription])
        for name, client_version in list(self.deviations.items()):
            packed = snapshot.get(self._type_url, name) or outgoing.get(self._type_url, name)
            if self.is_nacked(packed):
                continue
            # Another version than the one that was NACKed, or none: the NACK has had its effect.
            self._end_nack(name)
            if packed is not None:
                self.record_sent(packed, snapshot)
                updated += [packed] if packed.version != client_version else []
            elif can_remove:
                del self.deviations[name]
                removed.append(name)
        return updated, removed

    def record_sent(self, packed: PackedResource, snapshot: Snapshot) -> None:
        """From here on the client has this resource, which is in the snapshot or is outgoing."""
        if snapshot.get(self._type_url, packed.name) is None:  # it is outgoing: the client will lose it
            self.deviations[packed.name] = packed.version
        else:
            self.deviations.pop(packed.name, None)

    def supersede(self, names: frozenset[str]) -> None:
        """These are sent in any case, which ends their deviations and their NACKs."""
        # Deviations are few, and names may be thousands.
        for name in [name for name in self.deviations if name in names]:
            del self.deviations[name]
            self._end_nack(name)

    def _end_nack(self, name: str) -> None:
        """Another version takes the place of the one that the client NACKed, and never took."""
        version = self.nacked.pop(name, None)
        if version is not None:
            self._nacked_then_replaced[name] = version

    # --- answers of the client ---

    def record_nack(self, new_resources: list[PackedResource], culprits: list[PackedResource], acked: Snapshot) -> None:
        """Take note of a NACK: `new_resources` came with it, `culprits` are to blame, `acked` is what was ACKed last.

        A client may have applied what came together with a culprit, or not. So it is sent again.
        """
        for packed in new_resources:
            # Where base has another version by now, that one is on its way to the client and decides.
            if self.base.get(self._type_url, packed.name) == packed and self._has_base_version(packed.name):
                self.deviations[packed.name] = UNKNOWN
                self._keep(acked.get(self._type_url, packed.name), packed)
                if packed in culprits:
                    self.nacked[packed.name] = packed.version

    def repeat_removals(self, names: Iterable[str]) -> None:
        """The response that removed these was NACKed: remove them once more."""
        for name in names:
            if self.base.get(self._type_url, name) is None and self._has_base_version(name):
                self.deviations[name] = UNKNOWN

    def release(self, names: Iterable[str]) -> None:
        """Let these be sent again, though they were NACKed."""
        if self.nacked:
            for name in names:
                self.nacked.pop(name, None)

    def drop_older_versions(self, acked: Snapshot, *, is_everything_answered: bool) -> None:
        """After an ACK the client has nothing any more of what no longer deviates.

        While newer responses are pending it may yet NACK what replaces it, and then still has what it had.
        """
        if is_everything_answered:
            for name in self._kept.keys() - self.deviations.keys():
                del self._kept[name]
        for name, version in list(self._nacked_then_replaced.items()):
            packed = acked.get(self._type_url, name)
            if packed is None or packed.version != version:
                del self._nacked_then_replaced[name]

    @property
    def nacked_resources(self) -> tuple[NackedResource, ...]:
        """What the client NACKed, and what it has instead."""
        kept = ((name, version, self._kept.get(name)) for name, version in self.nacked.items())
        return tuple(
            NackedResource(name, version, "" if packed is None else packed.version) for name, version, packed in kept
        )

    def _has_base_version(self, name: str) -> bool:
        return name in self._subscription and name not in self.deviations

    def _keep(self, in_force: PackedResource | None, nacked: PackedResource) -> None:
        # The first stays: after a second NACK the client still has what it had before the first. What was ACKed last is
        # a snapshot: of what was held back then it has the version that the client did not take.
        if in_force is None or in_force == nacked:
            return
        was_nacked = self._nacked_then_replaced.get(nacked.name) == in_force.version
        if not was_nacked:
            self._kept.setdefault(nacked.name, in_force)

    # --- all of it ---

    def content(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """All that the client should have now: also what goes only later, or stays in place of what it NACKed."""
        # Without deviations these are the shared batches of the snapshot, and so are their bytes on the wire.
        subscribed = self._subscription.batches_of(snapshot)
        if not self.deviations:
            return subscribed
        unchanged = [packed for batch in subscribed for packed in batch if packed.name not in self.deviations]
        kept = [self._kept[name] for name in self.deviations if name in self._kept]
        return (ResourceBatch(unchanged + kept),)
