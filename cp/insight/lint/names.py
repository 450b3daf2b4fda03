"""VirtualOutbounds whose names lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.names import Destination
from cp.model.violation import Finding
from cp.translate.view.named_addresses import USUAL_PORT, VIRTUAL_OUTBOUND, name_of_tag, wanted_by
from cp.translate.view.vips import vips


def taken(survey: MeshSurvey) -> Iterator[Finding]:
    """Ports of names that are somebody else's, and VirtualOutbounds that name nothing."""
    for outbound in survey.world.of_type(VIRTUAL_OUTBOUND):
        if outbound.mesh not in survey.meshes:
            continue
        wanted = wanted_by(outbound, survey.world)
        if not wanted:
            hint = "compare `selectors` and `parameters` with the tags of inbounds"
            text = "names nothing: its templates come to no host and port with any tags that there are"
            yield finding_about(outbound, FindingReason("names-nothing", text, "conf", hint))
        addresses = vips(survey.world, outbound.mesh)
        served = {(port.name, port.port): port for _, port in addresses.named}
        of_tags = {name_of_tag(tag): Destination(tag) for tag, _ in reversed(addresses.tagged)}
        for port in wanted:
            owner = served.get((port.name, port.port))
            if owner is None and of_tags.get(port.name) == port.destination:
                continue  # its tag has that name without it
            if owner is None or owner.destination != port.destination:
                whose = f"the tag of that name at port {USUAL_PORT}" if owner is None else str(owner.origin)
                text = f"{port.name}:{port.port} is not for {_tags(port.destination)}: it is that of {whose}"
                yield finding_about(
                    outbound, FindingReason("name-taken", text, "conf", "put another tag into the name or the port")
                )


def _tags(destination: Destination) -> str:
    return " ".join([destination.service, *(f"{name}={value}" for name, value in destination.tags)])
