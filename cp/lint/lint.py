"""All rules together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from cp.lint import (
    clients,
    external,
    failed,
    hidden,
    idle,
    mtls,
    passthrough,
    patches,
    protocols,
    proxies,
    references,
    routes,
    targets,
)
from cp.lint.codes import CATALOGUE
from cp.lint.scene import Scene
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import CODE, HINT, reason
from cp.model.violation import Finding, Severity
from cp.policies import Policies
from cp.resources.world import World

Rule: TypeAlias = Callable[[Scene], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    idle.idle,
    failed.failed,
    clients.too_many,
    targets.targets,
    targets.backends,
    references.references,
    routes.unreachable,
    routes.repeated,
    routes.blocked,
    protocols.protocols,
    hidden.hidden,
    mtls.mtls,
    patches.patches,
    passthrough.passthrough,
    proxies.outbounds,
    proxies.services,
    external.services,
    proxies.no_dataplanes,
)

_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def lint(policies: Policies, world: World, checkpoint: Checkpoint = never_stopped) -> tuple[Finding, ...]:
    """Everything that is to be said of a World, the worst first, then by file and line."""
    scene = Scene(policies, world, checkpoint)
    rules = checked(RULES, checkpoint)
    found = (finding for rule in rules for finding in checked(_judged(rule, scene), checkpoint))
    return in_order((*world.findings, *found))


def _judged(rule: Rule, scene: Scene) -> tuple[Finding, ...]:
    """What a rule finds. One that has a fault of its own says so, and the others go on."""
    try:
        return tuple(rule(scene))
    except Exception as error:  # noqa: BLE001
        message = f"a fault of koguma in judging {rule.__name__}, of which nothing is told: {reason(error)}"
        return (Finding(CODE, CATALOGUE[CODE].severity, None, message, hint=HINT),)


def of_mesh(findings: Iterable[Finding], mesh: str) -> Iterator[Finding]:
    """Those about a mesh and what is in it; and about what is in no mesh, such as a file that cannot be read."""
    for finding in findings:
        key = finding.resource
        if key is None or (key.name if key.type == "Mesh" else key.mesh) in {"", mesh}:
            yield finding


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=_rank))


def _rank(finding: Finding) -> tuple[object, ...]:
    key = finding.resource
    named = ("", "", "") if key is None else (key.type, key.mesh, key.name)
    return (_ORDER.index(finding.severity), finding.file, finding.line, named, finding.path, finding.code)
