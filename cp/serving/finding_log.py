"""Findings as lines of the log: about what is stored when the control plane starts, and about what is written later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import structlog

from cp.model.violation import Finding
from cp.resources.initial_policies import is_initial
from cp.resources.world import World
from cp.store.port import UNKNOWN, Author, ChangeBatch

MOST_LOGGED: Final = 200
"""Findings that are logged after one turn."""


def log_findings_of_all(world: World) -> None:
    for finding in world.findings:
        if not _is_about_initial_policy(world, finding):
            _log(finding)


def log_findings_of_changes(world_before: World, world: World, batches: Iterable[ChangeBatch]) -> None:
    """With who made the change. A finding about the store itself is logged only if it is new.

    Of many findings, only some are logged: streams wait meanwhile.
    """
    findings = _of_changes(world_before, world, batches)
    for finding, author in islice(findings, MOST_LOGGED):
        _log(finding, user=author.name or None, origin=author.origin or None)
    if next(findings, None) is not None:
        structlog.get_logger().warning("findings.more", logged=MOST_LOGGED, revision=world.revision)


def _of_changes(world_before: World, world: World, batches: Iterable[ChangeBatch]) -> Iterator[tuple[Finding, Author]]:
    findings_before = world_before.store_findings
    for batch in batches:
        yield from ((finding, UNKNOWN) for finding in batch.findings or () if finding not in findings_before)
        for change in batch.changes:
            findings = world.findings_of(change.key)
            mine = (finding for finding in findings if not _is_about_initial_policy(world, finding))
            yield from ((finding, change.author) for finding in mine)


def _is_about_initial_policy(world: World, finding: Finding) -> bool:
    """Whether it is about a policy that the control plane wrote for a new mesh, and no operator."""
    resource = None if finding.resource is None else world.get(finding.resource)
    return resource is not None and is_initial(resource.document)


def _log(finding: Finding, **author: str | None) -> None:
    place, resource = finding.place or None, str(finding.resource) if finding.resource else None
    log = structlog.get_logger()
    log.warning("finding", code=finding.code, resource=resource, place=place, **author, reason=str(finding))
