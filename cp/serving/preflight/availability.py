"""The report that preflight is not possible: in the log, in `/ready` and by lint, for as long as it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from cp.model.violation import Finding, Severity
from cp.serving.preflight.preflight import Preflight
from cp.serving.preflight.scratch import EnvoyUnavailable
from cp.settings import variable

CODE: Final = "preflight-unavailable"
_EVERY: Final = 60.0
"""Seconds between two checks. Each write with preflight is one more."""


def unavailability(preflight: Preflight | None, *, rejects_writes: bool) -> Iterator[Finding]:
    """The finding that no change can be shown to an Envoy; none if that is possible, or no Envoy is set."""
    if preflight is None or not preflight.unavailable:
        return
    effect = "every write by people is rejected with 503" if rejects_writes else "writes with preflight are rejected"
    hint = f"until {variable('preflight_envoy')} runs in a sandbox, `--no-preflight` writes without preflight"
    yield Finding(CODE, Severity.WARNING, None, f"{effect}, as {preflight.unavailable}", hint=hint)


async def watched(preflight: Preflight | None, *, rejects_writes: bool, interval: float = _EVERY) -> None:
    """Check whether preflight is possible, at the start and from time to time. Log each change."""
    if preflight is None:
        return
    reported = ""
    while True:
        await _check(preflight)
        if preflight.unavailable != reported:
            reported = preflight.unavailable
            _log(unavailability(preflight, rejects_writes=rejects_writes))
        await asyncio.sleep(interval)


async def _check(preflight: Preflight) -> None:
    try:
        await preflight.check()
    except EnvoyUnavailable:
        return  # the reason is kept


def _log(findings: Iterator[Finding]) -> None:
    log, finding = structlog.get_logger(), next(findings, None)
    if finding is None:
        log.info("preflight.available")
    else:
        log.warning("preflight.unavailable", reason=str(finding))
