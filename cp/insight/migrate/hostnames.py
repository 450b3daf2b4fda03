"""What VirtualOutbounds say that HostnameGenerators can say of MeshServices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final

from cp.resources.dataplane import SERVICE_TAG, ZONE_TAG
from cp.resources.hostname_generator import Template, render
from cp.resources.legacy.virtual_outbound import VirtualOutboundConf
from cp.resources.resource import Resource
from cp.translate.view.named_addresses import VIRTUAL_OUTBOUND as VIRTUAL_OUTBOUND

_FIELDS: Final = MappingProxyType({SERVICE_TAG: "{{ .DisplayName }}", ZONE_TAG: "{{ .Zone }}"})
"""What a MeshService has in place of a tag."""


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
