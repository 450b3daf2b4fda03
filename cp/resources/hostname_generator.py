"""HostnameGenerator: the host names by which services can be called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cp.model.violation import Violation
from cp.resources.checks import is_domain, must_be_set
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema, SensitiveData, near
from cp.resources.services import LabelSelector


class HostnameSelector(Schema, frozen=True):
    mesh_service: LabelSelector | None = None
    mesh_external_service: LabelSelector | None = None
    mesh_multi_zone_service: LabelSelector | None = None


class GeneratorExtension(Schema, frozen=True):
    type: str = ""
    config: SensitiveData = None


class HostnameGenerator(Schema, frozen=True):
    selector: HostnameSelector | None = None
    template: str = ""
    extension: GeneratorExtension | None = None


FIELDS: Final = (".Name", ".DisplayName", ".Namespace", ".Mesh", ".Zone")
_LABEL: Final = re.compile(r"""label\s+["`]([^"`]+)["`]""")
_EXAMPLE: Final = {field: field.removeprefix(".").lower() for field in FIELDS}


class Template(Exception):
    """An action in a template that means nothing here."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


def render(template: str, fields: Mapping[str, str], labels: Mapping[str, str] | None = None) -> str:
    """A host name from a template and the fields and labels of a service. With `labels` None, any label will do."""

    def value(action: str) -> str:
        if action in fields:
            return fields[action]
        label = _LABEL.fullmatch(action)
        if label is None or (labels is not None and label[1] not in labels):
            raise Template(action)
        return "label" if labels is None else labels[label[1]]

    return "".join(value(part) if is_action else part for is_action, part in _parts(template))


def _parts(template: str) -> Iterator[tuple[bool, str]]:
    """The texts and actions of a template. An action that is opened and never closed is text."""
    at = 0
    while (opens := template.find("{{", at)) >= 0 and (closes := template.find("}}", opens + 2)) >= 0:
        yield False, template[at:opens]
        yield True, template[opens + 2 : closes].removeprefix("-").removesuffix("-").strip()
        at = closes + 2
    yield False, template[at:]


def validate(generator: HostnameGenerator, _meta: DocumentMeta) -> Iterator[Violation]:
    chosen = generator.selector.wire() if generator.selector else ()
    if len(chosen) != 1:
        hint = "one of `meshService`, `meshExternalService` and `meshMultiZoneService`"
        yield Violation("spec.selector", f"chooses {len(chosen)} kinds of services, not one", hint)
    yield from must_be_set("spec.template", generator.template, "for example `{{ .DisplayName }}.svc.mesh.local`")
    if generator.template:
        yield from _template(generator.template)
    if generator.extension is not None:
        yield from must_be_set("spec.extension.type", generator.extension.type)


def _template(template: str) -> Iterator[Violation]:
    try:
        name = render(template, _EXAMPLE)
    except Template as error:
        hint = near(error.action, FIELDS) or f'it may have {", ".join(FIELDS)} and `label "…"`'
        yield Violation("spec.template", f"`{error.action}` means nothing here", hint)
        return
    if not is_domain(name):
        yield Violation("spec.template", f"leads to `{name}`, which is not the name of a host")


HOSTNAME_GENERATOR: Final = Kind("HostnameGenerator", "hg", "hostnamegenerators", HostnameGenerator, validate)
