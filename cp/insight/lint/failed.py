"""What could not be made for proxies, by faults of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cp.insight.lint.codes import CATALOGUE
from cp.insight.lint.survey import MeshSurvey
from cp.model.failure import CODE, HINT, Failure
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.world import World
from cp.rules.legacy import legacy_failures
from cp.rules.legacy.gateway_routes import failing_routes


def failed(survey: MeshSurvey) -> Iterator[Finding]:
    for dataplane, failures in survey.failures.items():
        yield from failed_findings(survey.world, dataplane, failures)
    yield from _of_no_proxy(survey)


def _of_no_proxy(survey: MeshSurvey) -> Iterator[Finding]:
    """Legacy policies that fail, and of which no proxy tells."""
    of_proxies = (failure for failures in survey.failures.values() for failure in failures)
    policies = {policy for failure in of_proxies for policy in failure.policies}
    for mesh in survey.world.table("Mesh"):
        failing = (*legacy_failures(survey.world, mesh.name), *failing_routes(survey.world, mesh.name))
        for policy, failure in failing:
            if policy.key not in policies:
                yield _finding(survey.world, policy.key, str(failure))


def failed_findings(world: World, dataplane: Key, failures: Iterable[Failure]) -> Iterator[Finding]:
    """About the policies that were at work or, where none is known, about the Dataplane."""
    for failure in failures:
        for resource in failure.policies or (dataplane,):
            yield _finding(world, resource, f"{dataplane.name}: {failure}")


def _finding(world: World, key: Key, message: str) -> Finding:
    resource = world.get(key)
    source = None if resource is None else resource.source
    file, line = ("", 0) if source is None else (source.file, source.line(""))
    return Finding(CODE, CATALOGUE[CODE].severity, key, message, hint=HINT, file=file, line=line)
