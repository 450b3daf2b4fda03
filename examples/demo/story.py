"""The requests of the demo: what each should get by the resources, and what it got."""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

import httpx

from cp.model.duration import Duration
from examples.demo.decided import SLOW, Decision, decision_at_edge, decisions
from examples.demo.plan import EDGE, HOST, SHOP, Plan, policies, read

TOLERANCE: Final = 0.2  # the limits are half a second apart
AT_ONCE: Final = "/"


@dataclass(frozen=True, slots=True)
class Row:
    """One request: who sends it, what the backend does with it, and the policy that decides how long is waited."""

    proxy: str
    path: str
    takes: float
    rule: str
    limit: float
    scheme: str = ""
    """How a client from outside comes to the gateway; empty for calls of a proxy's service."""

    answer: int = httpx.codes.OK
    """The status that it gets if it is in time."""

    @property
    def request(self) -> str:
        path = f"{self.path}?delay={self.takes:g}" if self.takes else self.path
        return f"{self.scheme}://{SHOP}{path}" if self.scheme else path

    def url(self, plan: Plan) -> str:
        if not self.scheme:
            return plan.sidecar(self.proxy).url + self.request
        return self.request.replace(SHOP, f"{SHOP}:{plan.edge.port(self.scheme)}")

    @property
    def status(self) -> int:
        """What it should get."""
        return httpx.codes.GATEWAY_TIMEOUT if self.takes > self.limit else self.answer

    @property
    def seconds(self) -> float:
        """After how long it should get it."""
        return min(self.takes, self.limit)


@dataclass(frozen=True, slots=True)
class Result:
    """What one request got, and the policy that decided it as the control plane says."""

    row: Row
    status: int
    seconds: float
    rule: str
    error: str = ""

    @property
    def held(self) -> bool:
        in_time = abs(self.seconds - self.row.seconds) <= TOLERANCE
        return in_time and self.status == self.row.status and self.rule == self.row.rule


def rows() -> tuple[Row, ...]:
    """Every combination of a frontend with a path: one request that is in time, one that is not."""
    limits = _limits()
    cases = (
        ("frontend-1", AT_ONCE, (0, 1.5), "timeout-on-backend-service"),
        ("frontend-1", SLOW, (1.5, 2.5), "timeout-on-backend-route"),
        ("frontend-2", AT_ONCE, (0, 1.5), "timeout-on-backend-service-override"),
        ("frontend-2", SLOW, (2.5, 3.5), "timeout-on-backend-route-override"),
    )
    called = (Row(proxy, path, takes, rule, limits[rule]) for proxy, path, times, rule in cases for takes in times)
    return (*called, *_rows_at_edge(limits))


def _rows_at_edge(limits: dict[str, float]) -> Iterator[Row]:
    """What clients from outside get at the gateway: the way to HTTPS, one service, and another below a path."""
    yield Row("edge-1", "/", 0, "to-https", inf, "http", httpx.codes.MOVED_PERMANENTLY)
    yield Row("edge-1", "/", 0, "shop", inf, "https")
    yield from (
        Row("edge-1", "/api", takes, (rule := "timeout-on-shop-api"), limits[rule], "https") for takes in (0, 1)
    )


def send_all(plan: Plan, wanted: Iterable[Row], trusted: Path, done: Callable[[Result], None]) -> list[Result]:
    """Send them side by side, and tell of each answer as it comes, with the policy that the control plane names.

    `trusted`: the file with the certificate that the gateway shows.
    """
    context = ssl.create_default_context(cafile=trusted)
    with (
        httpx.Client(timeout=30, trust_env=False, verify=context) as client,
        ThreadPoolExecutor(max_workers=32) as pool,
    ):
        decided = decisions(plan, client)
        sent = [pool.submit(_send, client, plan, row, _rule(row, plan, client, decided)) for row in wanted]
        for future in as_completed(sent):
            done(future.result())
    return [future.result() for future in sent]


def _send(client: httpx.Client, plan: Plan, row: Row, rule: str) -> Result:
    begun = time.monotonic()
    try:
        answer = _answer(client, row.url(plan), outside=bool(row.scheme))
    except httpx.HTTPError as error:
        return Result(row, 0, time.monotonic() - begun, rule, f"{type(error).__name__}: {error}")
    return Result(row, answer.status_code, time.monotonic() - begun, rule)


def _rule(row: Row, plan: Plan, client: httpx.Client, decided: dict[tuple[str, str], Decision]) -> str:
    if row.scheme:
        return decision_at_edge(plan, client, row.url(plan))
    return decided[row.proxy, row.path].policy


def _answer(client: httpx.Client, url: str, *, outside: bool) -> httpx.Response:
    """The answer to a call. This machine need not know the hostnames of the gateway: they are said to the gateway."""
    if not outside:
        return client.get(url)
    said = httpx.URL(url)
    host = {"host": said.netloc.decode()}
    return client.get(said.copy_with(host=HOST), headers=host, extensions={"sni_hostname": said.host})


def _limits() -> dict[str, float]:
    """How long each policy has a request wait, as its file says."""
    written = (*policies(), *read(EDGE / "gateway.yaml"))
    timeouts = [document for document in written if document["type"] == "MeshTimeout"]
    return {timeout["name"]: _limit(timeout) for timeout in timeouts}


def _limit(timeout: dict[str, Any]) -> float:
    return Duration.parse(timeout["spec"]["to"][0]["default"]["http"]["requestTimeout"]).seconds
