"""What VirtualOutbounds say that HostnameGenerators can say of MeshServices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final

from cp.resources.dataplane import SERVICE_TAG, ZONE_TAG
from cp.resources.hostname_generator import Template, render
from cp.resources.legacy.virtual_outbound import VirtualOutboundConf
from cp.resources.resource import Resource
from cp.translate.view.named_addresses import USUAL_PORT
from cp.translate.view.named_addresses import VIRTUAL_OUTBOUND as VIRTUAL_OUTBOUND

_FIELDS: Final = MappingProxyType({SERVICE_TAG: "{{ .DisplayName }}", ZONE_TAG: "{{ .Zone }}"})
"""What a MeshService has in place of a tag."""


_OF_TAG: Final = re.compile(r"\{\{ *\.([a-zA-Z0-9]+) *\}\}\.mesh")


def is_so_anyhow(outbound: Resource) -> bool:
    """Whether a VirtualOutbound gives tags the name and the port that they have without it, whatever is called."""
    conf = outbound.spec.conf
    parameters, host = conf.parameters or [], _OF_TAG.fullmatch(conf.host)
    if host is None or conf.port != str(USUAL_PORT) or len(parameters) != 1:
        return False
    return (parameters[0].name, parameters[0].tag) == (host[1], SERVICE_TAG)


def notes(outbounds: Iterable[Resource]) -> Iterator[str]:
    """The templates that give MeshServices the same names, for those who go over to these."""
    for outbound in outbounds:
        if (template := _template(outbound.spec.conf)) is not None:
            named = f"VirtualOutbound {outbound.name}: a HostnameGenerator with the template `{template}`"
            yield f"{named} gives such names to MeshServices, each at the ports that it has"


def _template(conf: VirtualOutboundConf) -> str | None:
    """The same host in the words of a HostnameGenerator; None if a MeshService does not know one of its tags."""
    fields = {
        f".{parameter.name}": _FIELDS[parameter.tag] for parameter in conf.parameters or () if parameter.tag in _FIELDS
    }
    try:
        return render(conf.host, fields, {})
    except Template:
        return None
