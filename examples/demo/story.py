"""The requests of the demo: what each should get by the resources, and what it got."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final

import httpx

from cp.model.duration import Duration
from examples.demo.decided import SLOW, decisions
from examples.demo.plan import Plan, policies

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

    @property
    def request(self) -> str:
        return f"{self.path}?delay={self.takes:g}" if self.takes else self.path

    @property
    def status(self) -> int:
        """What it should get."""
        return httpx.codes.GATEWAY_TIMEOUT if self.takes > self.limit else httpx.codes.OK

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
    return tuple(Row(proxy, path, takes, rule, limits[rule]) for proxy, path, times, rule in cases for takes in times)


def send_all(plan: Plan, wanted: Iterable[Row], done: Callable[[Result], None]) -> list[Result]:
    """Send them side by side, and tell of each answer as it comes, with the policy that the control plane names."""
    with httpx.Client(timeout=30, trust_env=False) as client, ThreadPoolExecutor(max_workers=32) as pool:
        decided = decisions(plan, client)
        sent = [pool.submit(_send, client, plan, row, decided[row.proxy, row.path].policy) for row in wanted]
        for future in as_completed(sent):
            done(future.result())
    return [future.result() for future in sent]


def _send(client: httpx.Client, plan: Plan, row: Row, rule: str) -> Result:
    begun = time.monotonic()
    try:
        answer = client.get(plan.sidecar(row.proxy).url + row.request)
    except httpx.HTTPError as error:
        return Result(row, 0, time.monotonic() - begun, rule, f"{type(error).__name__}: {error}")
    return Result(row, answer.status_code, time.monotonic() - begun, rule)


def _limits() -> dict[str, float]:
    """How long each policy has a request wait, as its file says."""
    timeouts = [document for document in policies() if document["type"] == "MeshTimeout"]
    return {timeout["name"]: _limit(timeout) for timeout in timeouts}


def _limit(timeout: dict[str, Any]) -> float:
    return Duration.parse(timeout["spec"]["to"][0]["default"]["http"]["requestTimeout"]).seconds
