"""MeshIdentity: which SPIFFE ID the proxies that it selects have, and who signs their certificates.

See record 0057.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from cp.model.duration import Duration
from cp.model.secret_names import LONGEST_OF_IDENTITY
from cp.model.source import NAMESPACE_LABEL
from cp.model.violation import Violation, at
from cp.resources.checks import LONGEST_NAME, above_zero, absent, longest_name, must_be_set, not_negative
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.labels import WORKLOAD_LABEL, ZONE, ZONE_LABEL
from cp.resources.mesh_trust import LONGEST_DOMAIN
from cp.resources.schema import Schema, SensitiveData, shortened
from cp.resources.services import LabelSelector
from cp.resources.sources import SecureDataSource, secure_data_source
from cp.resources.spiffe import (
    Template,
    TemplateFault,
    TemplateLabel,
    fault_of_domain,
    fault_of_path,
    read_template,
    render,
)

ACCOUNT_LABEL: Final = "k8s.kuma.io/service-account"

DOMAIN_FIELDS: Final[Mapping[str, str]] = MappingProxyType({".Mesh": "", ".Zone": ""})
PATH_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".TrustDomain": "",
        ".Workload": WORKLOAD_LABEL,
        ".Namespace": NAMESPACE_LABEL,
        ".ServiceAccount": ACCOUNT_LABEL,
    }
)
"""What templates may have in them. Those with a label stand for that label of the Dataplane."""

USUAL_DOMAIN: Final = "{{ .Mesh }}.{{ .Zone }}.mesh.local"
USUAL_PATH: Final = "/workload/{{ .Workload }}"
"""The templates of a MeshIdentity that has none, as Kuma has them on Universal."""


class IdentitySelector(Schema, frozen=True):
    """The Dataplanes that it is for. Without `dataplane` it is for none, with empty labels for all."""

    dataplane: LabelSelector | None = None


class SpiffeTemplates(Schema, frozen=True):
    trust_domain: str | None = None
    path: str | None = None


class CertificateParameters(Schema, frozen=True):
    expiry: Duration | None = None


class Autogenerate(Schema, frozen=True):
    enabled: bool | None = None


class ProvidedAuthority(Schema, frozen=True):
    certificate: SecureDataSource | None = None
    private_key: SecureDataSource | None = None


class BundledProvider(Schema, frozen=True):
    """An authority of the control plane's own: one that it makes, or one that it is given."""

    mesh_trust_creation: Literal["Enabled", "Disabled"] | None = None
    insecure_allow_self_signed: bool | None = None
    certificate_parameters: CertificateParameters | None = None
    autogenerate: Autogenerate | None = None
    ca: ProvidedAuthority | None = None

    @property
    def is_generated(self) -> bool:
        return self.autogenerate is not None and bool(self.autogenerate.enabled)

    @property
    def makes_trust(self) -> bool:
        """Whether the control plane writes a MeshTrust with the certificates of this authority."""
        return self.mesh_trust_creation != "Disabled"


class SpireAgent(Schema, frozen=True):
    timeout: Duration | None = None


class SpireProvider(Schema, frozen=True):
    agent: SpireAgent | None = None


class ExtensionProvider(Schema, frozen=True):
    name: str = ""
    config: SensitiveData = None


class IdentityProvider(Schema, frozen=True):
    type: Literal["Bundled", "Spire", "Extension"] | None = None
    bundled: BundledProvider | None = None
    spire: SpireProvider | None = None
    extension: ExtensionProvider | None = None


class MeshIdentity(Schema, frozen=True):
    selector: IdentitySelector | None = None
    spiffe_id: SpiffeTemplates | None = msgspec.field(name="spiffeID", default=None)
    provider: IdentityProvider | None = None
    """Without one it gives nobody a certificate, and callers expect its IDs all the same: to move to another."""

    @property
    def authority(self) -> BundledProvider | None:
        """The authority that signs; None where no authority of the control plane's does."""
        is_bundled = self.provider is not None and self.provider.type == "Bundled"
        return self.provider.bundled if self.provider is not None and is_bundled else None

    @property
    def matched_labels(self) -> Mapping[str, str] | None:
        """The labels by which it selects Dataplanes; None where it selects none."""
        chosen = self.selector.dataplane if self.selector is not None else None
        return None if chosen is None else chosen.match_labels or {}

    def domain_template(self) -> Template:
        written = self.spiffe_id.trust_domain if self.spiffe_id is not None else None
        return read_template(USUAL_DOMAIN if written is None else written, DOMAIN_FIELDS)

    def path_template(self) -> Template:
        written = self.spiffe_id.path if self.spiffe_id is not None else None
        return read_template(USUAL_PATH if written is None else written, PATH_FIELDS)


def validate(identity: MeshIdentity, meta: DocumentMeta) -> Iterator[Violation]:
    yield from at("spec.spiffeID", _spiffe_id(identity, meta))
    if identity.provider is not None:
        yield from longest_name(meta.name, LONGEST_NAME - LONGEST_OF_IDENTITY)
        yield from at("spec.provider", _provider(identity.provider))


_SAMPLE: Final = "sample"
"""What stands for a label of which the document does not know the value."""


def _spiffe_id(identity: MeshIdentity, meta: DocumentMeta) -> Iterator[Violation]:
    """The faults of the templates. What the trust domain comes to is known by now, of the path a sample is."""
    try:
        template = identity.domain_template()
    except TemplateFault as fault:
        yield from at("trustDomain", fault.faults)
    else:
        fields = {".Mesh": meta.mesh, ".Zone": meta.labels.get(ZONE_LABEL, ZONE)}
        domain = render(template, fields, {**_samples(template), **meta.labels})
        yield from _leads_to("trustDomain", domain, fault_of_domain(domain) or _too_long(domain))
    try:
        template = identity.path_template()
    except TemplateFault as fault:
        yield from at("path", fault.faults)
    else:
        path = render(template, {".TrustDomain": _SAMPLE}, _samples(template))
        yield from _leads_to("path", path, fault_of_path(path))


def _samples(template: Template) -> Mapping[str, str]:
    return {part.name: _SAMPLE for part in template if isinstance(part, TemplateLabel)}


def _too_long(domain: str) -> str:
    is_long = len(domain) > LONGEST_DOMAIN
    return f"is {len(domain)} characters long, and a MeshTrust may have {LONGEST_DOMAIN}" if is_long else ""


def _leads_to(field: str, text: str, fault: str) -> Iterator[Violation]:
    sort, example = ("trust domain", USUAL_DOMAIN) if field == "trustDomain" else ("path", USUAL_PATH)
    hint = f"write for example `{example}`, or leave it out"
    if not text:
        yield Violation(field, "must not be empty", hint)
    elif fault:
        yield Violation(field, f"leads to `{shortened(text)}`, which cannot be a {sort}: it {fault}", hint)


def _provider(provider: IdentityProvider) -> Iterator[Violation]:
    yield from must_be_set("type", provider.type, "Bundled")
    if provider.type is None:
        return
    field = provider.type.lower()
    if field not in provider.wire():
        yield absent(field, f"must be set for the type {provider.type}")
    if provider.type == "Bundled" and provider.bundled is not None:
        yield from at(field, _bundled(provider.bundled))
    elif provider.type == "Spire" and provider.spire is not None and provider.spire.agent is not None:
        yield from not_negative("spire.agent.timeout", provider.spire.agent.timeout)
    elif provider.type == "Extension" and provider.extension is not None:
        yield from must_be_set("extension.name", provider.extension.name)


def _bundled(bundled: BundledProvider) -> Iterator[Violation]:
    if bundled.is_generated and bundled.ca is not None:
        hint = "remove it, or remove `autogenerate`"
        yield Violation("ca", "cannot stand beside `autogenerate.enabled: true`", hint)
    elif not bundled.is_generated and bundled.ca is None:
        yield absent("ca", "must be set", "or let the control plane make one: `autogenerate: {enabled: true}`")
    elif bundled.ca is not None:
        yield from secure_data_source("ca.certificate", bundled.ca.certificate)
        yield from secure_data_source("ca.privateKey", bundled.ca.private_key)
    if bundled.certificate_parameters is not None:
        yield from above_zero("certificateParameters.expiry", bundled.certificate_parameters.expiry)


MESH_IDENTITY: Final = Kind("MeshIdentity", "mid", "meshidentities", MeshIdentity, validate, needs_spec=True)
