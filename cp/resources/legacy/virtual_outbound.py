"""VirtualOutbound: names and ports by which workloads call what has some tags, where their traffic is redirected.

selectors               the inbounds and ExternalServices that are called by these names
conf.host               the name, with `{{ .parameter }}` in place of values of tags
conf.port               the port, in the same way
conf.parameters         the tags that stand for parameters; what is called has those that the selected one has
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cp.model.violation import Violation
from cp.resources.checks import absent, is_domain, must_be_set
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.hostname_generator import Template, render
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import Selector, selectors
from cp.resources.schema import Schema, near

_PARAMETER: Final = re.compile(r"[a-zA-Z0-9]+")
_TAG: Final = re.compile(r"[a-zA-Z0-9.\-_/]+")
_LAST_PORT: Final = 65535
_EXAMPLE_OF_NAME: Final = "example"
_EXAMPLE_OF_PORT: Final = "1"


class TemplateParameter(Schema, frozen=True):
    name: str = ""
    tag_key: str | None = None

    @property
    def tag(self) -> str:
        return self.tag_key or self.name


class VirtualOutboundConf(Schema, frozen=True):
    host: str = ""
    port: str = ""
    parameters: list[TemplateParameter] | None = None

    def called(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        """Those of some tags that stand for parameters."""
        names = [parameter.tag for parameter in self.parameters or ()]
        return {name: tags[name] for name in names if name in tags}

    def host_for(self, tags: Mapping[str, str]) -> str | None:
        """The name for what has some tags; None if that is not the name of a host."""
        name = self._rendered(self.host, tags).lower()
        return name if is_domain(name) else None

    def port_for(self, tags: Mapping[str, str]) -> int | None:
        text = self._rendered(self.port, tags)
        number = int(text) if text.isdecimal() and len(text) <= len(str(_LAST_PORT)) else 0
        return number if 0 < number <= _LAST_PORT else None

    def _rendered(self, template: str, tags: Mapping[str, str]) -> str:
        """Empty where it needs a tag that is not among them."""
        written = {
            f".{parameter.name}": tags[parameter.tag] for parameter in self.parameters or () if parameter.tag in tags
        }
        try:
            return render(template, written, {})
        except Template:
            return ""


class VirtualOutbound(Schema, frozen=True):
    selectors: list[Selector] | None = None
    conf: VirtualOutboundConf | None = None


def validate(outbound: VirtualOutbound, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from selectors("selectors", outbound.selectors, service=False)
    if outbound.conf is None:
        yield absent("conf", "must be set", "give it `host`, `port` and `parameters`")
        return
    yield from _parameters(outbound.conf.parameters or [])
    yield from _host(outbound.conf)
    yield from _port(outbound.conf)


def _parameters(parameters: list[TemplateParameter]) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, parameter in enumerate(parameters):
        path = f"conf.parameters[{index}]"
        if parameter.name in seen:
            yield Violation(f"{path}.name", f"`{parameter.name}` stands here twice")
        seen.add(parameter.name)
        if not _PARAMETER.fullmatch(parameter.name):
            yield Violation(f"{path}.name", "must be of letters and digits", "name the tag in `tagKey`")
        if parameter.tag_key and not _TAG.fullmatch(parameter.tag_key):
            yield Violation(f"{path}.tagKey", f"`{parameter.tag_key}` is not the name of a tag")
    if not any(parameter.tag_key == SERVICE_TAG for parameter in parameters):
        hint = f"`{{name: service, tagKey: {SERVICE_TAG}}}`"
        yield absent("conf.parameters", f"must have a parameter with the `tagKey` {SERVICE_TAG}", hint)


def _host(conf: VirtualOutboundConf) -> Iterator[Violation]:
    yield from must_be_set("conf.host", conf.host, "for example `{{ .service }}.mesh`")
    yield from _unknown("conf.host", conf.host, conf)
    tags = {parameter.tag: _EXAMPLE_OF_NAME for parameter in conf.parameters or ()}
    if conf.host and not list(_unknown("", conf.host, conf)) and conf.host_for(tags) is None:
        yield Violation("conf.host", f"leads to names such as `{_shown(conf.host, tags)}`, which no host can have")


def _port(conf: VirtualOutboundConf) -> Iterator[Violation]:
    yield from must_be_set("conf.port", conf.port, "for example `80`, or `{{ .port }}`")
    yield from _unknown("conf.port", conf.port, conf)
    tags = {parameter.tag: _EXAMPLE_OF_PORT for parameter in conf.parameters or ()}
    if conf.port and not list(_unknown("", conf.port, conf)) and conf.port_for(tags) is None:
        yield Violation("conf.port", f"must come to a port between 1 and {_LAST_PORT}")


def _shown(template: str, tags: Mapping[str, str]) -> str:
    return re.sub(r"\{\{.*?\}\}", next(iter(tags.values()), ""), template)


def _unknown(path: str, template: str, conf: VirtualOutboundConf) -> Iterator[Violation]:
    """The fault of an action that is no parameter. Other actions of Go templates have no meaning here."""
    known = {f".{parameter.name}": _EXAMPLE_OF_PORT for parameter in conf.parameters or ()}
    try:
        render(template, known, {})
    except Template as error:
        hint = near(error.action, tuple(known)) or f"it may have {', '.join(known) or 'parameters'}"
        yield Violation(path, f"`{error.action}` means nothing here", hint)


VIRTUAL_OUTBOUND: Final = Kind(
    "VirtualOutbound", "virtual-outbound", "virtual-outbounds", VirtualOutbound, validate, complete=without_nulls
)
