"""`ClientResources`: what a client has of one type, without a list of its own.

The client has what `base` has, a snapshot that all streams share, except for the few names in `deviations`: what it
NACKed, what it is to lose only later, what it kept from an earlier stream. A thousand clients that have the same
thousand resources so cost a thousand references to one snapshot.

`Channel` alone uses it. Requests lead to `supersede`, `record_sent` and `forget`; `advance_by` and `end_deviations`
bring the client to another snapshot; `record_nack`, `repeat_removals`, `release` and `drop_older_versions` follow the
client's answers. `Channel` also sets `base` and `deviations` itself: where a client resumes an earlier stream, names
what it has, or has to go back to what it ACKed. It knows versions and names, and nothing of what is in a resource, of
responses, nonces or the order of types.

Three things always hold, and `Channel` keeps them too:

- a name in `nacked` is in `deviations` too: the client does not have what `base` has under that name;
- a name in `deviations` was subscribed to when it was entered, and `advance_by` leaves it to `end_deviations`;
- where responses repeat everything, `_kept` has each resource that the client is to keep and `base` no longer has. What
  is sent from `outgoing` is not in it: those types (endpoints, secrets) do not repeat everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import ref

from cp.ads.session.messages import NackedResource
from cp.ads.session.subscription import Subscription
from cp.translate.packing import CLUSTER, LISTENER, PackedResource, ResourceBatch
from cp.translate.snapshot import EMPTY, PartDifference, Snapshot

# Types with a wildcard. A state-of-the-world response has all resources of these types, and so removes all others.
# https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#deleting-resources
WILDCARD_TYPES = frozenset({CLUSTER, LISTENER})

# Versions in `deviations` that no resource has, so that any resource differs from them.
ABSENT = ""  # the client does not have the resource
UNKNOWN = "?"  # the client has the resource, or not, in a version that we do not know


class ClientResources:
    __slots__ = (
        *("_can_remove", "_deviations", "_kept", "_nacked_then_replaced", "_repeats_all", "_settled"),
        *("_subscription", "_type_url", "base", "nacked"),
    )

    def __init__(self, subscription: Subscription, *, repeats_all: bool, can_remove: bool) -> None:
        """`repeats_all`: a response holds all that the client is to keep; `can_remove`: a response can remove some."""
        self.base = EMPTY  # what the client has, or will have once it has ACKed all that is pending
        self._deviations: dict[str, str] = {}
        self._settled: tuple[object, ...] | None = None  # for what `end_deviations` has nothing left to send
        self.nacked: dict[str, str] = {}  # name -> the version that is held back, because the client NACKed it
        # name -> the resource that the client has instead of that in `base`: what a NACKed version would have replaced
        # (`NackedResource.in_force`), and, where responses repeat everything, what is to be removed only later.
        self._kept: dict[str, PackedResource] = {}
        # name -> a version that the client NACKed and that another has replaced since. It may be in a snapshot that the
        # client ACKed, as what is held back is left out of responses only; but the client never had it.
        self._nacked_then_replaced: dict[str, str] = {}
        self._repeats_all = repeats_all
        self._can_remove = can_remove
        self._subscription = subscription
        self._type_url = subscription.type_url

    @property
    def deviations(self) -> dict[str, str]:
        """Name -> the version that the client has instead of that in `base`."""
        return self._deviations

    def deviate(self, versions: Mapping[str, str]) -> None:
        """Enter names with the versions that the client has."""
        self._deviations.update(versions)
        self._settled = None

    @property
    def has_open_deviations(self) -> bool:
        """A deviation may end without a newer snapshot: it is held back, or has still to be sent or removed."""
        # Without a message that removes it, a resource that is gone stays a deviation for ever.
        return bool(self.deviations) and (bool(self.nacked) or self._can_remove)

    def is_nacked(self, packed: PackedResource | None) -> bool:
        """The client NACKed this very version, so that it is held back."""
        return packed is not None and self.nacked.get(packed.name) == packed.version

    def names_nacked_in(self, snapshot: Snapshot) -> list[str]:
        """The names under which a snapshot has the very version that the client NACKed."""
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
        """The resources of a difference that are new to the client; the names that it removes become deviations.

        Requested names are left out, as they are answered in any case, and deviations, as `end_deviations` is next.
        """
        # Nothing deviates most of the time; then the batch that all streams share is passed on as it is.
        without = requested | self.deviations.keys() if self.deviations else requested
        for name in difference.removed:
            if name in self._subscription and name not in without:
                self._enter_removed(name)
        return self._subscription.select(difference.updated, without)

    def _enter_removed(self, name: str) -> None:
        packed = self.base.get(self._type_url, name)
        self.deviate({name: UNKNOWN if packed is None else packed.version})
        if self._repeats_all and packed is not None:
            self._kept[name] = packed

    def end_deviations(
        self, snapshot: Snapshot, outgoing: Snapshot, *, may_remove: bool
    ) -> tuple[list[PackedResource], list[str]]:
        """What can be sent now to end deviations: resources that differ, and names that are gone.

        `outgoing` has what the snapshot lacks and the client is to keep for now. `may_remove` tells whether resources
        that neither of them has may be removed yet.
        """
        # A client that unsubscribes from thousands of names one by one would have all others looked at for each.
        parts = tuple(tuple(map(ref, resources.parts)) for resources in (snapshot, outgoing))
        basis = parts, may_remove, self._subscription.wildcard
        if basis == self._settled:
            return [], []
        updated: list[PackedResource] = []
        removed: list[str] = []
        can_remove = may_remove and self._can_remove
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
        self._settled = basis
        return updated, removed

    def record_sent(self, packed: PackedResource, snapshot: Snapshot) -> None:
        """From here on the client has this resource, which is in the snapshot or is outgoing."""
        self._settled = None
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
        """The version that the client NACKed has been replaced, so that it is no longer held back."""
        version = self.nacked.pop(name, None)
        if version is not None:
            self._nacked_then_replaced[name] = version

    # --- answers of the client ---

    def record_nack(self, new_resources: list[PackedResource], culprits: list[PackedResource], acked: Snapshot) -> None:
        """The client NACKed a response: hold back `culprits`, and send the other new resources of it again.

        It may have applied what came together with a culprit, or not. `acked` is the snapshot that it ACKed last.
        """
        for packed in new_resources:
            # If `base` has another version by now, that one is on its way to the client, whose answer to it decides.
            if self.base.get(self._type_url, packed.name) == packed and self._has_base_version(packed.name):
                self.deviate({packed.name: UNKNOWN})
                self._keep(acked.get(self._type_url, packed.name), packed)
                if packed in culprits:
                    self.nacked[packed.name] = packed.version

    def repeat_removals(self, names: Iterable[str]) -> None:
        """The response that removed these was NACKed: remove them once more."""
        for name in names:
            if self.base.get(self._type_url, name) is None and self._has_base_version(name):
                self.deviate({name: UNKNOWN})

    def release(self, names: Iterable[str]) -> None:
        """Let these be sent again, though the client NACKed them: their deviations stay, and are not held back."""
        self._settled = None
        if self.nacked:
            for name in names:
                self.nacked.pop(name, None)

    def drop_older_versions(self, acked: Snapshot, *, is_everything_answered: bool) -> None:
        """After an ACK, forget the older versions of what no longer deviates. `acked` is the snapshot that was ACKed.

        While newer responses are pending the client may yet NACK what replaces such a version, and then still has it.
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
        """What is held back because the client NACKed it, and what it has instead."""
        kept = ((name, version, self._kept.get(name)) for name, version in self.nacked.items())
        return tuple(
            NackedResource(name, version, "" if packed is None else packed.version) for name, version, packed in kept
        )

    def _has_base_version(self, name: str) -> bool:
        """The client has or is being sent what `base` has under this name."""
        return name in self._subscription and name not in self.deviations

    def _keep(self, in_force: PackedResource | None, nacked: PackedResource) -> None:
        """Remember what the client has instead of a NACKed resource: what the snapshot that it ACKed last has."""
        if in_force is None or in_force == nacked:
            return
        # That snapshot also has what was held back when it was ACKed, which the client never had.
        was_nacked = self._nacked_then_replaced.get(nacked.name) == in_force.version
        if not was_nacked:
            # The first stays: after a second NACK the client still has what it had before the first.
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
