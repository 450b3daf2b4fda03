"""The state of proxies as text: a table of many, or one with all that it was sent and how it answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from cp.cli.columns import status, tags
from cp.cli.findings import finding_lines
from cp.cli.output import age
from cp.cli.tables import table, table_or
from cp.model.wording import printable

Data = Mapping[str, Any]

_HEADS: Final = (
    *("MESH", "NAME", "TAGS", "STATUS", "LAST CONNECTED AGO", "LAST UPDATED AGO", "TOTAL UPDATES", "TOTAL ERRORS"),
    *("CERT REGENERATED AGO", "CERT EXPIRATION", "CERT REGENERATIONS", "CERT BACKEND", "SUPPORTED CERT BACKENDS"),
    "ENVOY VERSION",
)
_LESS: Final = (
    *("SUPPORTED CERT BACKENDS", "CERT REGENERATIONS", "CERT REGENERATED AGO", "CERT BACKEND", "ENVOY VERSION"),
    *("TOTAL UPDATES", "CERT EXPIRATION", "LAST UPDATED AGO", "LAST CONNECTED AGO", "TAGS", "TOTAL ERRORS"),
)
"""The heads of columns that are left out where there is no room for them, the first one first."""

_LESS_OF_TYPES: Final = ("BYTES", "RESPONSES", "RESOURCES", "SINCE")

_TYPE_HEADS: Final = ("TYPE", "STATUS", "SINCE", "RESPONSES", "ACCEPTED", "REJECTED", "RESOURCES", "BYTES", "VERSION")
_FINDS_CERTIFICATES: Final = "Its library finds certificates, so it calls over TLS whoever takes it."
_FINDS_NO_CERTIFICATES: Final = (
    "Its bootstrap names no certificates, so it speaks plain text, and inbounds that are strict refuse it "
    "(koguma dp certificates)."
)


def dataplanes(items: Iterable[Data], *, wide: bool = False) -> str:
    """A table of overviews, with a line for each proxy."""
    return table(_HEADS, map(_row, items), less=_LESS, wide=wide)


def delivery(answer: Data, *, wide: bool = False) -> Iterator[str]:
    """The state of one proxy, with what others have named."""
    return map(printable, _delivery(answer, wide=wide))


def _delivery(answer: Data, *, wide: bool) -> Iterator[str]:
    yield f"Dataplane {answer['mesh']}/{answer['name']}: {_state(answer)}"
    for stream in answer["streams"]:
        since = age(stream["connectedSince"])
        yield f"connected for {since}, {_KINDS.get(stream['protocol'], stream['protocol'])}, Envoy {stream['envoy']}"
        yield ""
        nothing, rows = "it has asked for nothing yet", map(_type_row, stream["types"])
        yield from table_or(nothing, _TYPE_HEADS, rows, less=_LESS_OF_TYPES, wide=wide).splitlines()
    if answer.get("certificate") is not None:
        yield ""
        yield from _certificate(answer["certificate"])
    if answer.get("certificateFault"):
        yield ""
        yield f"It has no certificate, so it neither takes nor makes calls over TLS: {answer['certificateFault']}"
    if answer.get("findsCertificates") is not None:
        yield ""
        yield _FINDS_CERTIFICATES if answer["findsCertificates"] else _FINDS_NO_CERTIFICATES
    if answer["status"] == "Offline":
        yield from _offline(answer)
    yield from _late(answer)
    yield from _draining(answer)
    yield from _going_on(answer)
    for refusal in (
        refusal
        for stream in answer["streams"]
        for type_status in stream["types"]
        for refusal in type_status["refusals"]
    ):
        yield ""
        yield from _held_back(refusal)
    for finding in answer["findings"]:
        yield ""
        yield from finding_lines(finding)


def _late(answer: Data) -> Iterator[str]:
    if late := answer.get("late"):
        yield ""
        yield from late


def _draining(answer: Data) -> Iterator[str]:
    if draining := answer.get("draining"):
        moments = [resource["until"] for resource in draining]
        until = "the proxy has ACKed the change" if None in moments else f"{_shown(max(moments))} (UTC)"
        yield ""
        yield f"draining: {len(draining)} resources for its old listeners, until {until}"


def _going_on(answer: Data) -> Iterator[str]:
    for sentence in answer.get("moves", ()):
        yield ""
        yield f"mTLS: {sentence}"
    if answer.get("rollout"):
        yield ""
        yield answer["rollout"]


def _certificate(certificate: Data) -> Iterator[str]:
    """What it shows to others of its mesh."""
    yield f"Certificate {certificate['serial']} of {certificate['backend']}, issued {age(certificate['issued'])} ago:"
    yield from (f"  {uri}" for uri in certificate["uris"])
    renewal = certificate["renewal"]
    plan = "is not renewed, as its authority ends with it" if renewal is None else f"is renewed at {_shown(renewal)}"
    yield f"  it expires at {_shown(certificate['notAfter'])}, and {plan} (UTC)"
    if certificate["fault"] is not None:
        yield f"  the next one cannot be issued: {certificate['fault']}"


_KINDS: Final = {"sotw": "state of the world", "delta": "incremental"}


def _state(answer: Data) -> str:
    if answer["status"] == "Offline":
        return "offline"
    if answer["status"] == "Unknown":
        return "unknown: a control plane that may serve it does not answer (koguma inspect instances)"
    since = "" if answer["since"] is None else f" for {age(answer['since'])}"
    on_its_way = "what serves it is behind" if answer.get("late") else "something is on its way to it"
    return {
        "Online": f"in sync{since}",
        "Over limit": f"in sync{since}, but over a limit: a part of its configuration is left out",
        "Out of sync": f"out of sync{since}: {on_its_way}",
        "Refused": f"out of sync{since}: it refuses something",
        "Failed": f"out of sync{since}: by a fault of the control plane, a part could not be made for it",
    }[answer["status"]]


def _offline(answer: Data) -> Iterator[str]:
    last = answer["lastConnection"]
    if last is not None:
        yield f"it went {age(last['until'])} ago, having come {age(last['connectedSince'])} ago, Envoy {last['envoy']}"
        return
    mesh = f" --mesh {answer['mesh']}" if answer["mesh"] != "default" else ""
    if until := answer.get("expectedUntil"):
        yield "no control plane or worker remembers it, as one has just started or ended; its Envoy keeps what it has,"
        yield f"and is expected to connect again until {_shown(until)} (UTC)"
        return
    yield "it has not connected since this control plane and its workers were started"
    yield f"Start its Envoy with `koguma dp run --name {answer['name']}{mesh}`; if it runs, compare the address of"
    yield "the control plane in its bootstrap configuration, and look into its log."


def _type_row(status: Data) -> tuple[str, ...]:
    state = "in sync" if status["inSync"] else "refused" if status["refusals"] else "on its way"
    counts = (status["responses"], status["accepted"], status["rejected"], status["resources"], status["bytes"])
    return status["type"], state, age(status["since"]), *map(str, counts), status["acked"] if status["accepted"] else ""


def _held_back(refusal: Data) -> Iterator[str]:
    yield f"Held back for {age(refusal['since'])}:"
    for resource in refusal["resources"]:
        instead = (
            f"version {resource['inForce']} is in force" if resource["inForce"] else "there is nothing in its place"
        )
        yield f"  {resource['name']} version {resource['refused']}; {instead}"
    for policy in refusal["policies"]:
        place = f", {policy['file']}:{policy['line']}" if policy["file"] else ""
        changed = ", changed just before" if policy["suspect"] else ""
        yield f"  made with {policy['type']} {policy['name']} {policy['path']}{place}{changed}"


def _row(overview: Data) -> tuple[str, ...]:
    connections = overview["dataplaneInsight"]["subscriptions"]
    last = connections[-1] if connections else {}
    total = last.get("status", {}).get("total", {})
    return (
        overview["mesh"],
        overview["name"],
        tags(overview["dataplane"]),
        status(overview),
        _ago(last.get("connectTime")),
        _ago(last.get("status", {}).get("lastUpdateTime")),
        total.get("responsesAcknowledged", "0"),
        total.get("responsesRejected", "0"),
        *_certificate_cells(overview["dataplaneInsight"].get("mTLS", {})),
        last.get("version", {}).get("envoy", {}).get("version", "-"),
    )


def _certificate_cells(mtls: Data) -> tuple[str, ...]:
    return (
        _ago(mtls.get("lastCertificateRegeneration")),
        _shown(mtls.get("certificateExpirationTime")),
        str(mtls.get("certificateRegenerations", 0)),
        mtls.get("issuedBackend", "-"),
        ",".join(mtls.get("supportedBackends", [])) or "-",
    )


def _shown(moment: str | None) -> str:
    """A moment to the second, in UTC."""
    return "-" if moment is None else f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S}"


def _ago(moment: str | None) -> str:
    return "never" if moment is None else age(moment)
