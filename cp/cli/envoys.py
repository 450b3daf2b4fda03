"""What Envoys say of themselves, as text: `koguma inspect dataplane NAME --clusters` and its like, and log levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.options import Mesh, OutputFormat, TableFormat
from cp.cli.output import print_data
from cp.cli.tables import table
from cp.client.client import Client
from cp.client.problem import Problem
from cp.model.envoy_questions import DUMPED_TYPES, LEVELS
from cp.model.names import DEFAULT_MESH
from cp.model.wording import printable

Data = Mapping[str, Any]

_CLUSTER_HEADS: Final = (
    *("CLUSTER", "ENDPOINT", "HEALTH", "REQUESTS", "ERRORS", "TIMEOUTS", "ACTIVE", "CONNECTIONS", "FAILED TO CONNECT"),
    *("WEIGHT", "LOCALITY"),
)
_LESS_OF_CLUSTERS: Final = ("LOCALITY", "WEIGHT", "ACTIVE", "CONNECTIONS", "TIMEOUTS", "FAILED TO CONNECT")
_COUNTS: Final = ("rq_total", "rq_error", "rq_timeout", "rq_active", "cx_active", "cx_connect_fail")
_CERTIFICATE_HEADS: Final = ("WHAT", "SUBJECT ALT NAMES", "SERIAL", "VALID FROM", "EXPIRES", "DAYS LEFT", "PATH")
_LESS_OF_CERTIFICATES: Final = ("PATH", "VALID FROM", "SERIAL")
_QUANTILES: Final = (50, 95, 99)


class EnvoyView(StrEnum):
    """What is shown of an Envoy. The values are the last parts of paths of the HTTP API."""

    CLUSTERS = "clusters"
    STATS = "stats"
    CONFIG_DUMP = "config_dump"
    CERTIFICATES = "certs"


DumpedType = StrEnum("DumpedType", {name.upper(): name for name in DUMPED_TYPES})  # type: ignore[misc]  # made of names

Level = Annotated[
    str | None,
    typer.Argument(metavar="LEVEL", help=f"{', '.join(LEVELS)}. Left out: show the level that the log has."),
]
ProxyArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the proxy's Dataplane.")]
ForTime = Annotated[
    str, typer.Option("--for", metavar="DURATION", help="After this time the agent sets the level back. At most 1h.")
]


def view_of(flags: Mapping[EnvoyView, bool], *, filter_: str, type_: str) -> EnvoyView | None:
    """The view that was asked for by its option, if any was. Raises `Problem`."""
    chosen = [view for view, is_wanted in flags.items() if is_wanted]
    if len(chosen) > 1:
        raise Problem("only one of --clusters, --stats, --config-dump and --certificates can be shown", status=2)
    view = chosen[0] if chosen else None
    if filter_ and view not in {EnvoyView.STATS, EnvoyView.CONFIG_DUMP}:
        raise Problem("--filter is for --stats and --config-dump", status=2)
    if type_ and view is not EnvoyView.CONFIG_DUMP:
        raise Problem("--type is for --config-dump", status=2)
    return view


def show(client: Client, path: str, view: EnvoyView, output: TableFormat, **parameters: str) -> None:
    """Print what an Envoy says."""
    given = {name: value for name, value in parameters.items() if value}
    answer = client.answer(f"{path}/_envoy/{view.value}", [], **given)
    if output.is_data or view is EnvoyView.CONFIG_DUMP:
        print_data(answer, OutputFormat.JSON if output is TableFormat.JSON else OutputFormat.YAML)
        return
    shown = _TABLES[view](answer, output is TableFormat.WIDE)
    if not shown:
        shown = "no counter that was used has such a name" if given.get("filter") else _NOTHING[view]
    typer.echo("".join(f"{printable(line)}\n" for line in shown.splitlines()), nl=False)


def clusters(answer: Data, wide: bool) -> str:  # noqa: FBT001  # all of these are called alike
    statuses = sorted(answer.get("cluster_statuses", ()), key=lambda status: str(status.get("name", "")))
    rows = [row for status in statuses for row in _hosts(status)]
    return table(_CLUSTER_HEADS, rows, less=_LESS_OF_CLUSTERS, wide=wide) if rows else ""


def _hosts(status: Data) -> Iterator[Sequence[str]]:
    name = str(status.get("name", ""))
    hosts = status.get("host_statuses", ())
    if not hosts:
        yield (name, "(none)", *[""] * (len(_CLUSTER_HEADS) - 2))
    for host in hosts:
        counts = {count.get("name"): str(count.get("value", "0")) for count in host.get("stats", ())}
        yield (
            name,
            _address(host.get("address", {})),
            _health(host.get("health_status", {})),
            *(counts.get(count, "0") for count in _COUNTS),
            str(host.get("weight", "")),
            "/".join(filter(None, host.get("locality", {}).values())),
        )


def _address(address: Data) -> str:
    if "socket_address" in address:
        place = address["socket_address"]
        host = str(place.get("address", ""))
        return f"[{host}]:{place.get('port_value', '')}" if ":" in host else f"{host}:{place.get('port_value', '')}"
    return str(address.get("pipe", {}).get("path", "(internal)"))


def _health(status: Data) -> str:
    """Why an endpoint gets no requests, in Envoy's words; `healthy` if it does."""
    reasons = [name.replace("_", " ") for name, value in status.items() if value is True]
    of_control_plane = str(status.get("eds_health_status", "HEALTHY")).lower()
    reasons += [of_control_plane] if of_control_plane not in {"healthy", "unknown"} else []
    return ", ".join(reasons) or "healthy"


def stats(answer: Data, wide: bool) -> str:  # noqa: FBT001  # as above
    rows: list[tuple[str, str]] = []
    for stat in answer.get("stats", ()):
        rows += _histograms(stat["histograms"]) if "histograms" in stat else [(str(stat["name"]), str(stat["value"]))]
    return table(("NAME", "VALUE"), sorted(rows), wide=wide) if rows else ""


def _histograms(histograms: Data) -> Iterator[tuple[str, str]]:
    """The quantiles that most people look at, since Envoy was started."""
    quantiles = [float(quantile) for quantile in histograms.get("supported_quantiles", ())]
    for histogram in histograms.get("computed_quantiles", ()):
        values = [value.get("cumulative") for value in histogram.get("values", ())]
        shown = [
            f"P{quantile:g} {value:g}"
            for quantile, value in zip(quantiles, values, strict=False)
            if quantile in _QUANTILES and value is not None
        ]
        if shown:
            yield str(histogram["name"]), ", ".join(shown)


def certificates(answer: Data, wide: bool) -> str:  # noqa: FBT001  # as above
    every_row = (tuple(row) for certificate in answer.get("certificates", ()) for row in _certificates(certificate))
    rows = list(dict.fromkeys(every_row))  # Envoy lists a certificate for each cluster and listener that has it
    return table(_CERTIFICATE_HEADS, rows, less=_LESS_OF_CERTIFICATES, wide=wide) if rows else ""


def _certificates(certificate: Data) -> Iterator[Sequence[str]]:
    for field, kind in (("cert_chain", "shown to others"), ("ca_cert", "trusted")):
        for detail in certificate.get(field, ()):
            names = [str(value) for name in detail.get("subject_alt_names", ()) for value in name.values()]
            yield (
                kind,
                ", ".join(names),
                str(detail.get("serial_number", "")),
                *(str(detail.get(moment, ""))[:19] for moment in ("valid_from", "expiration_time")),
                str(detail.get("days_until_expiration", "")),
                str(detail.get("path", "")),
            )


_TABLES: Final[Mapping[EnvoyView, Callable[[Data, bool], str]]] = {
    EnvoyView.CLUSTERS: clusters,
    EnvoyView.STATS: stats,
    EnvoyView.CERTIFICATES: certificates,
}
"""Each is empty where the Envoy has nothing of it."""

_NOTHING: Final[Mapping[EnvoyView, str]] = {
    EnvoyView.CLUSTERS: "its Envoy has no clusters",
    EnvoyView.STATS: "no counter of its Envoy was used yet",
    EnvoyView.CERTIFICATES: "its Envoy shows no certificate, and has none by which it trusts others",
}


def log_level(  # noqa: PLR0913  # an option each
    name: ProxyArgument,
    lowest: Level = None,
    *,
    for_: ForTime = "5m",
    mesh: Mesh = DEFAULT_MESH,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="The format of the output.")] = (
        OutputFormat.TABLE
    ),
    api: ApiConnection,
) -> None:
    """Let the Envoy of a proxy log at another level for a time, or show the level that it has.

    The log is where `koguma dp run` writes it. When the time is over the agent sets the level back, even if the
    control plane is gone by then.
    """
    if lowest is not None and lowest not in LEVELS:
        raise Problem(f"there is no level {lowest}", f"Write {', '.join(LEVELS)}.", status=2)
    path = f"/meshes/{mesh}/dataplanes/{name}/_envoy/log_level"
    with api.client() as client:
        answer = (
            client.answer(path, []) if lowest is None else client.put_data(path, {"level": lowest, "validFor": for_})
        )
    if output is not OutputFormat.TABLE:
        print_data(answer, output)
        return
    for line in _levels(name, answer):
        typer.echo(printable(line))


def _levels(name: str, answer: Data) -> Iterator[str]:
    seconds = answer.get("setBackIn")
    until = "" if seconds is None else f", and as before in {seconds:g} s"
    yield f"the Envoy of {name} logs at level {answer.get('level', '')}{until}"
    for logger, level in sorted(answer.get("loggers", {}).items()):
        yield f"  {logger}: {level}"


def differences(answer: Data) -> Iterator[str]:
    """What is not as it should be; one line if there is nothing."""
    if not answer["differences"]:
        counts = ", ".join(f"{count} {type_}" for type_, count in answer["compared"].items() if count)
        yield f"Envoy has what it should have: {counts or 'nothing'}"
    for difference in answer["differences"]:
        yield f"{difference['type']} {difference['name']}: {_STATES.get(difference['state'], difference['state'])}"
        if difference.get("reason"):
            yield f"  Envoy says: {difference['reason']}"
        yield from _fields(difference)


def _fields(difference: Data) -> Iterable[str]:
    from cp.cli.output import brief  # noqa: PLC0415  # only where something differs

    for field in difference.get("fields", ()):
        wanted, envoy = (brief(field.get(side, "(none)")) for side in ("wanted", "envoy"))
        yield f"  {field['path'] or 'as a whole'}: should be {wanted}, is {envoy}"
    if difference.get("moreFields"):
        yield f"  and {difference['moreFields']} more fields"


_STATES: Final = {
    "different": "not as it should be",
    "missing": "Envoy does not have it",
    "extra": "Envoy has it and should not",
    "warming": "Envoy has it, and it is not ready yet",
    "refused": "as it should be, after Envoy refused it",
}


def from_dump(answer: Data, type_: str) -> dict[str, Any]:
    """The resources of one type in a dump of these, by name."""
    resources = (_resource(entry, type_) for entry in answer.get("configs", ()))
    return {
        name: {field: value for field, value in resource.items() if field != "@type"}
        for name, resource in sorted((str(_name(resource)), resource) for resource in resources if resource)
    }


def _resource(entry: Data, type_: str) -> Data:
    if type_ == "listeners":
        active: Data = entry.get("active_state", {}).get("listener", {})
        return active
    fields = {"clusters": "cluster", "routes": "route_config", "endpoints": "endpoint_config", "secrets": "secret"}
    resource: Data = entry.get(fields[type_], {})
    return resource


def _name(resource: Data) -> Any:
    return resource.get("name", resource.get("cluster_name", ""))
