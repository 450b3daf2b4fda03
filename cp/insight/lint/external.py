"""Services outside the mesh that cannot be served."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.translate.view.outside import EXTERNAL, outside


def services(survey: MeshSurvey) -> Iterator[Finding]:
    for service in survey.world:
        if service.type == EXTERNAL:
            for fault in outside(survey.world, service).faults:
                text = f"{fault.message}: calls to it fail"
                yield found(service, FindingReason("not-served", text, fault.path, fault.hint))
