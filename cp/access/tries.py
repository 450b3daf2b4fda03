"""`FailedTries`: an address that shows one bad token after the other is told for a while to wait.

See record 0060.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

MOST_TRIES: Final = 20
"""Different bad tokens that an address may show in each window."""

WINDOW: Final = 60.0
"""Seconds."""

MOST_ADDRESSES: Final = 10_000
"""Of more, those whose window began first are forgotten: memory does not grow with the number of attackers."""

_NETWORK_OF_ONE_SITE: Final = 64
"""Bits. Whoever has one IPv6 address usually has all of such a network (RFC 6177)."""


@dataclass(slots=True)
class _Window:
    began: float
    failures: set[bytes]


class FailedTries:
    """The failures of each address. The time is given in seconds, by a clock that never goes back."""

    def __init__(self, most: int = MOST_TRIES) -> None:
        self._most = most
        self._windows: dict[str, _Window] = {}

    def wait(self, address: str, now: float) -> float:
        """Seconds for which bad tokens of an address are not judged one by one; 0 if they are."""
        window = self._windows.get(_site(address))
        if window is None or len(window.failures) < self._most:
            return 0.0
        return max(0.0, window.began + WINDOW - now)

    def add(self, address: str, secret: str, now: float) -> None:
        """Note a bad token. The same one again is no further try: an agent repeats what it was given."""
        site = _site(address)
        window = self._windows.get(site)
        if window is None or now >= window.began + WINDOW:
            self._windows.pop(site, None)  # so that windows stand in the order in which they began
            window = self._windows[site] = _Window(now, set())
        window.failures.add(sha256(secret.encode(errors="replace")).digest())
        if len(self._windows) > MOST_ADDRESSES:
            del self._windows[next(iter(self._windows))]

    def __len__(self) -> int:
        return len(self._windows)


def _site(address: str) -> str:
    """The address, or of IPv6 the network that probably belongs to the same caller."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _NETWORK_OF_ONE_SITE), strict=False))
