"""`ProxyShares`: the part of a server that one Dataplane, or one token, may use: streams, memory, requests.

A stream beyond the most ends the oldest one and is served itself: an Envoy that reconnects may have left a stream
behind that is half-dead. Names and versions that clients send are held for as long as a stream lasts, so all streams of
a Dataplane share a number of bytes for them. Requests that come faster than they may are read later, which costs only
their sender. So are those of its next streams: a client gains nothing by reconnecting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cp.model.token_buckets import TokenBucket, TokenBuckets

TOO_MANY_OF_PROXY: Final = "too many of one proxy"
TOO_MUCH_OF_PROXY: Final = "too much of one proxy"

_COST_OF_REQUEST: Final = 4096
"""Bytes that each request counts for in addition to its own, as the smallest one takes time too."""


class TooMuchHeld(Exception):
    """The streams of a Dataplane hold as many bytes as they may."""


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The most of one Dataplane."""

    streams: int | None
    """None: there is no limit."""

    held_bytes: int = 0
    request_bytes: int = 8 * 1024 * 1024
    """Bytes of requests that are read at once."""

    request_rate: int = 2 * 1024 * 1024
    """Bytes of requests that are read in a second after that."""


@dataclass(eq=False, slots=True)
class SharedStream:
    """A stream, as far as its Dataplane is concerned."""

    end: Callable[[], None]
    held_bytes: int = 0


@dataclass(eq=False, slots=True)
class ProxyShare:
    """The streams of one Dataplane, the oldest first."""

    limits: ShareLimits
    requests: TokenBucket
    clock: Callable[[], float]
    streams: list[SharedStream] = field(default_factory=list)

    def add(self, stream: SharedStream) -> None:
        """Take one more stream. If they are too many the oldest is told to end."""
        self.streams.append(stream)
        if self.limits.streams is not None and len(self.streams) > self.limits.streams:
            self.streams.pop(0).end()

    def hold(self, stream: SharedStream, size: int) -> None:
        """Note how many bytes a stream holds. Raises `TooMuchHeld`."""
        grows, stream.held_bytes = size > stream.held_bytes, size
        total = sum(shared.held_bytes for shared in self.streams)
        if grows and total > self.limits.held_bytes:
            reason = f"the streams of this proxy hold {total} bytes of names and versions"
            raise TooMuchHeld(f"{reason}: {self.limits.held_bytes} are the most (KOGUMA_MOST_BYTES_OF_PROXY)")

    def note_request(self, size: int) -> None:
        """Count a request of so many bytes."""
        self.requests.spend(size + _COST_OF_REQUEST, self.clock())

    @property
    def pause(self) -> float:
        """The seconds for which to read no further request of this Dataplane."""
        return self.requests.spend(0, self.clock()) / self.limits.request_rate


class ProxyShares:
    """The clock tells seconds, and never goes back."""

    def __init__(self, limits: ShareLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._shares: dict[str, ProxyShare] = {}
        self._requests = TokenBuckets[str](limits.request_bytes, limits.request_rate)

    @contextmanager
    def entered(self, proxy: str, stream: SharedStream) -> Iterator[ProxyShare]:
        """Count a stream for as long as the block lasts."""
        if (share := self._shares.get(proxy)) is None:
            share = self._shares[proxy] = ProxyShare(self._limits, self._requests.bucket(proxy), self._clock)
        share.add(stream)
        try:
            yield share
        finally:
            if stream in share.streams:
                share.streams.remove(stream)
            if not share.streams and self._shares.get(proxy) is share:
                del self._shares[proxy]
