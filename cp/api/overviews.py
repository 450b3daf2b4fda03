"""Dataplanes together with what is seen of their proxies, in Kuma's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Node, ResponseCounts
from cp.api.collaborators import Collaborators
from cp.api.delivery_data import expectation, moment
from cp.api.resource_reader import ResourceReader, page_of
from cp.api.writes import REVISION_HEADER
from cp.identity.leaf import Certificate
from cp.model.checkpoint import Checkpoint, checked
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.resources.kinds import Kind
from cp.serving.delivery import Presence
from cp.store.port import Stored
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES

_DATAPLANE: Final = "Dataplane"
_HEAD: Final = frozenset({"type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri"})
_TYPES: Final = (("cds", CLUSTER), ("eds", ENDPOINTS), ("lds", LISTENER), ("rds", ROUTES))


class OverviewHandler:
    """The handlers. `_overview` is how Kuma calls them today, `dataplanes+insights` how it did before."""

    def __init__(self, collaborators: Collaborators, reader: ResourceReader) -> None:
        self._api = collaborators
        self._reader = reader
        self._kind: Kind = collaborators.kinds[_DATAPLANE]

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/meshes/{mesh}/dataplanes/_overview", self.listing)
        yield Route("/meshes/{mesh}/dataplanes+insights", self.listing)
        yield Route("/dataplanes/_overview", self.listing)
        yield Route("/dataplanes+insights", self.listing)
        yield Route("/meshes/{mesh}/dataplanes/{name}/_overview", self.by_name)
        yield Route("/meshes/{mesh}/dataplanes+insights/{name}", self.by_name)

    async def by_name(self, request: Request) -> Response:
        mesh, name = request.path_params["mesh"], request.path_params["name"]
        stored = await self._reader.existing(request, Key(self._kind.name, mesh, name))
        key, world = stored.document.key, await self._api.state.current()
        presences = await self._api.observed.presences([key])
        answer = await self._api.works.resources.json(request, lambda _: self._overview(stored, presences[key]))
        answer.headers[REVISION_HEADER] = str(world.revision)
        return answer

    async def listing(self, request: Request) -> Response:
        """Those of one mesh, or of all."""
        mesh, work = request.path_params.get("mesh"), self._api.works.resources
        contents = await self._reader.readable(request, mesh)
        part = await work.do(request, lambda checkpoint: page_of(contents, self._kind, mesh, request, checkpoint))
        world = await self._api.state.current()  # what the states of proxies speak of, at the least
        presences = await self._api.observed.presences([stored.document.key for stored in part.items])

        def data(checkpoint: Checkpoint) -> dict[str, Any]:
            items = checked(part.items, checkpoint)
            return part.as_data(
                request.url, [self._overview(stored, presences[stored.document.key]) for stored in items]
            )

        answer = await work.json(request, data)
        answer.headers[REVISION_HEADER] = str(world.revision)
        return answer

    def _overview(self, stored: Stored, presence: Presence) -> dict[str, Any]:
        key, data = stored.document.key, stored.document.data
        return {
            "type": "DataplaneOverview",
            "mesh": key.mesh,
            "name": key.name,
            "creationTime": timestamp(stored.created),
            "modificationTime": timestamp(stored.modified),
            **({"labels": data["labels"]} if "labels" in data else {}),
            "dataplane": {name: value for name, value in data.items() if name not in _HEAD},
            "dataplaneInsight": {
                "subscriptions": [
                    _subscription(self._api.about.instance, connection) for connection in presence.connections
                ],
                **({} if presence.certificate is None else {"mTLS": _mtls(presence.certificate)}),
            },
            "status": presence.state.value,
            "statusSince": moment(presence.since),
            **expectation(presence, stored.created.timestamp(), self._api.alike_since()),
        }


def _subscription(instance: str, connection: ConnectionRecord) -> dict[str, Any]:
    by_type = {tally.type_url: tally for tally in connection.tallies}
    return {
        "id": f"{instance}-{connection.since}",
        "controlPlaneInstanceId": instance,
        "connectTime": moment(connection.since),
        **({} if connection.until is None else {"disconnectTime": moment(connection.until)}),
        "status": {
            "lastUpdateTime": moment(connection.answered_at),
            "total": _responses(by_type.values()),
            **{short: _responses(filter(None, [by_type.get(type_url)])) for short, type_url in _TYPES},
        },
        "version": _version(connection.node),
    }


def _mtls(certificate: Certificate) -> dict[str, Any]:
    return {
        "certificateExpirationTime": moment(certificate.not_after),
        "lastCertificateRegeneration": moment(certificate.issued),
        "certificateRegenerations": certificate.generation,
        "issuedBackend": certificate.backend,
        "supportedBackends": list(certificate.trusted),
    }


def _responses(tallies: Iterable[ResponseCounts]) -> dict[str, str]:
    """Counts are texts, as in every JSON of a 64-bit number that is made from protobuf, and zeros are left out."""
    all_tallies = list(tallies)
    counts = {
        "responsesSent": sum(tally.sent for tally in all_tallies),
        "responsesAcknowledged": sum(tally.accepted for tally in all_tallies),
        "responsesRejected": sum(tally.rejected for tally in all_tallies),
    }
    return {name: str(count) for name, count in counts.items() if count > 0}


def _version(node: Node) -> dict[str, Any]:
    version = node.metadata.get("version")
    versions: Mapping[str, Any] = version if isinstance(version, Mapping) else {}
    return {**versions, "envoy": {**_mapping(versions.get("envoy")), "version": node.version}}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
