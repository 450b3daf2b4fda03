"""All rules together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from cp.lint import (
    addresses,
    external,
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
from cp.lint.scene import Scene
from cp.model.violation import Finding, Severity
from cp.policies import Policies
from cp.resources.world import World

Rule: TypeAlias = Callable[[Scene], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    idle.idle,
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
    addresses.addresses,
    proxies.outbounds,
    proxies.services,
    external.services,
    proxies.no_dataplanes,
)

_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def lint(policies: Policies, world: World) -> tuple[Finding, ...]:
    """Everything that is to be said of a World, the worst first, then by file and line."""
    scene = Scene(policies, world)
    found = (finding for rule in RULES for finding in rule(scene))
    return in_order((*world.findings, *found))


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
