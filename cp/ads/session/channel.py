"""`Channel`: one type of resources on one stream. It decides what is new to the client, and not how that is said."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cp.ads.session.client_resources import ABSENT, LISTED, ClientResources, Subscription
from cp.ads.session.messages import WILDCARD, Nack, Response, ResponseCounts, TypeStatus
from cp.ads.session.nack_suspects import NackSuspects
from cp.ads.session.pending import NO_CHANGES, ChannelUpdate, PendingResponses, SentResponse
from cp.translate.packing import CLUSTER, ENDPOINTS, PackedResource, ResourceBatch, version_of
from cp.translate.snapshot import EMPTY, Snapshot

# Types of which "there is none" is an answer. A listener whose routes were answered so would never get ready.
ANSWERED_IF_MISSING = LISTED | {ENDPOINTS}


class Channel:
    __slots__ = (
        *("_acked", "_acked_version", "_again", "_begun", "_claims", "_due", "_fresh", "_holding", "_in_flight"),
        *("_known", "_nacks", "_refusal", "_refused_version", "_sent", "_suspects", "_trusting", "asked", "claim"),
        *("accepted", "full", "latest", "rejected"),
        *("messages", "resources", "size", "subscription", "told", "type_url"),
    )

    def __init__(self, type_url: str, *, full: bool, trusting: bool) -> None:
        self.type_url = type_url
        self.full = full  # every response holds all there is
        self.asked = False
        self.subscription = Subscription(type_url)
        self.claim = ""  # the version that the client said it has of all
        self.latest = ""  # the nonce of the newest response
        self.told = ""  # the version that the client has, or will have once it has read everything
        self.messages = self.resources = self.size = 0
        self.accepted = self.rejected = 0  # responses
        self._holding = ClientResources(self.subscription, keeps=full)
        self._in_flight = PendingResponses()
        self._claims: dict[str, str] = {}  # the versions that the client said it has of each
        self._trusting = trusting
        self._fresh: frozenset[str] = frozenset()  # asked for, and to be sent whatever was told before
        self._again: list[frozenset[str]] = []
        self._due = False
        self._begun = False
        self._known = False  # what the client has is known, name by name
        self._sent = self._acked = EMPTY
        self._acked_version = self._refused_version = ""
        self._refusal: Nack | None = None  # of a whole version
        self._nacks: dict[str, Nack] = {}  # of what is held back
        self._suspects = NackSuspects()

    # --- what is asked for ---

    def ask_for_all(self) -> None:
        if not self.subscription.wildcard:
            self.subscription.wildcard, self._due, self._begun = True, True, False
            self._holding = ClientResources(self.subscription, keeps=self.full)

    def ask(self, names: frozenset[str]) -> None:
        """From now on these too; those asked for again are sent again."""
        self.subscription.names = _joined(self.subscription.names, names)
        self._fresh = _joined(self._fresh, names)

    def leave(self, names: frozenset[str]) -> None:
        if WILDCARD in names:
            self.subscription.wildcard = False
        self.subscription.names -= names
        self._fresh -= names
        self._holding.forget(names)
        for name in names & self._claims.keys():
            del self._claims[name]

    def hold(self, versions: Mapping[str, str]) -> None:
        """What the client says it has already, from an earlier stream."""
        self._claims.update(versions)

    def doubt(self) -> None:
        """The client may since have dropped what it had when it got the version that it names."""
        self._trusting = False

    def again(self, names: frozenset[str]) -> None:
        """The client needs these once more, though they did not change and it may say that it has them."""
        self._again.append(names)

    def not_again(self) -> None:
        self._again.clear()

    # --- what is new to the client ---

    def changes(self, wanted: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True) -> ChannelUpdate:
        """What it takes to get the client to `wanted`; from here on that counts as told."""
        if self._begun and not self._is_pending:
            steps = () if wanted is self._holding.base else wanted.steps(self._holding.base, self.type_url)
            if not steps:
                self.pass_to(wanted)
                return NO_CHANGES
        self._begin(wanted)
        fresh = self._taken_fresh(wanted)
        batches, missing = self._answers(fresh, wanted, fallback)
        batches += [self._holding.follow(step, fresh) for step in wanted.steps(self._holding.base, self.type_url)]
        self._holding.base = wanted
        updated, removed = self._holding.settle(wanted, fallback, removing=removing)
        due, self._due = self._due or (self.full and len(fresh) > 0) or self._is_unsure, False
        return ChannelUpdate(tuple(filter(None, (*batches, ResourceBatch(updated)))), (*missing, *removed), due)

    def is_at_base(self, snapshot: Snapshot) -> bool:
        return self._holding.base is snapshot

    def pass_to(self, snapshot: Snapshot) -> None:
        """The client has as much of this as of the one before, which is let go: nobody else may need it any more."""
        base = self._holding.base
        if self._sent is base:
            self._sent = snapshot
        if self._acked is base:
            self._acked = snapshot
        self._holding.base = snapshot

    @property
    def _is_pending(self) -> bool:
        asked = self._fresh or self._again or self._claims or self.claim
        return bool(asked or self._holding.apart or self._is_unsure)

    @property
    def _is_unsure(self) -> bool:
        """Some of what the client refused it may have applied, so that even what it had before has to be sent."""
        return self.full and self.told == ""

    def _begin(self, wanted: Snapshot) -> None:
        """Take what the client says it has from before as the point to start from."""
        claim, self.claim = self.claim, ""
        current = self._is_current(claim, wanted)
        if current:
            self._fresh = frozenset()
        if not self._begun:
            self._begun, self._known = True, current or claim == ""
            if current or self._claims:
                self._start_at(wanted, claim or wanted.version(self.type_url))
            elif not self.subscription.wildcard:
                self._holding.base = wanted
        self._believe(wanted)

    def _is_current(self, claim: str, wanted: Snapshot) -> bool:
        weighs = claim != "" and self._trusting and not (self.full and self._begun)
        return weighs and claim in (self.version(wanted), wanted.version(self.type_url))

    def _start_at(self, wanted: Snapshot, version: str) -> None:
        """The client has this, but for what it claims otherwise."""
        self._holding.base = self._sent = self._acked = wanted
        self.told = self._acked_version = version
        self._due = False
        if self.subscription.wildcard and self._claims:
            missing = wanted.versions(self.type_url).keys() - self._claims.keys()
            self._holding.apart = dict.fromkeys(missing, ABSENT)

    def _believe(self, wanted: Snapshot) -> None:
        """Compare what the client says it has with what it should have."""
        claims, self._claims = self._claims, {}
        if not claims or (self.type_url == ENDPOINTS and not self._trusting):
            return  # what was under way may have left a cluster waiting for endpoints that the client has
        versions = wanted.versions(self.type_url)
        for name, version in () if claims == versions else claims.items() - versions.items():
            if name in self.subscription:
                self._holding.apart[name] = version
        self._fresh -= claims.keys()

    def _taken_fresh(self, wanted: Snapshot) -> frozenset[str]:
        fresh, self._fresh = self._fresh, frozenset()
        for names in self._again:
            fresh = _joined(fresh, (names - fresh) & self.subscription.names)
        self._again.clear()
        refused = (wanted.get(self.type_url, name) for name in self._holding.refused)
        but = [packed.name for packed in refused if packed and self._holding.is_refused(packed)]
        return fresh.difference(but) if but else fresh

    def _answers(
        self, fresh: frozenset[str], wanted: Snapshot, fallback: Snapshot
    ) -> tuple[list[ResourceBatch], tuple[str, ...]]:
        if not fresh:
            return [], ()
        for name in [name for name in self._holding.apart if name in fresh]:
            del self._holding.apart[name]
        batches = [*wanted.select(self.type_url, fresh)]
        if sum(map(len, batches)) == len(fresh):
            return batches, ()
        missing = fresh.difference(*(batch.names for batch in batches))
        behind = fallback.select(self.type_url, missing)
        for packed in (packed for batch in behind for packed in batch):
            self._holding.take(packed, wanted)
        missing = missing.difference(*(batch.names for batch in behind))
        return [*batches, *behind], tuple(sorted(missing)) if self.type_url in ANSWERED_IF_MISSING else ()

    def content(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """What a full response holds."""
        return self._holding.content(snapshot)

    def version(self, snapshot: Snapshot) -> str:
        """What all that the client has amounts to."""
        return version_of(sum(batch.digest for batch in self.content(snapshot)))

    # --- what was sent, and what the client says to it ---

    def say(
        self, version: str, content: tuple[ResourceBatch, ...], changes: ChannelUpdate, removed: tuple[str, ...]
    ) -> Response:
        response = Response(self.type_url, version, self._in_flight.nonce(version), content, removed)
        sent = SentResponse(version, changes, self._holding.base)
        self._in_flight.add(response.nonce, sent, gates=self.type_url == CLUSTER and len(changes.batches) > 0)
        self._sent, self.latest, self.told = self._holding.base, response.nonce, version
        self.messages += 1
        self.resources += sum(map(len, content))
        self.size += response.size
        return response

    def is_refused(self, version: str) -> bool:
        return version == self._refused_version

    def take_back(self) -> None:
        """What was told did not arrive: the client is where it was when it last agreed."""
        self._holding.base = self._acked

    def answered(self, nonce: str, error: str | None, in_force: str = "") -> Nack | str | None:
        """The refusal, or the version accepted, or None if the nonce is of no response that awaits an answer.

        A client whose clusters were stuck accepts the response that frees them and tells, in the same request, what
        was wrong with the one before: it is accepted if the version that it has `in_force` is that of the response.
        """
        sent = self._in_flight.answered(nonce)
        if sent is None:
            return None
        accepted = error is None or (sent.version == in_force and in_force != "")
        self.accepted, self.rejected = self.accepted + accepted, self.rejected + (not accepted)
        base = self._sent if nonce == self.latest else sent.base  # the same of this type, and not as old
        heard = self._accepted(sent.version, base) if accepted else self._rejected(sent, error or "")
        self._holding.release(self._suspects.next(self._holding.refused))
        return heard

    def _accepted(self, version: str, base: Snapshot) -> str:
        self._acked, self._acked_version = base, version
        self._known, self._refused_version = True, ""
        self._holding.accept()
        return version

    def _rejected(self, sent: SentResponse, text: str) -> Nack:
        updated = self._refusable(sent)
        culprits = [p for p in updated if len(updated) == 1 or _mentions(text, p.name)]
        nack = Nack(sent.version, text, tuple(packed.name for packed in culprits or updated))
        if not self._in_flight:
            self.told = self._acked_version if len(culprits) == len(updated) else ""
        if not updated or (self.full and not self._known):
            self._reject_whole(nack)
            return nack
        self._holding.quarantine(updated, culprits or updated, self._acked)
        self._holding.repeat_removal(sent.changes.removed)
        held = {name: before for name, before in self._nacks.items() if name in self._holding.refused}
        self._nacks = held | dict.fromkeys(nack.names, nack)
        if not culprits:
            self._suspects.add(nack.names)
        return nack

    def _refusable(self, sent: SentResponse) -> list[PackedResource]:
        """What in a response may be wrong. A full one repeats what was said before it and is not accepted yet."""
        if not self.full:
            return list(sent.changes.updated)
        new = (packed for step in sent.base.steps(self._acked, self.type_url) for packed in step.updated)
        return [p for p in new if p.name in self.subscription and not self._holding.is_refused(p)]

    def _reject_whole(self, nack: Nack) -> None:
        """Nothing can be left out of it: the client would lose what it has, or there is nothing to leave out."""
        self._refused_version, self._refusal = nack.version, nack
        if self.full:
            self.take_back()

    @property
    def _refusals(self) -> tuple[Nack, ...]:
        found = [self._nacks[name] for name in self._holding.refused]
        return tuple(dict.fromkeys(found + ([self._refusal] if self._refusal and self._refused_version else [])))

    # --- where the client stands ---

    @property
    def gate(self) -> str | None:
        """The nonce of the newest response whose answer decides how to go on."""
        return self._in_flight.gate

    def wait_no_longer(self) -> None:
        self._in_flight.gate = None

    @property
    def has_leaving(self) -> bool:
        return self._begun and any(name not in self._holding.refused for name in self._holding.apart)

    @property
    def has_accepted(self) -> bool:
        return self._acked_version != ""

    @property
    def is_confirmed(self) -> bool:
        """All that was told is in force: nothing is under way, and nothing was refused."""
        return not self._in_flight and not self._holding.refused and self._refused_version == ""

    @property
    def unanswered(self) -> int:
        """How many responses are under way. What was answered was accepted, or refused and is held back."""
        return len(self._in_flight)

    @property
    def is_quiet(self) -> bool:
        """Nothing is to be said, unless something happens."""
        refused = self._refused_version != "" or not self._holding.is_even
        return self._begun and not (refused or self._fresh or self._again or self._claims)

    def is_at(self, snapshot: Snapshot) -> bool:
        base = self._holding.base
        same = base is snapshot or base.digest(self.type_url) == snapshot.digest(self.type_url)
        return not self.asked or (same and self.is_quiet and self.is_confirmed)

    def status(self, wanted: Snapshot | None) -> TypeStatus:
        return TypeStatus(
            type_url=self.type_url,
            sent=version_of(sum(batch.digest for batch in self.subscription.of(self._sent))),
            acked=self.version(self._acked),
            refused=self._refusals,
            in_sync=wanted is not None and self.is_at(wanted),
            messages=self.messages,
            resources=self.resources,
            size=self.size,
            held=self._holding.held,
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
