"""Proxies that answer responses as Envoy would. They do no I/O: they return the requests to send.

A proxy keeps names and versions only. Clusters are acknowledged once their endpoints and secrets are there, listeners
are asked for after that, and assignments, route tables and secrets are asked for by the names that clusters and
listeners have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Final

from bench.serving.reading import Heard, asking
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, bytes_field, text_field

HELD: Final = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET)


class Proxy(ABC):
    """A proxy, over all of its streams."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: dict[str, dict[str, str]] = {type_url: {} for type_url in HELD}
        self._secrets: set[str] = set()  # to which its clusters and listeners refer
        self._node = text_field(1, name) + text_field(2, name)
        self._begin()

    def _begin(self) -> None:
        self._warming: set[str] = set()
        self._withheld: list[bytes] = []
        self._listens = False  # it has asked for listeners on this stream

    @property
    def is_ready(self) -> bool:
        """Whether the proxy has every resource to which its resources refer."""
        is_warm = self._listens and not self._warming and self._secrets <= self.held[SECRET].keys()
        return is_warm and len(self.held[LISTENER]) > 0 and self._has_routes()

    @property
    def _wanted(self) -> tuple[str, ...]:
        """The types that it has asked for: without mTLS there are no secrets."""
        return HELD if self._secrets else HELD[:-1]

    @abstractmethod
    def _has_routes(self) -> bool: ...

    @abstractmethod
    def connect(self) -> list[bytes]:
        """The first requests of a stream. A proxy that has resources names them."""

    def hear(self, heard: Heard) -> list[bytes]:
        take = {CLUSTER: self._clusters, LISTENER: self._listeners, ROUTES: self._route_tables}
        return take.get(heard.type_url, self._dependencies)(heard)

    def _clusters(self, heard: Heard) -> list[bytes]:
        self._warming |= self._changed(heard)
        requests = self._ask_for_endpoints(heard) + self._ask_for_secrets(heard)
        self._warming |= self._secrets - self.held[SECRET].keys()
        self._withheld.append(self._ack(heard))
        return requests + self._warm()

    def _dependencies(self, heard: Heard) -> list[bytes]:
        """What clusters wait for: endpoints and secrets."""
        self._keep(heard)
        if self._warming:
            self._warming.difference_update(heard.removed, *(run.versions for run in heard.runs))
        return [self._ack(heard), *self._warm()]

    def _warm(self) -> list[bytes]:
        """The requests that Envoy sends once all clusters have what they wait for."""
        if self._warming:
            return []
        requests, self._withheld = self._withheld, []
        if requests and not self._listens:
            self._listens = True
            requests.append(self._first(LISTENER))
        return requests

    def _listeners(self, heard: Heard) -> list[bytes]:
        requests = self._ask_for_routes(heard) + self._ask_for_secrets(heard)
        return [*requests, self._ack(heard)]

    def _route_tables(self, heard: Heard) -> list[bytes]:
        self._keep(heard)
        return [self._ack(heard)]

    def _ask_for_secrets(self, heard: Heard) -> list[bytes]:
        new_names = set[str]().union(*(run.secrets for run in heard.runs)) - self._secrets
        self._secrets |= new_names
        return [self._subscription_to_secrets(new_names)] if new_names else []

    @abstractmethod
    def _subscription_to_secrets(self, new_names: set[str]) -> bytes: ...

    @abstractmethod
    def _changed(self, heard: Heard) -> set[str]:
        """Keep a response of clusters. Returns the endpoints for which these wait."""

    @abstractmethod
    def _keep(self, heard: Heard) -> None: ...

    @abstractmethod
    def _ask_for_endpoints(self, heard: Heard) -> list[bytes]: ...

    @abstractmethod
    def _ask_for_routes(self, heard: Heard) -> list[bytes]: ...

    @abstractmethod
    def _ack(self, heard: Heard) -> bytes: ...

    @abstractmethod
    def _first(self, type_url: str) -> bytes: ...


class StateOfTheWorld(Proxy):
    def __init__(self, name: str) -> None:
        self._versions: dict[str, str] = {}
        self._nonces: dict[str, str] = {}
        self._names: dict[str, bytes] = dict.fromkeys(HELD, b"")
        self._wants: dict[str, int] = {}
        super().__init__(name)

    def connect(self) -> list[bytes]:
        self._begin()
        self._nonces = {}
        node = bytes_field(2, self._node)
        if not self._versions:
            return [node + self._request(CLUSTER)]
        self._listens = True
        first, *later_requests = (self._request(type_url) for type_url in self._wanted)
        return [node + first, *later_requests]

    def _has_routes(self) -> bool:
        return len(self.held[ROUTES]) >= self._wants.get(ROUTES, 0)

    def _changed(self, heard: Heard) -> set[str]:
        held_before = self.held[CLUSTER]
        self._keep(heard)
        if not held_before:
            return set[str]().union(*(run.refers for run in heard.runs))
        changed = dict(self.held[CLUSTER].items() - held_before.items())
        if not changed:
            return set()
        return {name for run in heard.runs for name in run.refers if name in changed}

    def _keep(self, heard: Heard) -> None:
        if heard.type_url in {CLUSTER, LISTENER}:
            self.held[heard.type_url] = {}
        for run in heard.runs:
            self.held[heard.type_url].update(run.versions)

    def _ask_for_endpoints(self, heard: Heard) -> list[bytes]:
        return self._ask(ENDPOINTS, heard, again=bool(self._warming))

    def _ask_for_routes(self, heard: Heard) -> list[bytes]:
        self._keep(heard)
        return self._ask(ROUTES, heard, again=False)

    def _ask(self, type_url: str, heard: Heard, *, again: bool) -> list[bytes]:
        names = b"".join(run.asks for run in heard.runs)
        if names == self._names[type_url] and not again:
            return []
        self._names[type_url] = names
        self._wants[type_url] = sum(len(run.refers) for run in heard.runs)
        return [self._request(type_url)]

    def _subscription_to_secrets(self, new_names: set[str]) -> bytes:  # noqa: ARG002  # it names the others again
        self._names[SECRET] = asking(frozenset(self._secrets))
        return self._request(SECRET)

    def _ack(self, heard: Heard) -> bytes:
        self._versions[heard.type_url], self._nonces[heard.type_url] = heard.version, heard.nonce
        return self._request(heard.type_url)

    def _first(self, type_url: str) -> bytes:
        return self._request(type_url)

    def _request(self, type_url: str) -> bytes:
        version, nonce = self._versions.get(type_url, ""), self._nonces.get(type_url, "")
        request = text_field(1, version) + self._names[type_url] + text_field(4, type_url)
        return request + text_field(5, nonce) if nonce else request


class Delta(Proxy):
    def __init__(self, name: str) -> None:
        self._subscribed: dict[str, set[str]] = {ENDPOINTS: set(), ROUTES: set(), SECRET: set()}
        super().__init__(name)

    def connect(self) -> list[bytes]:
        self._begin()
        node = bytes_field(1, self._node)
        if not self.held[CLUSTER]:
            return [node + self._first(CLUSTER)]
        self._listens = True
        first, *later_requests = (self._returning(type_url) for type_url in self._wanted)
        return [node + first, *later_requests]

    def _has_routes(self) -> bool:
        return len(self.held[ROUTES]) >= len(self._subscribed[ROUTES])

    def _changed(self, heard: Heard) -> set[str]:
        self._keep(heard)
        for name in heard.removed:
            self._subscribed[ENDPOINTS].discard(name)
            self._warming.discard(name)
        return set[str]().union(*(run.refers for run in heard.runs))

    def _keep(self, heard: Heard) -> None:
        held = self.held[heard.type_url]
        for run in heard.runs:
            held.update(run.versions)
        for name in heard.removed:
            held.pop(name, None)

    def _ask_for_endpoints(self, heard: Heard) -> list[bytes]:
        return self._ask(ENDPOINTS, heard)

    def _ask_for_routes(self, heard: Heard) -> list[bytes]:
        self._keep(heard)
        return self._ask(ROUTES, heard)

    def _subscription_to_secrets(self, new_names: set[str]) -> bytes:
        self._subscribed[SECRET] |= new_names
        return text_field(2, SECRET) + asking(frozenset(new_names))

    def _ask(self, type_url: str, heard: Heard) -> list[bytes]:
        subscribed, asks = self._subscribed[type_url], []
        for run in heard.runs:
            if not run.refers <= subscribed:
                asks.append(run.asks)
                subscribed |= run.refers
        return [text_field(2, type_url) + b"".join(asks)] if asks else []

    def _ack(self, heard: Heard) -> bytes:
        return text_field(2, heard.type_url) + text_field(6, heard.nonce)

    def _first(self, type_url: str) -> bytes:
        return text_field(2, type_url)

    def _returning(self, type_url: str) -> bytes:
        held = self.held[type_url]
        subscriptions = map(_wanting, self._subscribed.get(type_url, ()))
        return text_field(2, type_url) + b"".join(subscriptions) + b"".join(map(_holding, held.items()))


@cache
def _wanting(name: str) -> bytes:
    return text_field(3, name)


@cache
def _holding(named: tuple[str, str]) -> bytes:
    """An entry of `initial_resource_versions`."""
    name, version = named
    return bytes_field(5, text_field(1, name) + text_field(2, version))
