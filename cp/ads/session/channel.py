"""`Channel`: one type of resources on one stream: what the client wants, what it has, and so what to send next.

A channel decides what is new to the client. A session (`sotw`, `delta`) decides how that is spread over responses,
and `SessionBase` in which order the types go. A channel knows names, versions and snapshots, but no protobuf, no other
channel, no I/O and no clock. A snapshot is all that a client should have, of all types, in parts that streams share
(`cp.translate.snapshot`). A channel is made of

    Subscription       what the client wants, and which of its requests are not answered yet
    ClientResources    what the client has: a snapshot, and the names in which the client deviates from it
    PendingResponses   what was sent and awaits an ACK or a NACK
    StandingNacks      the NACKs that still matter

Its state follows from these (`Channel.state`):

    UNOPENED       the client has sent no request of this type
    SUBSCRIBED     it has sent one, or one for all, and what it has was not compared with a snapshot since
    ACKNOWLEDGED   every response is answered, and no NACK stands
    PENDING        a response awaits its answer
    NACKED         every response is answered; a resource, or a whole version, is held back

An event is a call of one of the methods named in this table. What `advance_to` returns is sent with `respond` before
anything else happens. Every other method leaves the state as it is, and sessions change a channel by no other means.

    State          Event              Next           What is sent, and why                                     Rule
    ------------   ----------------   ------------   -------------------------------------------------------   ----
    UNOPENED       open               SUBSCRIBED     nothing: there may be no snapshot yet                      [1]
    SUBSCRIBED     subscribe          SUBSCRIBED     nothing: there may be no snapshot yet                      [1]
    ACKNOWLEDGED   subscribe          ACKNOWLEDGED   nothing yet; the names will be sent, even if it has them   [1]
    PENDING        subscribe          PENDING        the same                                                   [1]
    NACKED         subscribe          NACKED         the same, without what is held back                        [1]
    SUBSCRIBED     subscribe_to_all   SUBSCRIBED     nothing: there may be no snapshot yet                      [1]
    ACKNOWLEDGED   subscribe_to_all   SUBSCRIBED     nothing yet; what it got by name will be sent again        [1]
    ACKNOWLEDGED   subscribe_to_all   ACKNOWLEDGED   nothing: it had subscribed to all before                   [1]
    PENDING        subscribe_to_all   PENDING        nothing yet; what it got by name will be sent again        [1]
    NACKED         subscribe_to_all   SUBSCRIBED     nothing yet; what is held back will be sent again          [1]
    NACKED         subscribe_to_all   NACKED         nothing yet; a NACKed version stays NACKed                 [1]
    SUBSCRIBED     advance_to         ACKNOWLEDGED   all it wants, or what differs from the versions that it    [2]
                                                     named if it comes from an earlier stream
    ACKNOWLEDGED   advance_to         ACKNOWLEDGED   what has changed, and newly requested names in any case    [3]
    PENDING        advance_to         PENDING        the same: what is new need not wait for answers            [3]
    NACKED         advance_to         NACKED         the same, without what is held back                        [4]
    NACKED         advance_to         ACKNOWLEDGED   what was held back has changed, is gone or not wanted      [4]
    ACKNOWLEDGED   respond            PENDING        a response; with nothing in it, it is an answer too        [5]
    PENDING        respond            PENDING        a response                                                 [5]
    NACKED         respond            PENDING        a response                                                 [5]
    UNOPENED       receive_answer     UNOPENED       nothing: a stale nonce answers nothing                     [6]
    SUBSCRIBED     receive_answer     SUBSCRIBED     nothing: a stale nonce answers nothing                     [6]
    ACKNOWLEDGED   receive_answer     ACKNOWLEDGED   nothing: a stale nonce answers nothing                     [6]
    NACKED         receive_answer     NACKED         nothing: a stale nonce answers nothing                     [6]
    PENDING        receive_answer     PENDING        a stale nonce, or newer responses are still pending        [6]
    PENDING        receive_answer     SUBSCRIBED     an answer after subscribe_to_all: all will be sent         [4]
    PENDING        receive_answer     ACKNOWLEDGED   an ACK; or a NACK of what was replaced meanwhile           [4]
    PENDING        receive_answer     NACKED         a NACK; or an ACK, while another NACK stands               [4]
    SUBSCRIBED     unsubscribe        SUBSCRIBED     nothing                                                    [7]
    ACKNOWLEDGED   unsubscribe        ACKNOWLEDGED   nothing                                                    [7]
    PENDING        unsubscribe        PENDING        nothing                                                    [7]
    NACKED         unsubscribe        NACKED         nothing                                                    [7]
    NACKED         unsubscribe        ACKNOWLEDGED   nothing: what was held back is no longer wanted            [7]

    Rules, under https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
    [1] #xds-protocol-resource-hints     [2] #xds-ack-nack and #xds-protocol-delta (initial_resource_versions)
    [3] #xds-protocol-resource-update    [4] #ack-and-nack-semantics-summary; what to send after a NACK is ours to say
    [5] #deleting-resources              [6] #resource-updates    [7] #xds-protocol-unsubscribing

Channels differ in these rules:

- `sends_all`: in a state-of-the-world stream a response for clusters or listeners holds all of them
  (#grouping-resources-into-responses), so what the client is to keep has to be repeated.
- `can_remove`: a response can say that a resource is gone, or was requested and does not exist. In a state-of-the-world
  stream only those responses can that hold all resources (#deleting-resources, #xds-protocol-resource-not-existed).
- `reports_missing`: a request for a resource that does not exist is answered (record 0099 has the exception).
- New clusters hold up what is sent after them until they are answered (`respond`, `blocking_nonce`).
- Endpoints and secrets are sent even to a delta client that names their versions, unless its versions are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from cp.ads.session.client_resources import ABSENT, ClientResources
from cp.ads.session.messages import Answer, Nack, Response, ResponseCounts, TypeStatus
from cp.ads.session.nacks import StandingNacks, culprits
from cp.ads.session.pending import NO_CHANGES, ChannelUpdate, PendingResponses, ResponseTotals, SentResponse
from cp.ads.session.subscription import Subscription
from cp.translate.packing import CLUSTER, ENDPOINTS, SECRET, PackedResource, ResourceBatch, version_of
from cp.translate.snapshot import EMPTY, PartDifference, Snapshot

_AWAITED_WHEN_WARMING: Final = frozenset({ENDPOINTS, SECRET})

# What `Channel.version` is when the client has no version of ours. No content has either of them.
NO_VERSION: Final = ""  # nothing was sent yet, or nothing of it was ACKed
MIXED_VERSION: Final = "?"  # the client NACKed a response and may have applied a part of it


_ACTIVE: Final = "+"
"""The sign before the version of what a client has once nothing drains, in the version of what it has until then."""


def draining_version(version: str, active_version: str) -> str:
    """The version of all resources of a client, of which some are for draining listeners alone.

    Another process does not know those. It learns from the version that the client has all others.
    """
    return version if version == active_version else f"{version}{_ACTIVE}{active_version}"


class ChannelState(Enum):
    UNOPENED = "unopened"
    SUBSCRIBED = "subscribed"
    ACKNOWLEDGED = "acknowledged"
    PENDING = "pending"
    NACKED = "nacked"


UNOPENED, SUBSCRIBED, ACKNOWLEDGED, PENDING, NACKED = ChannelState


class Channel:
    """What the table describes. A version that a client names of an earlier stream counts as ACKed."""

    __slots__ = (
        *(
            "_acked_snapshot",
            "_acked_version",
            "_can_remove",
            "_knows_all_names",
            "_is_tracking",
            "_owes_response",
            "_nacks",
        ),
        *("_pending", "_repeated_nonce", "_reports_missing", "_resources", "_sent", "_totals", "_trusts_versions"),
        "_unknown",
        *("is_subscribed", "nonce", "sends_all", "subscription", "type_url", "version"),
    )

    def __init__(
        self, type_url: str, *, sends_all: bool, can_remove: bool, reports_missing: bool, trusts_versions: bool
    ) -> None:
        """`sends_all`: every response holds all resources; `trusts_versions`: the client has what it names.

        They are not trusted if its last stream broke off while something was pending, which it may have applied.
        """
        self.type_url = type_url
        self.sends_all = sends_all
        self._can_remove = can_remove
        self._reports_missing = reports_missing
        self.subscription = Subscription(type_url)
        self.is_subscribed = False  # it has sent a request of this type, for whatever names
        self.nonce = ""  # of the newest response; empty before the first
        self.version = NO_VERSION  # that the client has, or will have once it has ACKed all that is pending
        self._resources = self._no_resources()
        self._pending = PendingResponses()
        self._nacks = StandingNacks()
        self._totals = ResponseTotals()
        self._repeated_nonce: str | None = None  # of the last request that the client repeated
        self._trusts_versions = trusts_versions
        self._unknown: dict[str, str] | None = None
        self._owes_response = False  # the client waits for a response to its request, even if nothing is in it
        # `_resources` is what the client has or is being sent: that was compared with a snapshot since it subscribed.
        self._is_tracking = False
        # The client has nothing but what `_resources` says: nothing of an earlier stream, under names unknown to us.
        self._knows_all_names = False
        self._sent = EMPTY  # the snapshot of the newest response
        self._acked_snapshot = EMPTY  # that of the newest response that was ACKed, or with which the stream began
        self._acked_version = NO_VERSION  # the version of that response, or the one that the client named

    @property
    def state(self) -> ChannelState:
        if self._pending:
            return PENDING
        if self._resources.nacked or self._nacks.of_version is not None:
            return NACKED
        if self._is_tracking:
            return ACKNOWLEDGED
        return SUBSCRIBED if self.is_subscribed else UNOPENED

    # --- requests of the client ---

    def open(self) -> None:
        """The client sends its first request of this type."""
        self.is_subscribed = True

    def subscribe_to_all(self) -> None:
        if not self.subscription.wildcard:
            # It is sent everything, so what it got by names before is forgotten.
            self.subscription.wildcard, self._owes_response, self._is_tracking = True, True, False
            self._resources = self._no_resources()

    def _no_resources(self) -> ClientResources:
        return ClientResources(self.subscription, repeats_all=self.sends_all, can_remove=self._can_remove)

    def note_names(self) -> None:
        """The client has named resources, or `*`: from here on, a request without names is one for none."""
        self.subscription.has_named = True

    def unsubscribe_from_all(self) -> None:
        """The client wants no more than the resources that it names."""
        self.subscription.wildcard = False

    def subscribe(self, names: frozenset[str]) -> None:
        """The client wants these too, and is sent them even if it has them."""
        self.subscription.add(names)

    def unsubscribe(self, names: frozenset[str]) -> None:
        """The client wants these no more; `*` among them says that it no longer wants all."""
        unsubscribed = names & self.subscription.names
        self.subscription.remove(names)
        if self.subscription.wildcard and not self.sends_all:
            # The client cannot know if `*` includes these, and so if it has to keep them:
            # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-unsubscribe
            self._resources.forget(unsubscribed)
            self.subscription.requested |= unsubscribed
        self._resources.forget(name for name in names if name not in self.subscription)

    def request_all(self) -> None:
        """The client subscribes to all once more, and is sent all, even if it has them."""
        self.subscription.requests_all = self._owes_response = True

    def is_repeated(self, nonce: str) -> bool:
        """A request with this nonce is no answer to a response, and was not preceded by an equal one."""
        is_newest = nonce == self._pending.last_answered and (nonce != "" or self.nonce == "")
        return self.is_subscribed and is_newest and nonce != self._repeated_nonce

    def repeat(self, nonce: str) -> None:
        """The client repeats a request, and is sent all that it names even if it has it: once for each nonce.

        A client that has got that response names its nonce in the next request.
        """
        self._repeated_nonce = nonce
        self.subscription.requested = self.subscription.names

    def share_names(self, shared: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Keep the names of the subscription as an equal set that other streams hold too, which `shared` returns."""
        self.subscription.names = shared(self.subscription.names)

    def note_initial_version(self, version: str) -> None:
        """What the client has of an earlier stream, as a state-of-the-world request says."""
        self.subscription.initial_version = version

    def note_initial_versions(self, versions: Mapping[str, str]) -> None:
        """What the client has of an earlier stream, as a delta request says."""
        self.subscription.initial_versions.update(versions)

    def distrust_versions(self) -> None:
        """The client may have dropped what it had since it got the version that it names."""
        self._trusts_versions = False

    def resend(self, names: frozenset[str]) -> None:
        """The client needs these once more, though they did not change and it may say that it has them."""
        self.subscription.resends.append(names)

    def cancel_resends(self) -> None:
        """The client no longer needs what it was to be sent once more and was not sent yet."""
        self.subscription.resends.clear()

    # --- what is new to the client ---

    def advance_to(self, snapshot: Snapshot, outgoing: Snapshot = EMPTY, *, may_remove: bool = True) -> ChannelUpdate:
        """What to send so that the client has `snapshot`. It has to be sent: from here on it counts as sent.

        `outgoing` has resources that the snapshot lacks but that the client has to keep until what uses them has moved,
        such as the endpoints of a cluster that is not removed yet. `may_remove`: resources that are gone may be removed
        now.
        """
        # The usual case first: a snapshot in which nothing of this type differs costs a comparison of identities.
        if self._is_tracking and not self._has_open_work:
            differences = self._differences(snapshot)
            if not differences:
                self.rebase(snapshot)
                return NO_CHANGES
        # 1. Requested names, which are left out of the differences. 2. The differences, which add deviations for what
        # they remove. 3. The deviations.
        self._compare_with_client(snapshot)
        requested = self._take_requested(snapshot)
        batches, missing = self._answer_requested(requested, snapshot, outgoing)
        batches += [self._resources.advance_by(difference, requested) for difference in self._differences(snapshot)]
        self._resources.base = snapshot
        updated, removed = self._resources.end_deviations(snapshot, outgoing, may_remove=may_remove)
        must_respond = self._owes_response or self._needs_all or (self.sends_all and len(requested) > 0)
        self._owes_response = False
        all_batches = tuple(filter(None, (*batches, ResourceBatch(updated))))
        return ChannelUpdate(all_batches, (*missing, *removed), must_respond)

    def is_based_on(self, snapshot: Snapshot) -> bool:
        """The client has or is being sent this very snapshot."""
        return self._resources.base is snapshot

    def rebase(self, snapshot: Snapshot) -> None:
        """Nothing of this type differs in a newer snapshot: go on from that one, so that the older can be freed."""
        base = self._resources.base
        if self._sent is base:
            self._sent = snapshot
        if self._acked_snapshot is base:
            self._acked_snapshot = snapshot
        self._resources.base = snapshot

    def _differences(self, snapshot: Snapshot) -> tuple[PartDifference, ...]:
        base = self._resources.base
        return () if snapshot is base else snapshot.steps(base, self.type_url)

    @property
    def _has_open_work(self) -> bool:
        """Something may have to be sent even if the snapshot does not change."""
        subscription = self.subscription
        if subscription.has_open_requests or subscription.initial_version != "":
            return True
        return bool(self._resources.deviations) or self._needs_all

    @property
    def _needs_all(self) -> bool:
        """No version says what the client has, so a response with all resources is sent even if none changed."""
        return self.sends_all and self.version in (NO_VERSION, MIXED_VERSION)

    def _take_requested(self, snapshot: Snapshot) -> frozenset[str]:
        requested = self.subscription.take_requested(snapshot)
        held_back = self._resources.names_nacked_in(snapshot)
        return requested.difference(held_back) if held_back else requested

    def _answer_requested(
        self, requested: frozenset[str], snapshot: Snapshot, outgoing: Snapshot
    ) -> tuple[list[ResourceBatch], tuple[str, ...]]:
        """The resources that were requested, and the names for which "there is none" is the answer."""
        # A client that subscribes to a name is sent it even if it should have it: it may have dropped it.
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-delta-subscribe
        if not requested:
            return [], ()
        self._resources.supersede(requested)
        batches = [*snapshot.select(self.type_url, requested)]
        if sum(map(len, batches)) == len(requested):
            return batches, ()
        missing = requested.difference(*(batch.names for batch in batches))
        outgoing_batches = outgoing.select(self.type_url, missing)
        for packed in (packed for batch in outgoing_batches for packed in batch):
            self._resources.record_sent(packed, snapshot)
        missing = missing.difference(*(batch.names for batch in outgoing_batches))
        return [*batches, *outgoing_batches], tuple(sorted(missing)) if self._reports_missing else ()

    def content(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """What a response holds that holds all resources."""
        return self._resources.content(snapshot)

    def version_at(self, snapshot: Snapshot) -> str:
        """The version of all resources that the client has once it is at a snapshot."""
        return version_of(sum(batch.digest for batch in self.content(snapshot)))

    # --- what the client has of an earlier stream ---

    def _compare_with_client(self, snapshot: Snapshot) -> None:
        """Start from what the client says that it has, if it says so."""
        # A version belongs to the resources and not to a stream, so a client that comes back names what it has, and
        # need not be sent it again: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-ack-nack
        version = self.subscription.take_initial_version()
        is_current = self._is_current(version, snapshot)
        if is_current:
            self.subscription.requested = frozenset()
        if not self._is_tracking:
            # With a version that is not current the client has resources of which we do not know the names.
            self._is_tracking, self._knows_all_names = True, is_current or version == ""
            if is_current or self.subscription.initial_versions:
                self._resume_at(snapshot, version or snapshot.version(self.type_url))
                if self.keeps_more_than(snapshot.version(self.type_url)):
                    self._knows_all_names = False
            elif not self.subscription.wildcard:
                self._resources.base = snapshot  # the names are in `requested`, and so is all there is to send
        self._enter_initial_versions(snapshot)

    def _is_current(self, version: str, snapshot: Snapshot) -> bool:
        # A version stands for the resources that the client wanted when it got it, so it is compared with the version
        # of what it wants now.
        says_what_it_has = version != "" and self._trusts_versions
        whole, _, active = version.partition(_ACTIVE)
        versions = {whole, active} if self._unknown is not None else {whole}
        return says_what_it_has and not versions.isdisjoint(
            (self.version_at(snapshot), snapshot.version(self.type_url))
        )

    def _resume_at(self, snapshot: Snapshot, version: str) -> None:
        """The client has this snapshot, except for the names of which it named another version, or none."""
        self._resources.base = self._sent = self._acked_snapshot = snapshot
        self.version = self._acked_version = version
        # Servers should send only what has changed, so a client that has everything is sent nothing:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-update
        self._owes_response = False
        if self.subscription.wildcard and self.subscription.initial_versions:
            missing = snapshot.versions(self.type_url).keys() - self.subscription.initial_versions.keys()
            self._resources.deviate(dict.fromkeys(missing, ABSENT))

    def _enter_initial_versions(self, snapshot: Snapshot) -> None:
        """Each name of which the client has another version than the snapshot becomes a deviation."""
        client_versions = self.subscription.take_initial_versions()
        # After an unanswered response a cluster may be warming and wait for endpoints, though the client has them. A
        # cluster or listener that has changed since may wait for secrets in the same way.
        if not client_versions or (self.type_url in _AWAITED_WHEN_WARMING and not self._trusts_versions):
            return
        versions = snapshot.versions(self.type_url)
        differing = () if client_versions == versions else client_versions.items() - versions.items()
        for name, version in differing:
            if name in self.subscription:
                if self._unknown is None or name in versions:
                    self._resources.deviate({name: version})
                else:
                    self._unknown[name] = version
        self.subscription.requested -= client_versions.keys()

    def keep_unknown(self) -> None:
        """Keep what the client names of an earlier stream and no snapshot has, until `remove_unknown`."""
        self._unknown = {}

    def keeps_more_than(self, version: str) -> bool:
        """The client has this version of an earlier stream, and more for listeners that may be draining.

        A state-of-the-world response would remove that.
        """
        return self._unknown is not None and self.nonce == "" and self.version.endswith(f"{_ACTIVE}{version}")

    def remove_unknown(self) -> None:
        """Those are no longer in use: remove the ones that the snapshot does not have by now either."""
        if self.keeps_more_than(self.version.rpartition(_ACTIVE)[2]):
            self.version = MIXED_VERSION
        base = self._resources.base
        gone = {
            name: version for name, version in (self._unknown or {}).items() if base.get(self.type_url, name) is None
        }
        self._resources.deviate(gone)
        self._unknown = None

    # --- responses, and the client's answers to them ---

    def respond(
        self, version: str, content: tuple[ResourceBatch, ...], update: ChannelUpdate, removed: tuple[str, ...]
    ) -> Response:
        """Make a response with `content`, of which `update` is new to the client, and wait for its answer."""
        response = Response(self.type_url, version, self._pending.nonce(version), content, removed)
        sent = SentResponse(version, update, self._resources.base)
        # Listeners and routes wait for clusters (`SessionBase`); clusters that are only removed hold up nothing.
        is_blocking = self.type_url == CLUSTER and len(update.batches) > 0
        self._pending.add(response.nonce, sent, is_blocking=is_blocking)
        self._sent, self.nonce, self.version = self._resources.base, response.nonce, version
        self._totals.count_response(response)
        return response

    def receive_answer(self, nonce: str, error: str | None, version_in_force: str = "") -> Answer | None:
        """The answer to a response, or None if the nonce is stale.

        In a state-of-the-world stream, Envoy answers no clusters while one of them is warming. Afterwards one request
        answers all that came meanwhile: with the nonce and the version of the newest response, and with the error of an
        earlier one. So an answer with an error is an ACK if `version_in_force` is that of the response.
        """
        sent = self._pending.take_answered(nonce)
        if sent is None:
            return None
        is_ack = error is None or (sent.version == version_in_force and version_in_force != "")
        self._totals.count_answer(is_ack=is_ack)
        answer = self._receive_ack(nonce, sent) if is_ack else self._receive_nack(sent, error or "")
        # Suspects are released one group at a time, each when the response with the one before has been answered.
        self._resources.release(self._nacks.next_suspects(self._resources.nacked))
        return answer

    def _receive_ack(self, nonce: str, sent: SentResponse) -> str:
        # `_sent` may have been rebased since, to a snapshot with the same resources that others hold too.
        self._acked_snapshot = self._sent if nonce == self.nonce else sent.base
        self._acked_version = sent.version
        self._knows_all_names = True
        self._nacks.of_version = None
        self._resources.drop_older_versions(self._acked_snapshot, is_everything_answered=not self._pending)
        return sent.version

    def _receive_nack(self, sent: SentResponse, text: str) -> Nack:
        new = self._new_resources(sent)
        to_blame = culprits(text, new)
        nack = Nack(sent.version, text, tuple(packed.name for packed in to_blame or new))
        if not self._pending:
            # Envoy applies the good resources of a response that it NACKs for the bad ones. Only if all that was new
            # is to blame do we know what it has: what it had before.
            self.version = self._acked_version if len(to_blame) == len(new) else MIXED_VERSION
        if not new or (self.sends_all and not self._knows_all_names):
            self._nack_version(nack)
            return nack
        self._resources.record_nack(new, to_blame or new, self._acked_snapshot)
        self._resources.repeat_removals(sent.update.removed)
        self._nacks.add(nack, self._resources.nacked, is_explained=len(to_blame) > 0)
        return nack

    def _new_resources(self, sent: SentResponse) -> list[PackedResource]:
        """The resources of a response that may be the reason of a NACK: those that the client has not ACKed yet."""
        if not self.sends_all:
            return list(sent.update.updated)
        # This response repeats what those before it have brought and the client has not ACKed either. And it may bring
        # what the snapshot that was ACKed last has already: a resource that was held back then, and was released since.
        differences = sent.base.steps(self._acked_snapshot, self.type_url)
        new = {packed.name: packed for difference in differences for packed in difference.updated}
        new |= {packed.name: packed for packed in sent.update.updated}
        return [
            packed
            for packed in new.values()
            if packed.name in self.subscription and not self._resources.is_nacked(packed)
        ]

    def _nack_version(self, nack: Nack) -> None:
        """Hold back the version as a whole: nothing can be left out of it.

        Either there is nothing in it, or the client has resources of an earlier stream of which we do not know the
        names; a response without them would remove them.
        """
        self._nacks.of_version = nack
        if self.sends_all:
            self.rewind()

    def has_nacked(self, version: str) -> bool:
        """The client NACKed this version as a whole, so that it would only NACK it again."""
        return self._nacks.is_nacked(version)

    def rewind(self) -> None:
        """Nothing was sent after all, or it was not applied: the client is where it was when it last ACKed."""
        self._resources.base = self._acked_snapshot

    # --- where the client stands ---

    @property
    def blocking_nonce(self) -> str | None:
        """The nonce of the newest response that holds up what is sent after it."""
        return self._pending.blocking_nonce

    def stop_blocking(self) -> None:
        """What is sent after it need not wait for the answer any longer."""
        self._pending.blocking_nonce = None

    @property
    def has_pending_removals(self) -> bool:
        """Some resource waits to be removed.

        After `advance_to` a deviation is held back by a NACK, or is a removal that is to wait.
        """
        deviations, nacked = self._resources.deviations, self._resources.nacked
        return self._is_tracking and self._can_remove and any(name not in nacked for name in deviations)

    @property
    def has_version_of_ours(self) -> bool:
        """The client has ACKed a response on this stream, or named versions of an earlier one, current or not."""
        return self._acked_version != NO_VERSION

    @property
    def is_settled(self) -> bool:
        """No response awaits its answer, and no NACK stands. So it is before the first response too."""
        state = self.state
        return state is not PENDING and state is not NACKED

    @property
    def unanswered(self) -> int:
        """How many responses await an answer."""
        return len(self._pending)

    @property
    def is_idle(self) -> bool:
        """No ACK leads to a response: the next follows from a request, a NACK or a snapshot."""
        if not self._is_tracking or self._nacks.of_version is not None or self._resources.has_open_deviations:
            return False
        return not self.subscription.has_open_requests

    def is_at(self, snapshot: Snapshot) -> bool:
        """All of the snapshot that the client wants is in force."""
        if not self.is_subscribed:
            return True
        base = self._resources.base
        is_same = base is snapshot or base.digest(self.type_url) == snapshot.digest(self.type_url)
        return is_same and self.is_idle and self.is_settled

    def status(self, newest: Snapshot | None) -> TypeStatus:
        return TypeStatus(
            type_url=self.type_url,
            sent=version_of(sum(batch.digest for batch in self.subscription.batches_of(self._sent))),
            acked=self.version_at(self._acked_snapshot),
            nacks=self._nacks.of(self._resources.nacked),
            in_sync=newest is not None and self.is_at(newest),
            messages=self._totals.messages,
            resources=self._totals.resources,
            size=self._totals.size,
            held_back=self._resources.nacked_resources,
            unanswered=self.unanswered,
        )

    @property
    def counts(self) -> ResponseCounts:
        return self._totals.counts(self.type_url)
