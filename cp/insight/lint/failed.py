"""Parts of proxies that are not built: after faults of ours, and where documents exceed a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from cp.insight.lint.codes import CATALOGUE
from cp.insight.lint.survey import MeshSurvey
from cp.model.failure import Failure, OverLimit
from cp.model.names import Key
from cp.model.violation import Finding
from cp.model.wording import few
from cp.resources.world import World
from cp.rules.legacy import legacy_failures
from cp.rules.legacy.gateway_routes import failing_routes
from cp.translate.view.hostnames import check_names
from cp.translate.view.named_addresses import check_named_ports


def failed(survey: MeshSurvey) -> Iterator[Finding]:
    over: dict[Failure, list[Key]] = {}
    for dataplane, failures in survey.failures.items():
        yield from failed_findings(survey.world, dataplane, (fault for fault in failures if not fault.is_limit))
        for failure in failures:
            if failure.is_limit:
                over.setdefault(failure, []).append(dataplane)
    yield from _over_limit(survey.world, over)
    yield from _of_no_proxy(survey)


def names(survey: MeshSurvey) -> Iterator[Finding]:
    """Names of a mesh that are not answered, because there are too many."""
    for mesh, check in product(survey.world.table("Mesh"), (check_names, check_named_ports)):
        try:
            check(survey.world, mesh.name)
        except OverLimit as over:
            over_limit = Failure("names", over.message, limit_hint=over.hint)
            yield _finding(survey.world, mesh.key, over_limit, over.message)


def _over_limit(world: World, over: Mapping[Failure, Sequence[Key]]) -> Iterator[Finding]:
    """One finding for all proxies of which the same parts are left out."""
    for failure, dataplanes in over.items():
        proxies = few([dataplane.name for dataplane in dataplanes])
        for resource in failure.policies or dataplanes:
            yield _finding(world, resource, failure, f"{proxies}: {failure}")


def _of_no_proxy(survey: MeshSurvey) -> Iterator[Finding]:
    """Legacy policies that fail, and of which no proxy tells."""
    of_proxies = (failure for failures in survey.failures.values() for failure in failures)
    policies = {policy for failure in of_proxies for policy in failure.policies}
    for mesh in survey.world.table("Mesh"):
        failing = (*legacy_failures(survey.world, mesh.name), *failing_routes(survey.world, mesh.name))
        for policy, failure in failing:
            if policy.key not in policies:
                yield _finding(survey.world, policy.key, failure, str(failure))


def failed_findings(world: World, dataplane: Key, failures: Iterable[Failure]) -> Iterator[Finding]:
    """About the policies that were at work or, where none is known, about the Dataplane."""
    for failure in failures:
        for resource in failure.policies or (dataplane,):
            yield _finding(world, resource, failure, f"{dataplane.name}: {failure}")


def _finding(world: World, key: Key, failure: Failure, message: str) -> Finding:
    resource = world.get(key)
    source = None if resource is None else resource.source
    file, line = ("", 0) if source is None else (source.file, source.line(""))
    severity = CATALOGUE[failure.code].severity
    return Finding(failure.code, severity, key, message, hint=failure.hint, file=file, line=line)
