"""Meshes of which the settings decide the policy engine, where that makes a difference."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.engine import FIELD, engine_of, names_engine
from cp.translate.view.outside import LEGACY_EXTERNAL


def engines(survey: MeshSurvey) -> Iterator[Finding]:
    """Meshes without an engine of their own. It decides who may call an ExternalService."""
    for mesh in survey.world.table("Mesh"):
        if not names_engine(mesh.document.data) and len(survey.world.table(LEGACY_EXTERNAL, mesh.name)) > 0:
            engine = engine_of(mesh.data)
            text = f"names no engine, so the settings decide who may call its ExternalServices: as under {engine} now"
            yield finding_about(mesh, FindingReason("engine-of-settings", text, FIELD, f"write `{FIELD}: {engine}`"))
