"""`Channel`: one type of resources on one stream: what is asked for, what was told, what was refused.

What the client holds is not listed: it is `base`, a snapshot that all streams share, but for the few names in `apart`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cp.ads.messages import WILDCARD, Nack, Response, Status
from cp.snapshot import CLUSTER, EMPTY, ENDPOINTS, LISTENER, Batch, Packed, Snapshot, version_of

# Types that a client may ask for without a name; what is gone is taken out of them. Of the others Envoy keeps the last
# value it had, and drops it by unsubscribing.
LISTED = frozenset({CLUSTER, LISTENER})
# Types of which "there is none" is an answer. A listener whose routes were answered so would never get ready.
ANSWERED_IF_MISSING = frozenset({CLUSTER, LISTENER, ENDPOINTS})

ABSENT, UNKNOWN = "", "?"
UNANSWERED = 64  # responses remembered at most: a client that never answers costs no more than these


@dataclass(frozen=True, slots=True)
class Changes:
    """What is new to the client. `due` says that it waits for an answer even if there is nothing in it."""

    batches: tuple[Batch, ...] = ()
    removed: tuple[str, ...] = ()
    due: bool = False

    def __bool__(self) -> bool:
        return self.due or len(self.batches) > 0 or len(self.removed) > 0

    @property
    def updated(self) -> Iterator[Packed]:
        for batch in self.batches:
            yield from batch


NO_CHANGES = Changes()


@dataclass(slots=True)
class Sent:
    """A response that awaits its answer."""

    version: str
    changes: Changes
    base: Snapshot
    gates: bool


class Channel:
    """Decides what is new to the client; how that is put into responses is the session's affair."""

    __slots__ = (
        "_acked",
        "_acked_version",
        "_again",
        "_apart",
        "_base",
        "_begun",
        "_claims",
        "_due",
        "_fresh",
        "_in_flight",
        "_kept",
        "_known",
        "_last_answered",
        "_nack",
        "_refused",
        "_refused_version",
        "_sent",
        "_trusting",
        "asked",
        "claim",
        "full",
        "latest",
        "messages",
        "names",
        "resources",
        "size",
        "told",
        "type_url",
        "wildcard",
    )

    def __init__(self, type_url: str, *, full: bool, trusting: bool) -> None:
        self.type_url = type_url
        self.full = full  # every response holds all there is
        self.asked = False
        self.wildcard = False
        self.names: frozenset[str] = frozenset()
        self.claim = ""  # the version that the client said it has of all
        self.latest = ""  # the nonce of the newest response
        self.told = ""  # the version that the client has, or will have once it has read everything
        self.messages = self.resources = self.size = 0
        self._claims: dict[str, str] = {}  # the versions that it said it has of each
        self._fresh: frozenset[str] = frozenset()  # asked for, and to be sent whatever was told before
        self._again: list[frozenset[str]] = []
        self._due = False
        self._begun = False
        self._trusting = trusting
        self._known = False  # what the client has is known, name by name
        self._base = EMPTY
        self._apart: dict[str, str] = {}  # name -> the version that the client has instead of that in `base`
        self._kept: dict[str, Packed] = {}  # those versions, where a full response has to repeat them
        self._refused: dict[str, str] = {}
        self._refused_version = ""
        self._nack: Nack | None = None
        self._sent = EMPTY
        self._acked = EMPTY
        self._acked_version = ""
        self._last_answered = ""
        self._in_flight: dict[str, Sent] = {}

    # --- what is asked for ---

    def ask_for_all(self) -> None:
        if not self.wildcard:
            self.wildcard, self._due = True, True
            self._base, self._apart, self._begun = EMPTY, {}, False

    def ask(self, names: frozenset[str]) -> None:
        """From now on these too; those asked for again are sent again."""
        if names:
            self.names |= names
            self._fresh |= names

    def leave(self, names: frozenset[str]) -> None:
        if WILDCARD in names:
            self.wildcard = False
        self.names -= names
        self._fresh -= names
        for name in names:
            for known in (self._apart, self._kept, self._refused, self._claims):
                known.pop(name, None)

    def hold(self, versions: Mapping[str, str]) -> None:
        """What the client says it has already, from an earlier stream."""
        self._claims.update(versions)

    def again(self, names: frozenset[str]) -> None:
        """The client needs these once more, though they did not change and it may say that it has them."""
        self._again.append(names)

    def doubt(self) -> None:
        """The client may since have dropped what it had when it got the version that it names."""
        self._trusting = False

    def not_again(self) -> None:
        self._again.clear()

    # --- what is new to the client ---

    def changes(self, wanted: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True) -> Changes:
        """What it takes to get the client to `wanted`; from here on that counts as told."""
        if self._is_quiet(wanted):
            return NO_CHANGES
        self._begin(wanted)
        fresh = self._taken_fresh(wanted)
        batches, missing = self._answers(fresh, wanted, fallback)
        for step in wanted.steps(self._base, self.type_url):
            batches.append(self._news(step.updated, fresh))
            self._vanished(step.removed, fresh)
        self._base = wanted
        updated, removed = self._settled(wanted, fallback, removing=removing)
        due, self._due = self._due or (self.full and bool(fresh)), False
        return Changes(tuple(filter(None, (*batches, Batch(updated)))), (*missing, *removed), due)

    def _is_quiet(self, wanted: Snapshot) -> bool:
        pending = self._fresh or self._again or self._apart or self._claims or self.claim
        return self._begun and wanted is self._base and not pending

    def _begin(self, wanted: Snapshot) -> None:
        """Take what the client says it has from before as the point to start from."""
        if self._begun and (self.full or not (self.claim or self._claims)):
            self.claim = ""
            return
        claim, self.claim = self.claim, ""
        current = claim != "" and self._trusting and claim in (self.version(wanted), wanted.version(self.type_url))
        if current:
            self._fresh = frozenset()
        if not self._begun:
            self._begun, self._known = True, current or claim == ""
            if current or self._claims:
                self._start_at(wanted, claim or wanted.version(self.type_url))
            elif not self.wildcard:
                self._base = wanted
        self._believe(wanted)

    def _start_at(self, wanted: Snapshot, version: str) -> None:
        """The client has this, but for what it claims otherwise."""
        self._base = self._sent = self._acked = wanted
        self.told = self._acked_version = version
        self._due = False
        if self.wildcard and self._claims:
            self._apart = dict.fromkeys(wanted.versions(self.type_url).keys() - self._claims.keys(), ABSENT)

    def _believe(self, wanted: Snapshot) -> None:
        """Compare what the client says it has with what it should have."""
        claims, self._claims = self._claims, {}
        if not claims or (self.type_url == ENDPOINTS and not self._trusting):
            return  # what was under way may have left a cluster waiting for endpoints that the client has
        for name, version in claims.items() - wanted.versions(self.type_url).items():
            if self.wildcard or name in self.names:
                self._apart[name] = version
        self._fresh -= claims.keys()

    def _taken_fresh(self, wanted: Snapshot) -> frozenset[str]:
        fresh, self._fresh = self._fresh, frozenset()
        for names in self._again:
            fresh |= names & self.names
        self._again.clear()
        return fresh - {name for name in self._refused if self._is_refused(wanted.get(self.type_url, name))}

    def _answers(
        self, fresh: frozenset[str], wanted: Snapshot, fallback: Snapshot
    ) -> tuple[list[Batch], tuple[str, ...]]:
        if not fresh:
            return [], ()
        for name in fresh & self._apart.keys():
            del self._apart[name]
        batches = [*wanted.select(self.type_url, fresh)]
        missing = fresh if sum(map(len, batches)) < len(fresh) else frozenset()
        missing = missing.difference(*(batch.names for batch in batches))
        batches += self._answers_for_now(missing, fallback) if missing else ()
        missing = missing.difference(*(batch.names for batch in batches))
        return batches, tuple(sorted(missing)) if self.type_url in ANSWERED_IF_MISSING else ()

    def _answers_for_now(self, missing: frozenset[str], fallback: Snapshot) -> tuple[Batch, ...]:
        batches = fallback.select(self.type_url, missing)
        self._apart |= {packed.name: packed.version for batch in batches for packed in batch}
        return batches

    def _news(self, updated: Batch, fresh: frozenset[str]) -> Batch:
        if not fresh and not self._apart and (self.wildcard or updated.names <= self.names):
            return updated
        return Batch(p for p in updated if self._follows(p.name) and p.name not in fresh)

    def _vanished(self, removed: Iterable[str], fresh: frozenset[str]) -> None:
        for name in removed:
            if self._follows(name) and name not in fresh:
                self._set_apart(name, self._base.get(self.type_url, name))

    def _follows(self, name: str) -> bool:
        return (self.wildcard or name in self.names) and name not in self._apart

    def _set_apart(self, name: str, has: Packed | None) -> None:
        self._apart[name] = UNKNOWN if has is None else has.version
        if self.full and has is not None:
            self._kept[name] = has

    def _settled(self, wanted: Snapshot, fallback: Snapshot, *, removing: bool) -> tuple[list[Packed], list[str]]:
        """Go through the names that stand apart: what can be said of them now, and need not be remembered."""
        updated: list[Packed] = []
        removed: list[str] = []
        goes = removing and self.type_url in LISTED
        for name, has in list(self._apart.items()):
            want = wanted.get(self.type_url, name) or fallback.get(self.type_url, name)
            if self._is_refused(want):
                continue
            self._refused.pop(name, None)
            if want is not None:
                self._set_along(want, wanted)
                updated += [want] if want.version != has else []
            elif goes:
                del self._apart[name]
                removed += [name] if has != ABSENT else []
        return updated, removed

    def _set_along(self, packed: Packed, wanted: Snapshot) -> None:
        """It need not stand apart any more, if it is there for longer than the order of things takes."""
        if wanted.get(self.type_url, packed.name) is None:
            self._apart[packed.name] = packed.version
        else:
            self._apart.pop(packed.name, None)

    def _is_refused(self, packed: Packed | None) -> bool:
        return packed is not None and self._refused.get(packed.name) == packed.version

    # --- what a full response holds, and what all that the client has amounts to ---

    def content(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        """Everything that the client should have now; also what is still to go, or stays instead of the refused."""
        asked = self._asked(snapshot)
        if not self._apart:
            return asked
        stays = [packed for batch in asked for packed in batch if packed.name not in self._apart]
        kept = [self._kept[name] for name in self._apart if name in self._kept]
        return (Batch(stays + kept),)

    def version(self, snapshot: Snapshot) -> str:
        return version_of(sum(batch.digest for batch in self.content(snapshot)))

    def _asked(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        return snapshot.whole(self.type_url) if self.wildcard else snapshot.select(self.type_url, self.names)

    # --- what was sent, and what the client says to it ---

    def nonce(self, content: str) -> str:
        """A nonce made of the content, so that equal responses are equal bytes on every stream.

        It is told apart from every nonce that the client may still come up with.
        """
        nonce, turn = content, 0
        while nonce == self._last_answered or nonce in self._in_flight:
            turn += 1
            nonce = f"{content}.{turn}"
        return nonce

    def sent(self, response: Response, changes: Changes) -> None:
        gates = self.type_url == CLUSTER and len(changes.batches) > 0
        self._in_flight[response.nonce] = Sent(response.version, changes, self._base, gates)
        if len(self._in_flight) > UNANSWERED:
            del self._in_flight[next(iter(self._in_flight))]
        self._sent, self.latest, self.told = self._base, response.nonce, response.version
        self.messages += 1
        self.resources += sum(map(len, response.batches))
        self.size += response.size

    def is_refused(self, version: str) -> bool:
        return version == self._refused_version

    def answered(self, nonce: str, error: str | None, in_force: str = "") -> Nack | str | None:
        """The refusal, or the version accepted, or None if the nonce is of no response that awaits an answer.

        Answers come in order, so what was sent before is answered too. A client whose clusters were stuck accepts
        the response that frees them and tells, in the same request, what was wrong with the one before: it is
        accepted if the version that it has `in_force` is the one of that response.
        """
        if nonce not in self._in_flight:
            return None
        while True:
            oldest = next(iter(self._in_flight))
            sent = self._in_flight.pop(oldest)
            if oldest == nonce:
                break
        self._last_answered = nonce
        if error is None or (sent.version == in_force and in_force != ""):
            return self._accepted(sent)
        return self._rejected(sent, error)

    def _accepted(self, sent: Sent) -> str:
        self._acked, self._acked_version = sent.base, sent.version
        self._known, self._refused_version = True, ""
        for name in self._kept.keys() - self._apart.keys():
            del self._kept[name]
        return sent.version

    def _rejected(self, sent: Sent, text: str) -> Nack:
        updated = list(sent.changes.updated)
        named = [packed for packed in updated if _mentions(text, packed.name)]
        if not self._in_flight:
            self.told = self._acked_version if len(named) == len(updated) else ""
        self._nack = Nack(sent.version, text, tuple(packed.name for packed in named or updated))
        if self.full and (not named or not self._known):
            self._refused_version = sent.version  # without knowing whose fault it is, nothing can be left out of it
            self.take_back()
        else:
            self._quarantine(sent, named or updated)
        return self._nack

    def take_back(self) -> None:
        """What was told did not arrive: the client is where it was when it last agreed."""
        self._base = self._acked

    def _quarantine(self, sent: Sent, culprits: list[Packed]) -> None:
        """Hold back what was refused until it changes; what came with it may not have been applied: send it again."""
        for packed in sent.changes.updated:
            if self._base.get(self.type_url, packed.name) == packed and self._follows(packed.name):
                self._apart[packed.name] = UNKNOWN
                self._keep(packed)
                if packed in culprits:
                    self._refused[packed.name] = packed.version
        for name in sent.changes.removed if culprits else ():
            if self._base.get(self.type_url, name) is None and self._follows(name):
                self._apart[name] = UNKNOWN

    def _keep(self, refused: Packed) -> None:
        good = self._acked.get(self.type_url, refused.name)
        if good is not None and good != refused:
            self._kept.setdefault(refused.name, good)

    # --- where the client stands ---

    def waits_for(self) -> str | None:
        """The nonce of the newest response whose answer decides how to go on."""
        return next((nonce for nonce, sent in reversed(self._in_flight.items()) if sent.gates), None)

    def wait_no_longer(self) -> None:
        for sent in self._in_flight.values():
            sent.gates = False

    @property
    def has_accepted(self) -> bool:
        return self._acked_version != ""

    @property
    def has_leaving(self) -> bool:
        return self._begun and any(name not in self._refused for name in self._apart)

    def is_confirmed(self) -> bool:
        """All that was told is in force: nothing is under way, and nothing was refused."""
        return not self._in_flight and not self._refused and self._refused_version == ""

    def is_at(self, snapshot: Snapshot) -> bool:
        return not self.asked or (
            self._begun
            and self.is_confirmed()
            and not (self._fresh or (self._apart and self.type_url in LISTED))
            and self._base.digest(self.type_url) == snapshot.digest(self.type_url)
        )

    def status(self, wanted: Snapshot | None) -> Status:
        return Status(
            type_url=self.type_url,
            sent=version_of(sum(batch.digest for batch in self._asked(self._sent))),
            acked=self.version(self._acked),
            refused=None if not self._refused and self._refused_version == "" else self._nack,
            in_sync=wanted is not None and self.is_at(wanted),
            messages=self.messages,
            resources=self.resources,
            size=self.size,
        )


def _mentions(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None
