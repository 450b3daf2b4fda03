"""Whether those who are called let a call in: how it is spoken, who each side is, and which permission decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.identity.identities import identity_of
from cp.identity.security import security_of
from cp.insight.explain.model import ExplainedAccess, ValueOrigin
from cp.insight.explain.servers import served_inbound
from cp.insight.explain.values import INBOUND, ShownNames, value_origin
from cp.insight.permissions import Permission, judgement, permissions_at
from cp.policies import Policies, Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.backend import BackendResult
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import has_hook, rules_of
from cp.translate.inbound import InboundResult
from cp.translate.view.dataplanes import DataplanePort
from cp.translate.view.mtls import has_certificate
from generators.proxy import Backend, CertificateName, MeshTls

TLS: Final = "TLS"
PLAIN_TEXT: Final = "plain text"
_MODE: Final = "mode"
_SPIFFE: Final = "spiffe://"


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one inbound does with a call."""

    is_allowed: bool
    reason: str
    decided_by: Permission | None = None
    shadow_denied_by: Permission | None = None


class AccessAnswers:
    """Whether the inbounds of a mesh let in the calls of one proxy."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, caller: CompiledProxy) -> None:
        self._compiler, self._world, self._caller = compiler, world, caller
        self._judging: Sequence[Policy[Any]] = [policy for policy in policies if policy.judges_every_client]
        self._securing = [policy.kind.name for policy in policies if has_hook(policy, "secure")]

    def of_backend(self, backend: BackendResult, ports: Iterable[DataplanePort]) -> Iterator[ExplainedAccess]:
        """The answers of those behind a backend, those with equal answers together; nothing without mTLS."""
        site = backend.tasks[0].site
        if not isinstance(site, Backend) or site.external or security_of(self._world, self._mesh) is None:
            return
        servers: dict[ExplainedAccess, list[str]] = {}
        for port in ports:
            servers.setdefault(self._of_port(site, port), []).append(port.dataplane.name)
        for access, names in servers.items():
            yield replace(access, servers=tuple(dict.fromkeys(names)))

    def shown_to(self, backend: BackendResult | None) -> ShownNames | None:
        """What the caller shows to those behind a backend; None: nothing, as it speaks plain text."""
        site = None if backend is None else backend.tasks[0].site
        if not isinstance(site, Backend) or site.mesh_tls is None:
            return None
        return ShownNames(_uris(self._world, self._caller.dataplane), site.mesh_tls.sni)

    @property
    def _mesh(self) -> str:
        return self._caller.dataplane.mesh

    def _of_port(self, site: Backend, port: DataplanePort) -> ExplainedAccess:
        index, reached = served_inbound(self._compiler, self._world, port) or (port.index, None)
        tls = None if reached is None else reached.inbound.tls
        answer = self._answer(site, port.dataplane, index, reached)
        shows_names = tls is not None and site.mesh_tls is not None
        return ExplainedAccess(
            cluster=site.cluster,
            servers=(),
            is_allowed=answer.is_allowed,
            reason=answer.reason,
            decided_by=_origin(answer.decided_by),
            shadow_denied_by=_origin(answer.shadow_denied_by),
            spoken=PLAIN_TEXT if site.mesh_tls is None else TLS,
            spoken_reason=self._why_spoken(site),
            taken=_taken(reached),
            taken_origin=None if reached is None or tls is None else self._origin_of_mode(reached),
            caller_names=_uris(self._world, self._caller.dataplane) if shows_names else (),
            expected_names=() if site.mesh_tls is None else tuple(map(_expected, site.mesh_tls.names)),
            server_names=_shown(self._world, port.dataplane) if shows_names else (),
        )

    def _answer(self, site: Backend, server: Resource, index: int, reached: InboundResult | None) -> _Answer:
        tls = None if reached is None else reached.inbound.tls
        if reached is None or tls is None:
            if site.mesh_tls is not None:
                return _Answer(is_allowed=False, reason="the call is over TLS, and the server takes plain text alone")
            return _Answer(is_allowed=True, reason="nobody is asked who he is: the server takes plain text alone")
        if site.mesh_tls is None:
            if reached.inbound.is_permissive:
                return _Answer(is_allowed=True, reason="who speaks plain text is asked for no permission")
            return _Answer(is_allowed=False, reason="the server takes TLS alone, and the call is in plain text")
        return self._fault_of_names(site.mesh_tls, server) or self._judged(site.mesh_tls, server, index, reached)

    def _fault_of_names(self, tls: MeshTls, server: Resource) -> _Answer | None:
        """Why the two sides do not trust each other; None if they do."""
        of_caller, of_server = (identity_of(self._world, side) for side in (self._caller.dataplane, server))
        if of_caller is None or of_server is None:
            whose = "caller" if of_caller is None else "server"
            return _Answer(
                is_allowed=False, reason=f"the {whose} has no certificate, as it has no name to be certified"
            )
        if not any(_is_named(name, uri) for name in tls.names for uri in of_server.uris):
            return _Answer(is_allowed=False, reason="the server shows none of the names that the caller expects")
        return None

    def _judged(self, tls: MeshTls, server: Resource, index: int, reached: InboundResult) -> _Answer:
        permissions = list(self._permissions(server, index, reached))
        decided = judgement(permissions, _uris(self._world, self._caller.dataplane), tls.sni)
        if decided.decided_by is None:
            reason = "no permission is for this caller" if permissions else "there is no permission for this inbound"
            return _Answer(is_allowed=False, reason=f"{reason}: with mTLS one has to be allowed")
        reason = "a permission allows it" if decided.is_allowed else "a permission denies it"
        return _Answer(decided.is_allowed, reason, decided.decided_by, decided.shadow_denied_by)

    def _permissions(self, server: Resource, index: int, reached: InboundResult) -> Iterator[Permission]:
        rules = rules_of(self._world, server)
        for policy in self._judging:
            kind = policy.kind.name
            yield from permissions_at(policy, rules.get(kind), index, self._mesh, reached.legacy.get(kind, ()))

    def _why_spoken(self, site: Backend) -> str:
        if site.mesh_tls is not None:
            return "the callers of the mesh speak it"
        security = security_of(self._world, self._mesh)
        if not has_certificate(self._world, self._caller.dataplane):
            return "the caller has no certificate"
        if security is not None and not security.callers_use_tls:
            return "the callers of the mesh do not speak TLS yet"
        return "not all who are called have certificates"

    def _origin_of_mode(self, reached: InboundResult) -> ValueOrigin | None:
        """Who decides how callers speak; None: the Mesh."""
        confs = (reached.effective.get(kind) for kind in self._securing)
        fields = (conf.fields.get(_MODE) for conf in confs if conf is not None)
        return next((value_origin(field.winner) for field in fields if field is not None), None)


def _taken(reached: InboundResult | None) -> str:
    if reached is None or reached.inbound.tls is None:
        return PLAIN_TEXT
    return f"{TLS} or {PLAIN_TEXT}" if reached.inbound.is_permissive else TLS


def _uris(world: World, dataplane: Resource) -> tuple[str, ...]:
    identity = None if is_grpc_client(dataplane) else identity_of(world, dataplane)
    return () if identity is None else identity.uris


def _shown(world: World, dataplane: Resource) -> tuple[str, ...]:
    """The names by which callers know a proxy, without those that only permissions ask for."""
    return _spiffe_ids(_uris(world, dataplane))


def _spiffe_ids(uris: Iterable[str]) -> tuple[str, ...]:
    return tuple(uri for uri in uris if uri.startswith(_SPIFFE))


def _is_named(name: CertificateName, uri: str) -> bool:
    return uri.startswith(name.value) if name.is_prefix else uri == name.value


def _expected(name: CertificateName) -> str:
    return f"{name.value}*" if name.is_prefix else name.value


def _origin(permission: Permission | None) -> ValueOrigin | None:
    if permission is None:
        return None
    origin = permission.origin
    return ValueOrigin(
        permission.verdict.value, INBOUND, origin.policy, permission.item, permission.path, origin.file, permission.line
    )


def spoken_by_grpc_client(world: World, client: CompiledProxy) -> str:
    """What a gRPC client speaks with others of its mesh, to be added to a sentence; empty without mTLS."""
    security, identity = security_of(world, client.dataplane.mesh), identity_of(world, client.dataplane)
    if security is None or not security.callers_use_tls:
        return ""
    refused = "it speaks plain text, and inbounds that are strict refuse it"
    if identity is None:
        return f"; it has no name to be certified, so {refused}"
    if client.proxy_class.caller.tls is None:
        return f"; as far as is known its bootstrap names no certificates, so {refused}"
    return f"; over TLS it shows {' '.join(_spiffe_ids(identity.uris))}"
