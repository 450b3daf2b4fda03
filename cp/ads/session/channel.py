"""`Channel`: one type of resources on one stream. It decides what is new to the client, and not how that is said."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cp.ads.session.client_resources import ABSENT, LISTED, ClientResources, Subscription
from cp.ads.session.messages import WILDCARD, Nack, Response, ResponseCounts, TypeStatus
from cp.ads.session.nack_suspects import NackSuspects
from cp.ads.session.pending import NO_CHANGES, ChannelUpdate, PendingResponses, SentResponse
from cp.translate.snapshot import CLUSTER, EMPTY, ENDPOINTS, PackedResource, ResourceBatch, Snapshot, version_of

# Types of which "there is none" is an answer. A listener whose routes were answered so would never get ready.
ANSWERED_IF_MISSING = LISTED | {ENDPOINTS}


class Channel:
    __slots__ = (
        *(
            "_acknowledged",
            "_acknowledged_version",
            "_resends",
            "_is_tracking",
            "_initial_versions",
            "_must_respond",
            "_requested",
            "_resources",
            "_pending",
        ),
        *(
            "_is_content_known",
            "_nacks_by_name",
            "_nack_of_version",
            "_nacked_version",
            "_sent",
            "_suspects",
            "_trusts_versions",
            "is_subscribed",
            "initial_version",
        ),
        *("accepted", "sends_all", "nonce", "rejected"),
        *("messages", "resources", "size", "subscription", "version", "type_url"),
    )

    def __init__(self, type_url: str, *, sends_all: bool, trusts_versions: bool) -> None:
        self.type_url = type_url
        self.sends_all = sends_all  # every response holds all there is
        self.is_subscribed = False
        self.subscription = Subscription(type_url)
        self.initial_version = ""  # the version that the client said it has of all
        self.nonce = ""  # the nonce of the newest response
        self.version = ""  # the version that the client has, or will have once it has read everything
        self.messages = self.resources = self.size = 0
        self.accepted = self.rejected = 0  # responses
        self._resources = ClientResources(self.subscription, repeats_all=sends_all)
        self._pending = PendingResponses()
        self._initial_versions: dict[str, str] = {}  # the versions that the client said it has of each
        self._trusts_versions = trusts_versions
        self._requested: frozenset[str] = frozenset()  # asked for, and to be sent whatever was told before
        self._resends: list[frozenset[str]] = []
        self._must_respond = False
        self._is_tracking = False
        self._is_content_known = False  # what the client has is known, name by name
        self._sent = self._acknowledged = EMPTY
        self._acknowledged_version = self._nacked_version = ""
        self._nack_of_version: Nack | None = None  # of a whole version
        self._nacks_by_name: dict[str, Nack] = {}  # of what is held back
        self._suspects = NackSuspects()

    # --- what is asked for ---

    def subscribe_to_all(self) -> None:
        if not self.subscription.wildcard:
            self.subscription.wildcard, self._must_respond, self._is_tracking = True, True, False
            self._resources = ClientResources(self.subscription, repeats_all=self.sends_all)

    def subscribe(self, names: frozenset[str]) -> None:
        """From now on these too; those asked for again are sent again."""
        self.subscription.names = _joined(self.subscription.names, names)
        self._requested = _joined(self._requested, names)

    def unsubscribe(self, names: frozenset[str]) -> None:
        if WILDCARD in names:
            self.subscription.wildcard = False
        self.subscription.names -= names
        self._requested -= names
        self._resources.forget(names)
        for name in names & self._initial_versions.keys():
            del self._initial_versions[name]

    def note_initial_versions(self, versions: Mapping[str, str]) -> None:
        """What the client says it has already, from an earlier stream."""
        self._initial_versions.update(versions)

    def distrust_versions(self) -> None:
        """The client may since have dropped what it had when it got the version that it names."""
        self._trusts_versions = False

    def resend(self, names: frozenset[str]) -> None:
        """The client needs these once more, though they did not change and it may say that it has them."""
        self._resends.append(names)

    def cancel_resends(self) -> None:
        self._resends.clear()

    # --- what is new to the client ---

    def advance_to(self, wanted: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True) -> ChannelUpdate:
        """What it takes to get the client to `wanted`; from here on that counts as told."""
        if self._is_tracking and not self._has_work:
            steps = () if wanted is self._resources.base else wanted.steps(self._resources.base, self.type_url)
            if not steps:
                self.rebase(wanted)
                return NO_CHANGES
        self._start_tracking(wanted)
        requested = self._take_requested(wanted)
        batches, missing = self._answers(requested, wanted, fallback)
        batches += [
            self._resources.apply(step, requested) for step in wanted.steps(self._resources.base, self.type_url)
        ]
        self._resources.base = wanted
        updated, removed = self._resources.resolve(wanted, fallback, removing=removing)
        due, self._must_respond = (
            self._must_respond or (self.sends_all and len(requested) > 0) or self._is_version_unknown,
            False,
        )
        return ChannelUpdate(tuple(filter(None, (*batches, ResourceBatch(updated)))), (*missing, *removed), due)

    def is_at_base(self, snapshot: Snapshot) -> bool:
        return self._resources.base is snapshot

    def rebase(self, snapshot: Snapshot) -> None:
        """The client has as much of this as of the one before, which is let go: nobody else may need it any more."""
        base = self._resources.base
        if self._sent is base:
            self._sent = snapshot
        if self._acknowledged is base:
            self._acknowledged = snapshot
        self._resources.base = snapshot

    @property
    def _has_work(self) -> bool:
        asked = self._requested or self._resends or self._initial_versions or self.initial_version
        return bool(asked or self._resources.deviations or self._is_version_unknown)

    @property
    def _is_version_unknown(self) -> bool:
        """Some of what the client refused it may have applied, so that even what it had before has to be sent."""
        return self.sends_all and self.version == ""

    def _start_tracking(self, wanted: Snapshot) -> None:
        """Take what the client says it has from before as the point to start from."""
        version_named, self.initial_version = self.initial_version, ""
        current = self._names_current_version(version_named, wanted)
        if current:
            self._requested = frozenset()
        if not self._is_tracking:
            self._is_tracking, self._is_content_known = True, current or version_named == ""
            if current or self._initial_versions:
                self._resume_at(wanted, version_named or wanted.version(self.type_url))
            elif not self.subscription.wildcard:
                self._resources.base = wanted
        self._compare_initial_versions(wanted)

    def _names_current_version(self, version_named: str, wanted: Snapshot) -> bool:
        weighs = version_named != "" and self._trusts_versions and not (self.sends_all and self._is_tracking)
        return weighs and version_named in (self.version_at(wanted), wanted.version(self.type_url))

    def _resume_at(self, wanted: Snapshot, version: str) -> None:
        """The client has this, but for what it versions_named otherwise."""
        self._resources.base = self._sent = self._acknowledged = wanted
        self.version = self._acknowledged_version = version
        self._must_respond = False
        if self.subscription.wildcard and self._initial_versions:
            missing = wanted.versions(self.type_url).keys() - self._initial_versions.keys()
            self._resources.deviations = dict.fromkeys(missing, ABSENT)

    def _compare_initial_versions(self, wanted: Snapshot) -> None:
        """Compare what the client says it has with what it should have."""
        versions_named, self._initial_versions = self._initial_versions, {}
        if not versions_named or (self.type_url == ENDPOINTS and not self._trusts_versions):
            return  # what was under way may have left a cluster waiting for endpoints that the client has
        versions = wanted.versions(self.type_url)
        for name, version in () if versions_named == versions else versions_named.items() - versions.items():
            if name in self.subscription:
                self._resources.deviations[name] = version
        self._requested -= versions_named.keys()

    def _take_requested(self, wanted: Snapshot) -> frozenset[str]:
        requested, self._requested = self._requested, frozenset()
        for names in self._resends:
            requested = _joined(requested, (names - requested) & self.subscription.names)
        self._resends.clear()
        refused = (wanted.get(self.type_url, name) for name in self._resources.nacked)
        but = [packed.name for packed in refused if packed and self._resources.is_nacked(packed)]
        return requested.difference(but) if but else requested

    def _answers(
        self, requested: frozenset[str], wanted: Snapshot, fallback: Snapshot
    ) -> tuple[list[ResourceBatch], tuple[str, ...]]:
        if not requested:
            return [], ()
        for name in [name for name in self._resources.deviations if name in requested]:
            del self._resources.deviations[name]
        self._resources.release(requested)
        batches = [*wanted.select(self.type_url, requested)]
        if sum(map(len, batches)) == len(requested):
            return batches, ()
        missing = requested.difference(*(batch.names for batch in batches))
        behind = fallback.select(self.type_url, missing)
        for packed in (packed for batch in behind for packed in batch):
            self._resources.record_sent(packed, wanted)
        missing = missing.difference(*(batch.names for batch in behind))
        return [*batches, *behind], tuple(sorted(missing)) if self.type_url in ANSWERED_IF_MISSING else ()

    def content(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """What a full response holds."""
        return self._resources.content(snapshot)

    def version_at(self, snapshot: Snapshot) -> str:
        """What all that the client has amounts to."""
        return version_of(sum(batch.digest for batch in self.content(snapshot)))

    # --- what was sent, and what the client says to it ---

    def respond(
        self, version: str, content: tuple[ResourceBatch, ...], changes: ChannelUpdate, removed: tuple[str, ...]
    ) -> Response:
        response = Response(self.type_url, version, self._pending.nonce(version), content, removed)
        sent = SentResponse(version, changes, self._resources.base)
        self._pending.add(response.nonce, sent, is_blocking=self.type_url == CLUSTER and len(changes.batches) > 0)
        self._sent, self.nonce, self.version = self._resources.base, response.nonce, version
        self.messages += 1
        self.resources += sum(map(len, content))
        self.size += response.size
        return response

    def has_nacked(self, version: str) -> bool:
        return version == self._nacked_version

    def rewind(self) -> None:
        """What was told did not arrive: the client is where it was when it last agreed."""
        self._resources.base = self._acknowledged

    def receive_answer(self, nonce: str, error: str | None, in_force: str = "") -> Nack | str | None:
        """The refusal, or the version accepted, or None if the nonce is of no response that awaits an answer.

        A client whose clusters were stuck accepts the response that frees them and tells, in the same request, what
        was wrong with the one before: it is accepted if the version that it has `in_force` is that of the response.
        """
        sent = self._pending.answered(nonce)
        if sent is None:
            return None
        accepted = error is None or (sent.version == in_force and in_force != "")
        self.accepted, self.rejected = self.accepted + accepted, self.rejected + (not accepted)
        base = self._sent if nonce == self.nonce else sent.base  # the same of this type, and not as old
        heard = self._receive_ack(sent.version, base) if accepted else self._receive_nack(sent, error or "")
        self._resources.release(self._suspects.next(self._resources.nacked))
        return heard

    def _receive_ack(self, version: str, base: Snapshot) -> str:
        self._acknowledged, self._acknowledged_version = base, version
        self._is_content_known, self._nacked_version = True, ""
        self._resources.forget_replaced()
        return version

    def _receive_nack(self, sent: SentResponse, text: str) -> Nack:
        updated = self._possible_culprits(sent)
        culprits = [p for p in updated if len(updated) == 1 or _mentions(text, p.name)]
        nack = Nack(sent.version, text, tuple(packed.name for packed in culprits or updated))
        if not self._pending:
            self.version = self._acknowledged_version if len(culprits) == len(updated) else ""
        if not updated or (self.sends_all and not self._is_content_known):
            self._nack_whole_version(nack)
            return nack
        self._resources.hold_back(updated, culprits or updated, self._acknowledged)
        self._resources.repeat_removals(sent.update.removed)
        held = {name: before for name, before in self._nacks_by_name.items() if name in self._resources.nacked}
        self._nacks_by_name = held | dict.fromkeys(nack.names, nack)
        if not culprits:
            self._suspects.add(nack.names)
        return nack

    def _possible_culprits(self, sent: SentResponse) -> list[PackedResource]:
        """What in a response may be wrong. A full one repeats what was said before it and is not accepted yet."""
        if not self.sends_all:
            return list(sent.update.updated)
        new = (packed for step in sent.base.steps(self._acknowledged, self.type_url) for packed in step.updated)
        return [p for p in new if p.name in self.subscription and not self._resources.is_nacked(p)]

    def _nack_whole_version(self, nack: Nack) -> None:
        """Nothing can be left out of it: the client would lose what it has, or there is nothing to leave out."""
        self._nacked_version, self._nack_of_version = nack.version, nack
        if self.sends_all:
            self.rewind()

    @property
    def _standing_nacks(self) -> tuple[Nack, ...]:
        found = [self._nacks_by_name[name] for name in self._resources.nacked]
        return tuple(
            dict.fromkeys(found + ([self._nack_of_version] if self._nack_of_version and self._nacked_version else []))
        )

    # --- where the client stands ---

    @property
    def blocking_nonce(self) -> str | None:
        """The nonce of the newest response whose answer decides how to go on."""
        return self._pending.blocking_nonce

    def stop_blocking(self) -> None:
        self._pending.blocking_nonce = None

    @property
    def has_pending_removals(self) -> bool:
        return self._is_tracking and any(name not in self._resources.nacked for name in self._resources.deviations)

    @property
    def has_acknowledged(self) -> bool:
        return self._acknowledged_version != ""

    @property
    def is_acknowledged(self) -> bool:
        """All that was told is in force: nothing is under way, and nothing was refused."""
        return not self._pending and not self._resources.nacked and self._nacked_version == ""

    @property
    def unanswered(self) -> int:
        """How many responses are under way. What was answered was accepted, or refused and is held back."""
        return len(self._pending)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be said, unless something happens."""
        refused = self._nacked_version != "" or not self._resources.is_even
        return self._is_tracking and not (refused or self._requested or self._resends or self._initial_versions)

    def is_at(self, snapshot: Snapshot) -> bool:
        base = self._resources.base
        same = base is snapshot or base.digest(self.type_url) == snapshot.digest(self.type_url)
        return not self.is_subscribed or (same and self.is_idle and self.is_acknowledged)

    def status(self, wanted: Snapshot | None) -> TypeStatus:
        return TypeStatus(
            type_url=self.type_url,
            sent=version_of(sum(batch.digest for batch in self.subscription.of(self._sent))),
            acked=self.version_at(self._acknowledged),
            refused=self._standing_nacks,
            in_sync=wanted is not None and self.is_at(wanted),
            messages=self.messages,
            resources=self.resources,
            size=self.size,
            held=self._resources.held_back,
            unanswered=self.unanswered,
        )

    @property
    def tally(self) -> ResponseCounts:
        return ResponseCounts(self.type_url, self.messages, self.accepted, self.rejected)


def _joined(names: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    """Both. Where one of them is empty it is the other, the very object that other streams have too."""
    return names | more if names and more else names or more


def _mentions(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None
