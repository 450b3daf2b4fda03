"""Services with more ports than a proxy can call, as the answer to a write that brings them reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cp.model.document import Document
from cp.model.failure import OVER_LIMIT
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.world import Table, World
from cp.translate.view.proxies import SERVICES


def brings_destinations(document: Document) -> bool:
    return document.key.type in SERVICES


def warnings_of_destinations(world: World, documents: Iterable[Document]) -> Iterator[Finding]:
    """Warnings about services that not all proxies of their mesh can call."""
    written = {document.key: document for document in documents if brings_destinations(document)}
    budget = world.kinds.budget
    for mesh in dict.fromkeys(key.mesh for key in written):
        of_mesh = [document for key, document in written.items() if key.mesh == mesh]
        stored = sum(world.table(kind, mesh).derived(_count_ports) for kind in SERVICES)
        replaced = filter(None, map(world.get, (document.key for document in of_mesh)))
        ports = stored - sum(len(service.spec.ports or ()) for service in replaced) + sum(map(_ports, of_mesh))
        if ports > budget.destinations:
            message = (
                f"the services of mesh {mesh} have {ports:,} ports, and a proxy has room for {budget.destinations:,}: "
                "proxies that call all services call those that were created first"
            )
            violation = Violation("spec.ports", message, budget.of_proxy.hint)
            yield from (finding(document, OVER_LIMIT, Severity.WARNING, violation) for document in of_mesh)


def _count_ports(table: Table) -> int:
    return sum(len(service.spec.ports or ()) for service in table)


def _ports(document: Document) -> int:
    return len((document.data.get("spec") or {}).get("ports") or ())
