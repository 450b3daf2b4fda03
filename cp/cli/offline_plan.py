"""The plan of the way from some files to others, without a control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cp.api.envoy_json import decoded
from cp.api.preflight import preflight_data
from cp.cli.worlds import assembled
from cp.client.files import FileDocument
from cp.client.problem import Problem
from cp.insight.lint import lint
from cp.insight.plan import (
    Plan,
    PlanScope,
    ProxyChanges,
    failure_sentences,
    finding_changes,
    mesh_plans,
    meshes_of,
    plan_data,
    planned_documents,
    proxy_changes,
)
from cp.log import faults_only
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover
from cp.resources.world import World
from cp.serving.preflight.preflight import Preflight
from cp.serving.preflight.scratch import EnvoyUnavailable
from cp.translate.compiler import Compiler

_WITHIN: Final = 60.0
"""Seconds that an Envoy may take on the machine of whoever asks."""


def offline_plan(
    before: Iterable[FileDocument], after: Iterable[FileDocument], envoy: Path | None, *, with_findings: bool
) -> Mapping[str, Any]:
    """The plan as data, in the form in which a control plane answers. `envoy` is shown what proxies would be served."""
    policies, world, wanted = discover(), assembled(before), assembled(after)
    known, documents = _documents(world), _documents(wanted)
    changes = {key: documents.get(key) for key in {**known, **documents} if known.get(key) != documents.get(key)}
    planned = world.next({**changes, **documents}, 1)  # also what stands elsewhere only: origins name files and lines
    scope, compiler = PlanScope(world, planned, changes, meshes_of(changes, world, planned)), Compiler(policies)
    meshes = tuple(mesh_plans(scope, compiler, decoded))
    findings = (lint(policies, side) for side in (world, planned)) if with_findings else ((), ())
    plan = plan_data(Plan(planned_documents(known, changes), meshes, *finding_changes(*findings)))
    return plan if envoy is None else {**plan, "preflight": _preflight(envoy, proxy_changes(scope, compiler), changes)}


def _preflight(envoy: Path, changes: ProxyChanges, written: Collection[Key]) -> Mapping[str, Any]:
    try:
        with faults_only():
            outcome = asyncio.run(Preflight(envoy, _WITHIN).outcome(changes.proxies, written))
            return preflight_data(outcome, not_compared=list(failure_sentences(changes.failures)))
    except EnvoyUnavailable as error:
        raise Problem(f"{envoy} cannot be asked: {error}") from None


def _documents(world: World) -> Mapping[Key, Document]:
    return {resource.key: resource.document for resource in world}
