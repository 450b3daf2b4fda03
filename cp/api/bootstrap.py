"""`POST /bootstrap`: a proxy asks for its bootstrap configuration, as Kuma's data planes do."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.access.tokens import DataplaneClaims
from cp.ads.admission import Doorkeeper, NotAdmitted, must_be_for, must_be_named, token_of, without_scheme
from cp.ads.refusal_log import RefusalLog
from cp.api.authentication import host_of
from cp.api.body import text_of
from cp.api.bootstrap_config import bootstrap_config, networking_of
from cp.api.bootstrap_request import ENVOY, GRPC_CLIENT, BootstrapRequest, bootstrap_request, unprocessable, with_run
from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import (
    BAD_REQUEST,
    CHALLENGE,
    FORBIDDEN,
    NOT_FOUND,
    TOLD,
    TOO_LARGE,
    UNAUTHORIZED,
    UNAVAILABLE,
    ApiError,
    RequestFault,
)
from cp.api.near import Missing, instead, not_found
from cp.api.powers import ChangedDocument, WriteRights
from cp.api.proxy_rates import LARGEST_DATAPLANE
from cp.api.work import CallerBusy
from cp.api.writes import must_be_writable
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import BOOTSTRAP_WAY, OWNER, label, labelled, registered, unlabelled
from cp.model.source import read_documents
from cp.resources.parse import parse, parse_written
from cp.resources.world import World
from cp.serving.server_certificate import ServedCertificate, is_authority
from cp.settings import variable
from cp.store.port import ABSENT, Author, Put, ReadOnly, Stored
from generators.bootstrap import ControlPlane, ListenAddress

_DATAPLANE: Final = "Dataplane"
_MESH: Final = "Mesh"
_LOOPBACK: Final = "127.0.0.1"
_LOCALHOST: Final = "localhost"
_FORBIDDEN: Final = "forbidden"
"""The sort of refusal of a good token that is for another proxy."""

_JSON: Final = "application/json"
_SOON: Final = "3"
"""Seconds after which a mesh may be there."""

_LARGEST: Final = 256 * 1024
"""Bytes of a request. A Dataplane and what a proxy says of itself have some thousand."""

log = structlog.get_logger()


class BootstrapHandler:
    """The handler of bootstrap requests."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._refusals = RefusalLog(collaborators.access.stopwatch, _tell_of_refusal)
        self._missing = RefusalLog(collaborators.access.stopwatch, _tell_of_missing)

    async def __call__(self, request: Request) -> Response:
        try:
            return await self._answered(request)
        except CallerBusy as error:
            raise replace(error, status=UNAVAILABLE) from None  # kuma-dp ends on any error of the client

    async def _answered(self, request: Request) -> Response:
        text, work = await text_of(request, self._api.body_limit, _LARGEST), self._api.works.documents
        wanted = with_run(await work.do(request, lambda _: bootstrap_request(text)))
        claims = await self._claims(request, wanted)
        if claims is None and self._is_for_users:
            _must_be_let_in(caller_of(request), wanted)
        self._must_be_in_time(request, wanted, claims)
        host, control_plane = self._control_plane(request, wanted)
        await self._mesh_there(request, wanted.mesh, tells_names=claims is None)
        brought = await work.do(request, lambda _: self._brought(wanted))
        try:
            document = await self._dataplane(request, wanted, brought, claims)
        except Missing as missing:
            if not _is_kuma_dp(request, wanted):
                raise
            error = missing
            return self._try_again(wanted, await self._api.works.resources.do(request, lambda _: error.with_hint()))
        answer = await work.do(request, lambda _: self._answer(wanted, document, control_plane, request.headers))
        log.info("bootstrap.served", proxy=wanted.proxy, control_plane=host, **caller_of(request).traces)
        return answer

    async def _claims(self, request: Request, wanted: BootstrapRequest) -> DataplaneClaims | None:
        """What the token of the proxy says, before anything else is looked at; None without a doorkeeper."""
        doorkeeper = self._doorkeeper(request, wanted)
        if doorkeeper is None:
            return None
        token = ""
        try:
            token = wanted.dataplane_token or token_of((name.lower(), value) for name, value in request.headers.items())
            await doorkeeper.loaded()
            claims = doorkeeper.claims(without_scheme(token))
            must_be_named(claims, wanted.key, doorkeeper.world())
        except NotAdmitted as refused:
            if token and refused.sort != _FORBIDDEN:
                self._api.access.note_bad_token(host_of(request.scope), token)
            raise self._not_admitted(wanted, refused) from None
        return claims

    def _doorkeeper(self, request: Request, wanted: BootstrapRequest) -> Doorkeeper | None:
        """Return the judge of the proxy's token; None where it need not show one, and shows none that it needs."""
        defaults, caller = self._api.for_proxies, caller_of(request)
        if defaults.doorkeeper is not None or not self._is_for_users:
            return defaults.doorkeeper
        shows_token = bool(wanted.dataplane_token) or caller.proxy is not None
        return defaults.optional_doorkeeper if shows_token and not caller.may_write_key(wanted.key) else None

    def _must_be_in_time(self, request: Request, wanted: BootstrapRequest, claims: DataplaneClaims | None) -> None:
        """Raise `ApiError` if the proxy asks too often. kuma-dp gives up after any status 4xx, so it is another one."""
        if claims is None:
            return
        rates, metrics = self._api.proxy_rates, self._api.metrics
        try:
            rates.take_request(claims, host_of(request.scope), metrics)
            rates.take_registration(claims, wanted.key, metrics)
        except ApiError as error:
            raise replace(error, status=UNAVAILABLE) from None

    def _not_admitted(self, wanted: BootstrapRequest, refused: NotAdmitted) -> ApiError:
        self._refusals.tell(refused.sort, str(refused), proxy=wanted.proxy)
        if refused.sort == _FORBIDDEN:
            return ApiError(FORBIDDEN, "Access denied", str(refused))
        hint = "koguma dp run --dataplane-token-file FILE"
        return ApiError(UNAUTHORIZED, "Authentication required", f"{refused}; {hint}", headers=CHALLENGE)

    def _try_again(self, wanted: BootstrapRequest, missing: ApiError) -> Response:
        """kuma-dp tries again after a 404 without a body, and ends after one that says why. So the log says why."""
        self._missing.tell("not found", missing.detail, proxy=wanted.proxy)
        return Response(status_code=NOT_FOUND)

    def _control_plane(self, request: Request, wanted: BootstrapRequest) -> tuple[str, ControlPlane]:
        """Where the proxy finds us and others on our store, and whom it trusts there."""
        defaults = self._api.for_proxies
        if defaults.certificate is None:
            first, *fallbacks = self._addresses(_host(request), wanted)
            return first.host, ControlPlane(first, fallbacks=tuple(fallbacks))
        certificate = defaults.certificate()
        first, *fallbacks = self._addresses(_certified(_host(request), certificate), wanted)
        if not any(certificate.is_for(address.host) for address in (first, *(fallbacks if defaults.hosts else ()))):
            raise _wrong_name(first.host, certificate)
        authority = _authority(wanted.ca_cert, certificate) or certificate.trusted
        return first.host, ControlPlane(first, over_tls=True, authority=authority, fallbacks=tuple(fallbacks))

    def _addresses(self, host: str, wanted: BootstrapRequest) -> list[ListenAddress]:
        """Those of the settings or, without them, those that the proxy calls, beginning with the one that it called."""
        defaults = self._api.for_proxies
        further = [name for name in map(_named, wanted.control_planes) if name != _named(host)]
        hosts = defaults.hosts or [(called, 0) for called in dict.fromkeys((host, *further))]
        return [ListenAddress(name, port or defaults.port) for name, port in hosts]

    def _answer(
        self, wanted: BootstrapRequest, document: Document, control_plane: ControlPlane, headers: Mapping[str, str]
    ) -> Response:
        config = bootstrap_config(wanted, document, self._api.for_proxies, control_plane)
        if wanted.proxy_type == GRPC_CLIENT:
            return JSONResponse(config)
        text = json.dumps(config, indent=1)
        if _JSON not in headers.get("accept", ""):
            return Response(text, media_type="text/x-yaml")  # JSON is YAML, and the kind that no reader mistakes
        sidecar = {"networking": {"address": networking_of(document.data).get("address", "")}}
        encoded = base64.b64encode(text.encode()).decode()
        return JSONResponse({"bootstrap": encoded, "kumaSidecarConfiguration": sidecar})

    async def _mesh_there(self, request: Request, mesh: str, *, tells_names: bool) -> None:
        """A proxy of a mesh that is not there is refused, with a header for those who may wait until it is."""
        if await self._api.store.get(Key(_MESH, "", mesh)) is None:
            near = await self._mesh_near(request, mesh) if tells_names else ""
            hint = near or f"create it with PUT /meshes/{mesh}"
            faults = (RequestFault("mesh", f"there is no Mesh `{mesh}`", hint),)
            raise unprocessable(f"there is no Mesh `{mesh}`; {hint}", faults, {"retry-after": _SOON})

    async def _mesh_near(self, request: Request, mesh: str) -> str:
        contents = await self._api.contents(request)
        known = (stored.document.key.name for stored in contents.stored if stored.document.key.type == _MESH)
        return await self._api.works.resources.do(request, lambda _: instead(mesh, known))

    async def _dataplane(
        self, request: Request, wanted: BootstrapRequest, brought: Document | None, claims: DataplaneClaims | None
    ) -> Document:
        """The Dataplane that the proxy brings along, or the stored one. A token has to be good for both."""
        stored = await self._api.store.get(wanted.key)
        if claims is not None:
            documents = [brought] if brought is not None else []
            documents += [stored.document] if stored is not None else []
            world = await self._api.state.current()
            doorkeeper = self._doorkeeper(request, wanted)
            tolerates = doorkeeper is not None and doorkeeper.tolerates_unnamed
            await self._api.works.documents.do(
                request, lambda _: self._must_admit(claims, wanted, documents, world, tolerates_unnamed=tolerates)
            )
        if brought is not None and claims is None and self._is_for_users:
            await self._must_register(request, ChangedDocument(None if stored is None else stored.document, brought))
        if brought is not None:
            return await self._register(request, brought, stored, wanted.owner)
        if stored is None:
            known = await self._dataplane_names(request, wanted.mesh) if claims is None else ()
            otherwise = f"store it first: koguma apply, or koguma dp run --dataplane-file (mesh `{wanted.mesh}`)"
            raise not_found(_DATAPLANE, wanted.name, known, otherwise)
        await self._runs(stored, wanted.owner, caller_of(request).author(BOOTSTRAP_WAY))
        return stored.document

    @property
    def _is_for_users(self) -> bool:
        """True if the rights of a user decide who may ask, and no token of a proxy."""
        return not self._api.paths_of_proxies

    async def _must_register(self, request: Request, change: ChangedDocument) -> None:
        world, caller = await self._api.state.current(), caller_of(request)
        gateways = (gateway.document for gateway in world.table("MeshGateway", change.key.mesh))
        caller.must(WriteRights(caller, self._api.kinds, gateways).decisions([change]))

    async def _dataplane_names(self, request: Request, mesh: str) -> Iterable[str]:
        contents = await self._api.contents(request)
        keys = (stored.document.key for stored in contents.stored)
        return (key.name for key in keys if (key.type, key.mesh) == (_DATAPLANE, mesh))

    def _must_admit(
        self,
        claims: DataplaneClaims,
        wanted: BootstrapRequest,
        documents: Iterable[Document],
        world: World,
        *,
        tolerates_unnamed: bool,
    ) -> None:
        try:
            for document in documents:
                resource = parse(document, self._api.kinds).resource
                must_be_for(claims, wanted.key, resource, world, tolerates_unnamed=tolerates_unnamed)
        except NotAdmitted as refused:
            raise self._not_admitted(wanted, refused) from None

    async def _register(self, request: Request, document: Document, stored: Stored | None, owner: str) -> Document:
        """Store what a proxy brings along, unless it is stored as it is already."""
        before = None if stored is None else stored.document
        document_of_run = registered(document, before, owner, ready=True)
        if before in {document_of_run, unlabelled(document_of_run)} and label(document_of_run, OWNER) == label(
            before, OWNER
        ):
            return document_of_run
        must_be_writable(self._api)
        based_on = ABSENT if stored is None else stored.revision
        author = caller_of(request).author(BOOTSTRAP_WAY)
        revision = await self._api.store.write(Put(document_of_run, based_on), author=author)
        traces = caller_of(request).traces
        log.info("proxy.registered", resource=str(document.key), new=before is None, revision=revision, **traces)
        return document_of_run

    async def _runs(self, stored: Stored, owner: str, author: Author) -> None:
        """A stored Dataplane is run. It is ready when the run says so or, if that has no id to say it with, at once."""
        document = labelled(stored.document, not_ready=owner)
        if document is not stored.document and not self._api.read_only:
            with suppress(ReadOnly):
                await self._api.store.write(Put(document, stored.revision), author=author)

    def _brought(self, wanted: BootstrapRequest) -> Document | None:
        """The Dataplane that the proxy brings along."""
        if not wanted.dataplane_resource:
            return None
        if len(wanted.dataplane_resource) > LARGEST_DATAPLANE:
            raise ApiError(TOO_LARGE, "Request too large", f"dataplaneResource: {LARGEST_DATAPLANE} bytes are the most")
        reading = read_documents(wanted.dataplane_resource)
        findings = list(reading.findings)
        for document in reading.documents:
            findings += parse_written(document, self._api.kinds).findings()
        if findings:
            raise unprocessable("the Dataplane is invalid", tuple(map(RequestFault.of, findings[:TOLD])))
        if [document.key for document in reading.documents] != [wanted.key]:
            raise unprocessable(f"dataplaneResource must be one document: {wanted.key}")
        return reading.documents[0]


def _tell_of_refusal(**facts: Any) -> None:
    log.warning("bootstrap.refused", **facts)


def _tell_of_missing(**facts: Any) -> None:
    log.warning("bootstrap.not_found", **facts)


def _host(request: Request) -> str:
    """The host by which the proxy reached us is the one by which it reaches us again."""
    return _named(request.url.hostname or _LOOPBACK)


def _must_be_let_in(caller: ApiCaller, wanted: BootstrapRequest) -> None:
    """Check that a caller who shows no token of a proxy may have its bootstrap. Raises `ApiError`."""
    try:
        caller.must_write_keys([wanted.key])
    except ApiError as error:
        hint = f"{variable('proxy_authentication')}=none serves proxies that show no token"
        raise replace(error, detail=f"{error.detail}; {hint}") from None


def _named(host: str) -> str:
    """Our ports are on an address of this machine, and not on all that its name may stand for."""
    return _LOOPBACK if host == _LOCALHOST else host


def _certified(host: str, certificate: ServedCertificate) -> str:
    return _LOCALHOST if host == _LOOPBACK and not certificate.is_for(host) else host


def _is_kuma_dp(request: Request, wanted: BootstrapRequest) -> bool:
    """Whether it is Kuma's own agent that asks: the only one that wants the bootstrap of an Envoy as JSON."""
    return wanted.proxy_type == ENVOY and _JSON in request.headers.get("accept", "")


def _wrong_name(host: str, certificate: ServedCertificate) -> ApiError:
    names = ", ".join(sorted(certificate.names))
    hint = (
        "call it by one of these, add the name to KOGUMA_API_HOSTS and start the control plane again, or give it a "
        "certificate for that name (KUMA_GENERAL_TLS_CERT_FILE)"
    )
    detail = f"the certificate of the port for proxies is not for `{host}`, but for {names}; {hint}"
    return ApiError(BAD_REQUEST, "Could not make a bootstrap configuration", detail)


def _authority(text: str, certificate: ServedCertificate) -> str:
    """What a proxy was told to trust, if that is an authority of our certificate."""
    if not text:
        return ""
    if not is_authority(text):
        raise _wrong_authority("has no certificate of an authority (CA:TRUE) in PEM")
    if not certificate.is_signed_by(text):
        raise _wrong_authority("did not sign the certificate of the port for proxies")
    return text


def _wrong_authority(fault: str) -> ApiError:
    hint = "name koguma-cp-ca.crt from the work folder of the control plane, or the authority of its certificate"
    detail = f"the authority that the proxy is to trust (--ca-cert-file) {fault}; {hint}"
    return ApiError(BAD_REQUEST, "Could not make a bootstrap configuration", detail)
