"""At random gateways, requests go where the documents say, where it is simulated, and where Envoy takes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

import pytest

from cp.insight.simulate import NoListener, Outcome, TrafficShare, simulate
from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from tests.edge import oracle
from tests.edge.draws import Draw, call_of, draw, requests
from tests.edge.envoy import BACKEND_HOST, CLOSED, REFUSED, Gateways, Observed, send
from tests.edge.listeners import mesh_gateway
from tests.edge.oracle import Answer, Request
from tests.oracle.destinations import MISSING, UNCLEAR
from tests.oracle.reading import Documents, read
from tests.random_mesh import dataplanes
from tests.snapshots import policies
from tests.support.loopback import new_host

_SUBSET: Final = re.compile(r"^(?!kri_)(.*)-[0-9a-f]{16}$")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Gateway:
    """A random gateway, as its documents have it and as it is served."""

    draw: Draw
    documents: Documents
    snapshot: Snapshot

    @classmethod
    def of(cls, seed: int) -> Gateway:
        drawn = draw(seed, new_host())
        world = drawn.mesh.world()
        (dataplane,) = (each for each in dataplanes(world) if each.name == drawn.proxy)
        return cls(drawn, read(drawn.mesh.documents), Compiler(policies()).snapshot(world, dataplane))

    def requests(self, count: int) -> Iterator[Request]:
        proxy = self.documents.get("Dataplane", self.draw.proxy)
        assert proxy is not None
        gateway = mesh_gateway(self.documents, proxy)
        listeners = gateway.spec["conf"]["listeners"] if gateway else []
        return requests(Random(self.draw.mesh.seed), listeners, count)

    def answer(self, request: Request) -> Answer | str:
        proxy = self.documents.get("Dataplane", self.draw.proxy)
        assert proxy is not None
        return oracle.answer(self.documents, proxy, request)

    def simulated(self, request: Request) -> Outcome | None:
        """None if nothing listens at the port."""
        try:
            return simulate(self.snapshot, call_of(request, self.draw.address))
        except NoListener:
            return None


def told(outcome: Outcome | None) -> Answer | str:
    """What is simulated, in the words of the documents."""
    if outcome is None:
        return oracle.REFUSED
    name = "" if outcome.row is None else outcome.row.name
    route = name.partition("+")[0].partition("@")[0] if name.startswith("kri_") else ""
    if outcome.reply is not None:
        if outcome.reply.status == CLOSED:
            return oracle.CLOSED
        return Answer(route, outcome.reply.status, _location(outcome.reply.location))
    assert outcome.forward is not None
    shares = _shares(outcome.forward.shares)
    if not outcome.table:
        return oracle.CLOSED if set(shares) <= {MISSING} else Answer(shares=shares)
    host = "" if oracle.has_hosts_of_its_own(shares) else outcome.forward.host or ""
    return Answer(route, shares=shares, host=host, path=outcome.forward.path.partition("?")[0])


def _shares(served: Sequence[TrafficShare]) -> Mapping[str, Fraction]:
    total = sum(share.weight for share in served)
    shares: dict[str, Fraction] = {}
    for share in served:
        subset = _SUBSET.match(share.cluster)
        name = MISSING if share.is_missing else f"{subset[1]}-" if subset else share.cluster
        shares[name] = shares.get(name, Fraction(0)) + Fraction(share.weight, total)
    return shares


def _location(text: str) -> tuple[str, str, int, str] | None:
    if not text:
        return None
    url = urlsplit(text)
    return url.scheme, url.hostname or "", url.port or _DEFAULT_PORTS.get(url.scheme, 0), url.path


def agrees(outcome: Outcome | None, observed: Observed) -> bool:
    """Whether an observed answer is one that the simulated outcome allows."""
    if outcome is None:
        return observed.status == REFUSED
    row = None if outcome.row is None else outcome.row.index
    if outcome.reply is not None:
        expected = (outcome.reply.status, row, outcome.reply.location)
        return (observed.status, observed.row, observed.location) == expected
    assert outcome.forward is not None
    shares = [share for share in outcome.forward.shares if share.weight]
    if observed.status != 200:
        return observed.row == row and observed.status in {share.status for share in shares if share.is_missing}
    seen = (observed.row, observed.cluster in {share.cluster for share in shares if not share.is_missing})
    # Where only some of the backends have names, the others see the host that the client asked for.
    hosts = {BACKEND_HOST, outcome.host} if outcome.forward.host is None else {outcome.forward.host}
    is_as_sent = not outcome.table or (observed.path == outcome.forward.path and observed.host in hosts)
    return seen == (row, True) and is_as_sent


def differences(folder: Path, seeds: Sequence[int], count: int) -> tuple[list[str], Counter[str]]:
    """Every request of which the three do not say the same, and the number of requests by what became of them."""
    gateways = [Gateway.of(seed) for seed in seeds]
    wrong, kinds = [], Counter[str]()
    with Gateways([gateway.snapshot for gateway in gateways], folder):
        for gateway in gateways:
            for request in gateway.requests(count):
                expected, outcome = gateway.answer(request), gateway.simulated(request)
                observed = send(call_of(request, gateway.draw.address))
                kinds[_kind(expected)] += 1
                if not (agrees(outcome, observed) and (expected == UNCLEAR or expected == told(outcome))):
                    wrong.append(_printed(gateway, request, expected, outcome, observed))
    return wrong, kinds


def _kind(expected: Answer | str) -> str:
    if isinstance(expected, str):
        return expected
    return "forwarded" if expected.shares else "redirected" if expected.location else str(expected.status)


def _printed(
    gateway: Gateway, request: Request, expected: Answer | str, outcome: Outcome | None, observed: Observed
) -> str:
    said = {"documents": expected, "simulated": told(outcome), "seen": observed}
    lines = (f"  {who} {what}" for who, what in said.items())
    return "\n".join((f"seed {gateway.draw.mesh.seed}: {request}", *lines))


@pytest.mark.envoy
def test_a_request_goes_where_the_documents_say_and_where_it_is_simulated_to_go(tmp_path: Path) -> None:
    wrong, kinds = differences(tmp_path, range(30), count=20)

    assert wrong == []
    assert kinds.keys() > {"forwarded", "redirected", "404", "500", oracle.CLOSED, oracle.REFUSED}


@pytest.mark.long
@pytest.mark.envoy
@pytest.mark.parametrize("first", range(0, 400, 25))
def test_a_great_many_requests_go_where_they_should(first: int, tmp_path: Path) -> None:
    assert differences(tmp_path, range(first, first + 25), count=40)[0] == []
