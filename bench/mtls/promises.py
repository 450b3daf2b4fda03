"""What is promised of mTLS, with the measured values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from bench.mtls import mesh as mtls_mesh
from bench.mtls.stand import ALL_PERMITTED, ONE_PERMITTED, RENEWALS, ROTATION, Certificates, Found, Pair, Size
from bench.serving import mesh
from bench.serving.promises import Promise, on_time
from bench.serving.scenarios import COLD, ROUTE
from generators.envoy.names import mesh_identity

COLD_RATIO: Final = 1.2


def promises(found: Found, size: Size) -> Iterator[Promise]:
    kind = "delta" if found.pairs[0].delta else "state of the world"
    for promise in (*counted(found, size), *_timed(found)):
        yield Promise(f"{kind}: {promise.says}", promise.measured, promise.held)


def counted(found: Found, size: Size) -> Iterator[Promise]:
    """Those that hold on every machine."""
    yield own(found.certificates, size)
    for pair in found.pairs:
        if any(one.late for one in (*pair.secured, *pair.plain)):
            yield Promise(f"{pair.scenario}: everybody hears of it", "not everybody did", held=False)
        if (sends := _sends(pair.scenario, size)) is not None:
            yield _messages(pair, sends)
        if pair.scenario in {RENEWALS, ROTATION}:
            (issued,) = pair.issued
            says = f"{pair.scenario}: one certificate is issued to each"
            yield Promise(says, f"{issued:g}", issued == size.proxies)


def own(certificates: Certificates, size: Size) -> Promise:
    strangers = [name for name, expected in _expected(size).items() if not _is_own(certificates.get(name), expected)]
    keys = {shown["key"] for of_proxy in certificates.values() for shown in of_proxy}
    measured = f"{size.proxies - len(strangers)} did, with {len(keys)} keys"
    is_held = not strangers and len(keys) == size.proxies
    return Promise("each proxy gets its own certificate, and only that", measured, is_held)


def _expected(size: Size) -> dict[str, frozenset[str]]:
    return {
        f"{mesh.MESH}.{mesh.proxy_name(number)}": mtls_mesh.certificate_names(number, size.services)
        for number in range(size.proxies)
    }


def _is_own(of_proxy: list[dict[str, Any]] | None, expected: frozenset[str]) -> bool:
    if of_proxy is None or len(of_proxy) != 1:
        return False
    (shown,) = of_proxy
    return shown["secret"] == mesh_identity(mesh.MESH) and set(shown["uris"]) == expected and shown["fits"] is True


def _timed(found: Found) -> Iterator[Promise]:
    for pair in found.pairs:
        if pair.scenario == COLD:
            yield _at_most("time", pair.time_ratio)
            yield _at_most("processor time", pair.cpu_ratio)
        measured = (*pair.secured, *pair.plain)
        own_lag, lag = max(one.own_lag for one in measured), max(one.lag for one in measured)
        yield on_time(f"{pair.scenario}: ", own_lag, lag)


def _at_most(name: str, ratio: float | None) -> Promise:
    says = f"{COLD}: at most {COLD_RATIO:g} x the {name} without mTLS"
    return Promise(says, f"{ratio or 0:.2f} x", ratio is not None and ratio <= COLD_RATIO)


def _sends(scenario: str, size: Size) -> Counter[str] | None:
    """The messages that an edit costs."""
    of_one = len([number for number in range(size.proxies) if number % size.services == 1])
    return {
        ROUTE: Counter(routes=size.proxies),
        ALL_PERMITTED: Counter(listeners=size.proxies),
        ONE_PERMITTED: Counter(listeners=of_one),
        RENEWALS: Counter(secrets=size.proxies),
        ROTATION: Counter(secrets=2 * size.proxies),
    }.get(scenario)


def _messages(pair: Pair, expected: Counter[str]) -> Promise:
    wrong = [one.messages for one in pair.secured if +one.messages != expected]
    says = f"{pair.scenario}: {_text(expected)}, and nothing else is sent"
    return Promise(says, _text((wrong or [expected])[0]), not wrong)


def _text(messages: Counter[str]) -> str:
    counted = (f"{number} message{'s' * (number != 1)} of {kind}" for kind, number in messages.items())
    return ", ".join(counted) or "nothing"
