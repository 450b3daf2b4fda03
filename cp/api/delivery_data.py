"""What proxies were sent and made of it, as it is answered to machines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from cp.ads.connection import ConnectionRecord
from cp.ads.draining import DrainingResource
from cp.identity.leaf import Certificate
from cp.insight.report import finding_data
from cp.model.moments import timestamp
from cp.serving.delivery import (
    ChangeProgress,
    Delivery,
    PolicyPart,
    Presence,
    StandingNack,
    expected_until,
    finding,
    grouped,
)
from cp.serving.delivery.delivery import StreamDelivery, TypeDelivery
from cp.serving.delivery.nacks import without_dump
from cp.serving.trust_moves import TrustMove
from cp.translate.packing import SHORT


def delivery_data(
    standing: Delivery,
    moves: Iterable[TrustMove] = (),
    *,
    needs_certificates: bool = False,
    why_uncertified: str = "",
) -> dict[str, Any]:
    """The answer of `_delivery` for one proxy, with the moves of its mesh that it holds up or that pass it over.

    `needs_certificates`: it is a gRPC client in a mesh with mTLS. `why_uncertified` is told of a proxy that is there
    and has no certificate; empty where it needs none.
    """
    key, presence = standing.dataplane, standing.presence
    last = None if standing.streams else next(iter(presence.connections), None)
    lacks_certificate = presence.certificate is None and why_uncertified and standing.streams
    return {
        "type": key.type,
        "mesh": key.mesh,
        "name": key.name,
        "status": presence.state.value,
        "inSync": presence.state.is_in_sync,
        "since": moment(presence.since),
        "streams": [_stream(stream) for stream in standing.streams],
        "lastConnection": None if last is None else _visit(last),
        "certificate": None if presence.certificate is None else _certificate(presence.certificate),
        **({"certificateFault": why_uncertified} if lacks_certificate else {}),
        "late": list(standing.late),
        "draining": [_draining(resource) for resource in standing.draining],
        "moves": [sentence for move in moves for sentence in move.sentences],
        **({"findsCertificates": presence.finds_certificates} if needs_certificates else {}),
        "findings": [finding_data(finding) for finding in standing.findings],
    }


def expectation(presence: Presence, made: float, alike_since: float) -> dict[str, Any]:
    """Until when a proxy is expected that is not connected and that no process remembers; nothing of all others."""
    until = expected_until(presence, made, time.time(), alike_since)
    return {} if until is None else {"expectedUntil": moment(until)}


def progress_data(progress: ChangeProgress) -> dict[str, Any]:
    """A line of the answer of `/_delivery`."""
    return {
        "revision": progress.revision,
        "proxies": progress.proxies,
        "have": progress.have,
        "refusing": list(progress.refusing),
        "waiting": list(progress.waiting),
        "gone": list(progress.gone),
        "failed": list(progress.failed),
        "limited": list(progress.limited),
        "findings": [finding_data(finding(group)) for group in grouped(progress.nack_reports)],
        "done": progress.is_done,
    }


def moment(at: float | None) -> str | None:
    return None if at is None else timestamp(datetime.fromtimestamp(at, UTC))


def _certificate(certificate: Certificate) -> dict[str, Any]:
    return {
        "serial": certificate.serial,
        "uris": list(certificate.uris),
        "backend": certificate.backend,
        "issued": moment(certificate.issued),
        "notBefore": moment(certificate.not_before),
        "notAfter": moment(certificate.not_after),
        "renewal": moment(certificate.renewal),
        "generation": certificate.generation,
        "trustedBackends": list(certificate.trusted),
        "fault": certificate.fault or None,
    }


def _draining(resource: DrainingResource) -> dict[str, Any]:
    return {"type": SHORT[resource.type_url], "name": resource.name, "until": moment(resource.until)}


def _stream(stream: StreamDelivery) -> dict[str, Any]:
    return {
        "protocol": stream.kind,
        "envoy": stream.envoy,
        "connectedSince": moment(stream.since),
        "lastAnswer": moment(stream.heard_at),
        "types": [_of_type(delivery) for delivery in stream.types],
    }


def _of_type(delivery: TypeDelivery) -> dict[str, Any]:
    status = delivery.status
    return {
        "type": SHORT.get(status.type_url, status.type_url),
        "typeUrl": status.type_url,
        "inSync": status.in_sync,
        "since": moment(delivery.since),
        "sent": status.sent,
        "acked": status.acked,
        "responses": status.messages,
        "accepted": delivery.accepted,
        "rejected": delivery.rejected,
        "unanswered": status.unanswered,
        "resources": status.resources,
        "bytes": status.size,
        "refusals": [_refusal(refusal) for refusal in delivery.refusals],
    }


def _refusal(refusal: StandingNack) -> dict[str, Any]:
    report = refusal.report
    suspects = frozenset(() if report is None else report.suspects)
    policies = () if report is None else report.policies
    return {
        "text": without_dump(refusal.nack.text),
        "since": moment(refusal.at),
        "resources": [
            {"name": held.name, "refused": held.version, "inForce": held.in_force or None} for held in refusal.held
        ],
        "policies": [{**_place(place), "suspect": place in suspects} for place in policies],
    }


def _place(place: PolicyPart) -> dict[str, Any]:
    policy = place.policy
    where = {"path": place.path, "file": place.file, "line": place.line}
    return {"type": policy.type, "mesh": policy.mesh, "name": policy.name, **where}


def _visit(visit: ConnectionRecord) -> dict[str, Any]:
    return {
        "protocol": visit.kind,
        "envoy": visit.node.version,
        "connectedSince": moment(visit.since),
        "until": moment(visit.until),
    }
