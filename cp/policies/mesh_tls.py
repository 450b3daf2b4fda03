"""MeshTLS: how an inbound takes mTLS.

    mode              Strict: one FilterChain, with TLS; Permissive: one without as well, and one for TLS that is not
                      the mesh's, which is passed on to the workload as it is
    tlsVersion        TlsParameters
    tlsVersion.min    TlsParameters.tls_minimum_protocol_version
    tlsVersion.max    TlsParameters.tls_maximum_protocol_version
    tlsCiphers        TlsParameters.cipher_suites

Versions and ciphers are for all of a mesh, because clients and services have to agree. Without a policy the mode is
that of the Mesh's certificate authority.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

import msgspec

from cp.model.violation import Violation, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import unwanted
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Schema, near
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import AllowedTargets
from cp.resources.tls import CIPHERS, ENVOY_VERSIONS, TlsVersions, tls_versions
from generators.proxy import Inbound


class Conf(Schema, frozen=True):
    mode: Literal["Strict", "Permissive"] | None = None
    tls_version: TlsVersions | None = None
    tls_ciphers: list[str] | None = None


class Spec(PolicySpec, frozen=True):
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(top=("Mesh", "Dataplane", "MeshSubset"), from_=("Mesh",))


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from spec.rules_without("from")
    yield from spec.no_matches()
    for path, _, conf in spec.confs():
        yield from at(path, _conf(conf or Conf(), spec.top.kind))


def _conf(conf: Conf, top: str) -> Iterator[Violation]:
    if top != "Mesh":
        hint = "write it in a policy for the kind Mesh"
        for name, given in (("tlsVersion", conf.tls_version is not None), ("tlsCiphers", bool(conf.tls_ciphers))):
            if given:
                yield unwanted(name, "must be the same in all of the mesh", hint)
        return
    unknown = [cipher for cipher in conf.tls_ciphers or () if cipher not in CIPHERS]
    if unknown:
        names = ", ".join(f"`{cipher}`" for cipher in unknown)
        hint = near(unknown[0], CIPHERS) or f"known are {', '.join(CIPHERS)}"
        yield Violation("tlsCiphers", f"{names} cannot be used", hint)
    if conf.tls_version is not None:
        yield from at("tlsVersion", tls_versions(conf.tls_version))


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec)


class MeshTLS(Policy[Conf]):
    kind = Kind(
        name="MeshTLS",
        short="mtls",
        plural="meshtlses",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        needs_spec=True,
        policy=PolicyShape(from_=True, rules=True, from_as_rules=True),
    )
    order = 300
    conf = Conf
    targets = TARGETS

    def secure(self, conf: Conf, inbound: Inbound) -> Inbound:
        """Without mTLS there is nothing to decide."""
        if inbound.tls is None:
            return inbound
        versions = conf.tls_version or TlsVersions()
        tls = replace(
            inbound.tls,
            oldest=ENVOY_VERSIONS.get(versions.min or "", ""),
            newest=ENVOY_VERSIONS.get(versions.max or "", ""),
            ciphers=tuple(conf.tls_ciphers or ()),
        )
        is_permissive = inbound.is_permissive if conf.mode is None else conf.mode == "Permissive"
        return replace(inbound, tls=tls, is_permissive=is_permissive)


POLICY = MeshTLS()
