"""Services outside the mesh that cannot be served, or that nobody calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.names import Destination
from cp.model.violation import Finding
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.rules.legacy.withheld import permission_of, withholds
from cp.translate.view.outside import EXTERNAL, LEGACY_EXTERNAL, outside
from cp.translate.view.services import external_services

_PERMIT: Final = "write a TrafficPermission whose `destinations` fit its tags, or `policyEngine: TargetRef`"


def services(survey: MeshSurvey) -> Iterator[Finding]:
    for service in (*survey.world.of_type(EXTERNAL), *survey.world.of_type(LEGACY_EXTERNAL)):
        for fault in outside(survey.world, service).faults:
            text = f"{fault.message}: calls to it fail"
            yield finding_about(service, FindingReason("not-served", text, fault.path, fault.hint))


def files(survey: MeshSurvey) -> Iterator[Finding]:
    """ExternalServices with files: Kuma's control plane reads its own, and here each proxy does that calls."""
    for service in survey.world.of_type(LEGACY_EXTERNAL):
        tls = service.spec.networking.tls
        for name, source in tls.sources() if tls is not None and tls.enabled else ():
            if source.file is not None:
                text = f"each proxy that calls reads {source.file} on its own machine"
                hint = "see that it is there, or give it `secret`"
                path = f"networking.tls.{name}.file"
                yield finding_about(service, FindingReason("read-by-proxies", text, path, hint))


def uncalled(survey: MeshSurvey) -> Iterator[Finding]:
    """ExternalServices that nobody may call, and those whose calls go to inbounds with the same tags."""
    for service in survey.world.of_type(LEGACY_EXTERNAL):
        if not external_services(survey.world, service.mesh, _whole(service)):
            text = "Dataplanes have its tag as well, and calls go to their inbounds"
            hint = "remove it, or give it a tag of its own"
            yield finding_about(service, FindingReason("does-not-apply", text, "tags", hint))
        elif withholds(survey.world, service.mesh) and permission_of(survey.world, service) is None:
            text = "nobody may call it: no TrafficPermission is about it, and the policy engine of its mesh is Legacy"
            yield finding_about(service, FindingReason("nobody-may-call", text, "", _PERMIT))


def _whole(service: Resource) -> Destination:
    return Destination(service.spec.tags[SERVICE_TAG])
