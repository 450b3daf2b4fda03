"""The state of proxies as text: a table of many, or one with all that it was sent and how it answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from cp.cli.columns import tags
from cp.cli.findings import finding_lines
from cp.cli.output import age, table

Data = Mapping[str, Any]

_HEADS: Final = (
    *("MESH", "NAME", "TAGS", "STATUS", "LAST CONNECTED AGO", "LAST UPDATED AGO", "TOTAL UPDATES", "TOTAL ERRORS"),
    *("CERT REGENERATED AGO", "CERT EXPIRATION", "CERT REGENERATIONS", "CERT BACKEND", "SUPPORTED CERT BACKENDS"),
    "ENVOY VERSION",
)
_TYPE_HEADS: Final = ("TYPE", "STATUS", "SINCE", "RESPONSES", "ACCEPTED", "REJECTED", "RESOURCES", "BYTES", "VERSION")


def dataplanes(items: Iterable[Data]) -> str:
    """A table of overviews, with a line for each proxy."""
    return table(_HEADS, map(_row, items))


def listed(overview: Data) -> dict[str, Any]:
    """An overview in the form of a listed resource: the Dataplane, with the status of its proxy."""
    kept = {name: overview[name] for name in ("type", "mesh", "name", "creationTime", "status") if name in overview}
    return {**overview.get("dataplane", {}), **kept}


def delivery(answer: Data) -> Iterator[str]:
    """The state of one proxy."""
    yield f"Dataplane {answer['mesh']}/{answer['name']}: {_state(answer)}"
    for stream in answer["streams"]:
        since = age(stream["connectedSince"])
        yield f"connected for {since}, {_KINDS.get(stream['protocol'], stream['protocol'])}, Envoy {stream['envoy']}"
        yield ""
        yield from table(_TYPE_HEADS, map(_type_row, stream["types"])).splitlines()
    if answer.get("certificate") is not None:
        yield ""
        yield from _certificate(answer["certificate"])
    if answer["status"] == "Offline":
        yield from _offline(answer)
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
    since = age(answer["since"])
    return {
        "Online": f"in sync for {since}",
        "Out of sync": f"out of sync for {since}: something is on its way to it",
        "Refused": f"out of sync for {since}: it refuses something",
    }[answer["status"]]


def _offline(answer: Data) -> Iterator[str]:
    last = answer["lastConnection"]
    if last is not None:
        yield f"it went {age(last['until'])} ago, having come {age(last['connectedSince'])} ago, Envoy {last['envoy']}"
        return
    mesh = f" --mesh {answer['mesh']}" if answer["mesh"] != "default" else ""
    yield "it has not connected since this control plane was started"
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
        overview.get("status", ""),
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
