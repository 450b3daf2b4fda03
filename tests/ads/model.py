"""A small model of Envoy's ADS client: what it asks, what it takes over, what it refuses, and when it keeps silent.

It raises `Broken` where a real one would lose traffic or work in vain: a table that points at a cluster which is not
there, a resource sent again that it has.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, ClassVar

from cp.ads.session.messages import DeltaRequest, Response, SotwRequest
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, PackedResource
from tests.ads.content import GOOD, POISON, unpack

ORDER = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)


class Broken(AssertionError):
    """What a real client would suffer from."""


class Client:
    """What the two protocols have in common."""

    def __init__(self, *, naming: bool = True) -> None:
        self.naming = naming  # it says which resources it refuses
        self.has: dict[str, dict[str, PackedResource]] = {type_url: {} for type_url in ORDER}
        self.outbox: deque[Any] = deque()
        self.warming: set[str] = set()
        self.asked_listeners = False
        self.excused: set[str] = set()  # clusters that it refused: tables may point at them in vain
        self.suspended = False  # the order of things cannot be kept just now
        self.awaits_endpoints = False  # some of an earlier stream may be missing: it is told so, and keeps what it has
        self.needed: set[tuple[str, str]] = set()  # what may be sent again, having come or gone with what was refused
        self.asked_again: Counter[tuple[str, str]] = Counter()  # and what may, as a question crossed a push

    # --- what is asked for ---

    @property
    def wanted(self) -> dict[str, frozenset[str]]:
        clusters = frozenset(self.has[CLUSTER]) | self.warming
        tables = (name for one in self.has[LISTENER].values() for name in unpack(one).to)
        return {ENDPOINTS: clusters, ROUTES: frozenset(tables)}

    def connect(self) -> None:
        self.outbox.clear()
        self.forget_stream()
        self.ask(CLUSTER)
        if self.wanted[ENDPOINTS]:
            self.ask(ENDPOINTS)
        if self.asked_listeners:
            self.ask(LISTENER)
        if self.wanted[ROUTES]:
            self.ask(ROUTES)

    def forget_stream(self) -> None:
        raise NotImplementedError

    def ask(self, type_url: str, *, error: str | None = None) -> None:
        raise NotImplementedError

    def reply(self, response: Response, error: str | None) -> None:
        raise NotImplementedError

    def follow(self, type_url: str) -> None:
        """Ask for what is needed now."""
        raise NotImplementedError

    def gone(self, response: Response) -> Iterable[str]:
        raise NotImplementedError

    # --- what is taken over ---

    def receive(self, response: Response) -> None:
        error = self.refusal(response)
        kind = response.type_url
        if not (error and any(unpack(p).taste == POISON for p in response.resources)):
            {CLUSTER: self.take_clusters, ENDPOINTS: self.take_endpoints, LISTENER: self.take_listeners}.get(
                kind, self.take_tables
            )(response)
        if error:
            kinds = {kind, ENDPOINTS} if kind == CLUSTER else {kind}
            touched = {packed.name for packed in response.resources}.union(response.removed)
            self.needed |= {(kind, name) for name in touched for kind in kinds}
        self.reply(response, error)
        self.settle()
        self.check()

    def refusal(self, response: Response) -> str | None:
        refused = [p for p in response.resources if unpack(p).taste != GOOD]
        if response.type_url == CLUSTER:
            self.excused |= {p.name for p in refused}
        if not refused:
            return None
        named = [p.name for p in refused] if self.naming else []
        return f"Error adding/updating: {', '.join(named)}: no" if named else "Proto constraint validation failed"

    def take_clusters(self, response: Response) -> None:
        for packed in response.resources:
            if unpack(packed).taste == GOOD and self.has[CLUSTER].get(packed.name) != packed:
                self.has[CLUSTER][packed.name] = packed
                self.warming.add(packed.name)
            elif unpack(packed).taste == GOOD:
                self.unneeded(packed)
        for name in self.gone(response):
            self.has[CLUSTER].pop(name, None)
            self.has[ENDPOINTS].pop(name, None)
            self.warming.discard(name)
        self.follow(ENDPOINTS)

    def take_endpoints(self, response: Response) -> None:
        for packed in response.resources:
            if packed.name in self.wanted[ENDPOINTS]:
                if packed.name not in self.warming and self.has[ENDPOINTS].get(packed.name) == packed:
                    self.unneeded(packed)
                self.has[ENDPOINTS][packed.name] = packed
                self.warming.discard(packed.name)
        for name in response.removed:  # a cluster is ready if it hears that there are none
            self.warming.discard(name)
            self.lose(ENDPOINTS, name)

    def take_listeners(self, response: Response) -> None:
        for packed in response.resources:
            if unpack(packed).taste == GOOD:
                if self.has[LISTENER].get(packed.name) == packed:
                    self.unneeded(packed)
                self.has[LISTENER][packed.name] = packed
        for name in self.gone(response):
            self.has[LISTENER].pop(name, None)
        for name in self.has[ROUTES].keys() - self.wanted[ROUTES]:
            del self.has[ROUTES][name]
        self.follow(ROUTES)

    def take_tables(self, response: Response) -> None:
        for packed in response.resources:
            if packed.name in self.wanted[ROUTES] and unpack(packed).taste == GOOD:
                if self.has[ROUTES].get(packed.name) == packed:
                    self.unneeded(packed)
                self.has[ROUTES][packed.name] = packed
        for name in response.removed:
            self.lose(ROUTES, name)

    def lose(self, type_url: str, name: str) -> None:
        if type_url == ENDPOINTS and self.awaits_endpoints:
            return
        if self.has[type_url].pop(name, None) is not None and name in self.wanted[type_url] and not self.suspended:
            raise Broken(f"{name} was removed while it is in use")

    def unneeded(self, packed: PackedResource) -> None:
        key = packed.type_url, packed.name
        if self.asked_again[key] > 0:
            self.asked_again[key] -= 1
        elif key not in self.needed and not self.suspended:
            raise Broken(f"{packed.name} was sent again")

    def rest(self) -> None:
        """Nothing is under way in either direction: what is sent again from here on is sent without need."""
        self.asked_again.clear()
        self.suspended = self.awaits_endpoints = False

    def give_up(self) -> None:
        """The time is over that clusters wait for endpoints at first."""
        self.warming.clear()
        self.settle()

    def settle(self) -> None:
        """Listeners are asked for once all clusters are there, and not before."""
        if not self.warming and not self.asked_listeners and self.has_clusters():
            self.asked_listeners = True
            self.ask(LISTENER)

    def has_clusters(self) -> bool:
        raise NotImplementedError

    def check(self) -> None:
        there = self.has[CLUSTER].keys() | self.excused
        for table in self.has[ROUTES].values():
            missing = set(unpack(table).to) - there
            if missing and not self.suspended:
                raise Broken(f"{table.name} points at {missing}, which are not there")


class SotwClient(Client):
    kind: ClassVar[str] = "sotw"

    def forget_stream(self) -> None:
        self.nonces: dict[str, str] = {}
        if not hasattr(self, "versions"):
            self.versions: dict[str, str] = {}
        self.names: dict[str, frozenset[str]] = {}
        self.withheld: tuple[Response, str | None] | None = None

    def ask(self, type_url: str, *, error: str | None = None) -> None:
        known, self.names[type_url] = self.names.get(type_url, frozenset()), self.wanted.get(type_url, frozenset())
        self.asked_again.update((type_url, name) for name in self.names[type_url] - known)
        version, nonce = self.versions.get(type_url, ""), self.nonces.get(type_url, "")
        self.outbox.append(SotwRequest(type_url, self.names[type_url], nonce, version, error))

    def reply(self, response: Response, error: str | None) -> None:
        """The answer to clusters waits until they are warm; then one request speaks for all that came meanwhile."""
        kind = response.type_url
        self.nonces[kind] = response.nonce
        if error is None:
            self.versions[kind] = response.version
        if kind == CLUSTER and self.warming:
            self.withheld = (response, error or (self.withheld[1] if self.withheld else None))
        else:
            self.ask(kind, error=error)

    def settle(self) -> None:
        if self.withheld is not None and not self.warming:
            error, self.withheld = self.withheld[1], None
            self.ask(CLUSTER, error=error)
        super().settle()

    def follow(self, type_url: str) -> None:
        """A cluster that warms up again makes it ask again, though for the same names."""
        if self.wanted[type_url] != self.names.get(type_url, frozenset()) or (type_url == ENDPOINTS and self.warming):
            self.ask(type_url)

    def gone(self, response: Response) -> Iterable[str]:
        refused = {p.name for p in response.resources if unpack(p).taste != GOOD}
        return set(self.has[response.type_url]) - {p.name for p in response.resources} - refused

    def has_clusters(self) -> bool:
        return CLUSTER in self.versions

    def unneeded(self, packed: PackedResource) -> None:
        """Clusters and listeners come all together, whichever changed."""
        if packed.type_url not in (CLUSTER, LISTENER):
            super().unneeded(packed)


class DeltaClient(Client):
    kind: ClassVar[str] = "delta"

    def forget_stream(self) -> None:
        self.subscribed: dict[str, frozenset[str]] = {}
        self.withheld: list[DeltaRequest] = []
        self.answered = False

    def ask(self, type_url: str, *, error: str | None = None) -> None:
        names = self.wanted.get(type_url, frozenset())
        if type_url not in self.subscribed:
            held = {name: packed.version for name, packed in self.has[type_url].items()}
            self.outbox.append(DeltaRequest(type_url, subscribe=names, initial_versions=held))
        elif names != self.subscribed[type_url]:
            known = self.subscribed[type_url]
            self.outbox.append(DeltaRequest(type_url, subscribe=names - known, unsubscribe=known - names))
            self.asked_again.update((type_url, name) for name in names - known)
        self.subscribed[type_url] = names

    def reply(self, response: Response, error: str | None) -> None:
        answer = DeltaRequest(response.type_url, nonce=response.nonce, error=error)
        self.answered = True
        if response.type_url == CLUSTER and (self.warming or self.withheld):
            self.withheld.append(answer)
        else:
            self.outbox.append(answer)

    def settle(self) -> None:
        if not self.warming:
            self.outbox.extend(self.withheld)
            self.withheld = []
        super().settle()

    def follow(self, type_url: str) -> None:
        if self.wanted[type_url] != self.subscribed.get(type_url, frozenset()):
            self.ask(type_url)

    def gone(self, response: Response) -> Iterable[str]:
        return response.removed

    def has_clusters(self) -> bool:
        return self.answered
