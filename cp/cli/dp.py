"""`koguma dp`: runs the proxy of a workload, or prints the bootstrap of a gRPC client that needs no proxy."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from cp.agent import envoys, guard, joining, ports, readiness, supervise, work_folder
from cp.agent.admin import EnvoyAdmin
from cp.agent.drain import ProxyDrain
from cp.agent.log_lines import forwarded_output
from cp.agent.log_sinks import LogSinks
from cp.agent.metrics_push import pushed_metrics
from cp.agent.token_secret import TokenSecret
from cp.cli.connection import ADDRESS, credentials_of, warn_of_plain_text
from cp.cli.options import WorkDir, authority_option, token_option
from cp.cli.types import known_kinds
from cp.cli.validate import findings_before_write, print_findings
from cp.client.client import connect
from cp.client.credentials import Credentials, authority_in
from cp.client.files import FileDocument, file_documents, file_texts
from cp.client.problem import Problem
from cp.model import envelope
from cp.model.duration import Duration
from cp.model.registration import OWNER
from cp.model.source import DEFAULT_MESH

File = Annotated[
    str | None,
    typer.Option(
        "--dataplane-file",
        "-d",
        envvar=["KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH"],
        metavar="FILE",
        help="A file with one Dataplane. It is stored before Envoy starts.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--dataplane-var", "-v", metavar="NAME=VALUE", help="Replace {{ NAME }} in the file by VALUE. May be repeated."
    ),
]
ProxyName = Annotated[
    str | None,
    typer.Option("--name", envvar=["KUMA_DATAPLANE_NAME"], help="The name of a stored Dataplane, instead of a file."),
]
ProxyMesh = Annotated[
    str | None,
    typer.Option(
        "--mesh", "-m", envvar=["KUMA_DATAPLANE_MESH"], help=f"The mesh of the Dataplane. Default: {DEFAULT_MESH}."
    ),
]
ControlPlane = Annotated[
    str,
    typer.Option(
        "--cp-address",
        envvar=["KOGUMA_ADDRESS", "KUMA_CONTROL_PLANE_URL"],
        metavar="URL",
        help="The URL of the control plane's HTTP API.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--dataplane-token-file",
        envvar=["KUMA_DATAPLANE_RUNTIME_TOKEN_PATH"],
        metavar="FILE",
        help="A file with the token of the proxy (koguma generate dataplane-token). It is read again when it changes.",
    ),
]
Token = Annotated[str, token_option("--dataplane-token", "KUMA_DATAPLANE_RUNTIME_TOKEN")]
AuthorityFile = Annotated[
    Path | None,
    authority_option(
        "KUMA_CONTROL_PLANE_CA_CERT_FILE", "what this machine trusts or, for Envoy, what the control plane names"
    ),
]
AuthorityText = Annotated[
    str, typer.Option("--ca-cert", envvar=["KUMA_CONTROL_PLANE_CA_CERT"], metavar="PEM", hidden=True)
]
SkipVerify = Annotated[
    bool,
    typer.Option(
        "--skip-verify",
        envvar=["KUMA_CONTROL_PLANE_TLS_SKIP_VERIFY"],
        help="Do not verify the certificate of the control plane's HTTP API. Whoever answers gets the token.",
    ),
]
EnvoyPath = Annotated[
    str | None,
    typer.Option("--envoy-path", "--binary-path", envvar=["KOGUMA_ENVOY"], metavar="PATH", help="The Envoy to run."),
]
Concurrency = Annotated[
    int,
    typer.Option(
        envvar=["KUMA_DATAPLANE_RUNTIME_CONCURRENCY"],
        min=1,
        help="The number of Envoy's worker threads. One is enough for most workloads.",
    ),
]
SystemCa = Annotated[
    Path | None,
    typer.Option(
        envvar=["KUMA_DATAPLANE_RUNTIME_SYSTEM_CA_PATH"],
        metavar="FILE",
        help="A file with the CA certificates that this machine trusts. Default: the usual file of the system.",
    ),
]
DrainTime = Annotated[
    str,
    typer.Option(
        envvar=["KUMA_DATAPLANE_DRAIN_TIME"],
        metavar="DURATION",
        help="How long the proxy drains connections when it is told to end. It ends earlier if none is left.",
    ),
]
ListenerDrainTime = Annotated[
    str,
    typer.Option(
        metavar="DURATION", help="How long connections of a listener may go on after the listener has changed."
    ),
]
EnvoyLogLevel = Annotated[
    Literal["trace", "debug", "info", "warning", "error", "critical", "off"],
    typer.Option(help="The lowest level of messages that Envoy logs."),
]
RetryFor = Annotated[
    str,
    typer.Option(
        "--retry-max-duration",
        envvar=["KUMA_CONTROL_PLANE_RETRY_MAX_DURATION"],
        metavar="DURATION",
        help="How long to keep trying while the control plane does not answer.",
    ),
]

_AFTER_DRAINING: Final = 20.0
"""Seconds that a guard needs beside the drain time: to start, to report to the control plane, and to end Envoy."""

_SYSTEM_CAS: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # CentOS, Amazon Linux
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def run(  # noqa: PLR0913  # an option each
    *,
    dataplane_file: File = None,
    dataplane_var: Variables = None,
    name: ProxyName = None,
    mesh: ProxyMesh = None,
    cp_address: ControlPlane = ADDRESS,
    dataplane_token_file: TokenFile = None,
    dataplane_token: Token = "",
    ca_cert_file: AuthorityFile = None,
    ca_cert: AuthorityText = "",
    skip_verify: SkipVerify = False,
    envoy_path: EnvoyPath = None,
    concurrency: Concurrency = 1,
    work_dir: WorkDir = None,
    system_ca: SystemCa = None,
    drain_time: DrainTime = "30s",
    listener_drain_time: ListenerDrainTime = "5s",
    envoy_log_level: EnvoyLogLevel = "warning",
    retry_max_duration: RetryFor = "5m",
) -> None:
    """Run Envoy as the proxy of a Dataplane, in the foreground."""
    envoy = envoys.find(envoy_path)
    flags = envoys.EnvoyFlags(envoy_log_level, concurrency, round(_seconds(listener_drain_time)))
    patience = joining.RetryTime(_seconds(retry_max_duration), _say)
    drain_seconds = _seconds(drain_time)
    wait = drain_seconds + _AFTER_DRAINING
    file_document = _dataplane(dataplane_file, dataplane_var or [], name, mesh)
    credentials = _credentials(dataplane_token_file, dataplane_token, ca_cert_file, ca_cert, skip_verify=skip_verify)
    warn_of_plain_text(cp_address, credentials, _say)
    with supervise.tidied_up(), _folder(work_dir) as folder, work_folder.folder_lock(folder, wait, _say) as lock:
        token = TokenSecret(folder, credentials, _say)
        token.write()
        join = replace(
            _mesh_join(file_document, name, mesh, folder),
            system_ca=_system_ca(system_ca),
            owner=uuid.uuid4().hex,
            token_secret=token.path,
        )
        _end_orphan(folder, cp_address, credentials, drain_seconds)
        membership = joining.Membership(cp_address, join, _say, credentials)
        bootstrap = _join_mesh(membership, file_document, patience)
        command = envoys.command(envoy, _write_bootstrap(bootstrap, folder), flags)
        drain = ProxyDrain(EnvoyAdmin(bootstrap), membership, drain_seconds, _say)
        with token.kept():
            status = _supervised(command, drain, membership, bootstrap, lock)
        membership.conclude()
    raise typer.Exit(status)


def _credentials(
    token_file: Path | None, token: str, authority_file: Path | None, authority: str, *, skip_verify: bool
) -> Credentials:
    text = authority if authority_file is None else authority_in(authority_file)
    return credentials_of(token_file, token, text, verifies=not skip_verify)


def _supervised(
    command: Sequence[str], drain: ProxyDrain, membership: joining.Membership, bootstrap: str, lock: int
) -> int:
    """Run Envoy until it ends, with all that the agent does meanwhile."""
    key, sinks = secrets.token_hex(16), LogSinks(_say)
    _say(f"starting {command[0]}; its admin interface: {drain.admin.where}")
    with supervise.started(command, {envelope.VARIABLE: key}) as child:
        orders = {
            "envoy": child.pid,
            "bootstrap": bootstrap,
            "address": membership.address,
            "credentials": asdict(membership.credentials),
            "joining": asdict(membership.joining),
            "seconds": drain.seconds,
        }
        folder = Path(membership.joining.work_dir)
        with (
            work_folder.envoy_note(folder, child.pid),
            guard.guarded_envoy(orders, lock),
            forwarded_output(supervise.output(child), key, sinks, sys.stdout.buffer),
            readiness.announced_readiness(drain.admin, _say, membership.enter),
            pushed_metrics(drain.admin, bootstrap, _say),
        ):
            return supervise.run(child, drain.run)


def _end_orphan(folder: Path, address: str, credentials: Credentials, seconds: float) -> None:
    """Drain and end an Envoy that is left because both its `koguma dp run` and the guard were killed."""
    envoy = work_folder.orphan(folder)
    if envoy is None:
        return
    _say(f"draining Envoy, process {envoy}, which a killed koguma dp run left here")
    bootstrap = (folder / work_folder.BOOTSTRAP).read_text(encoding="utf-8")
    membership = replace(_membership_of_orphan(bootstrap, folder, address), credentials=credentials)
    ProxyDrain(EnvoyAdmin(bootstrap), membership, seconds, _say).run(threading.Event())
    guard.end(envoy)


def _membership_of_orphan(bootstrap: str, folder: Path, address: str) -> joining.Membership:
    """The membership of a run that left only its bootstrap configuration. It does not remove the Dataplane."""
    node = json.loads(bootstrap)["node"]
    mesh, _, name = node["id"].partition(".")
    join = joining.MeshJoin(mesh, name, str(folder), owner=node["metadata"].get(OWNER, ""))
    return joining.Membership(address, join, _say)


def grpc_bootstrap(  # noqa: PLR0913  # an option each
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A stored Dataplane with the label `koguma.io/client: grpc`.")
    ],
    mesh: ProxyMesh = None,
    cp_address: ControlPlane = ADDRESS,
    dataplane_token_file: TokenFile = None,
    ca_cert_file: AuthorityFile = None,
    skip_verify: SkipVerify = False,
    retry_max_duration: RetryFor = "5m",
) -> None:
    """Print the bootstrap of a gRPC client without a proxy, for the file that GRPC_XDS_BOOTSTRAP names.

    It names the files with the token and the authority, which the library reads itself.
    """
    patience = joining.RetryTime(_seconds(retry_max_duration), _say)
    credentials = _credentials(dataplane_token_file, "", ca_cert_file, "", skip_verify=skip_verify)
    warn_of_plain_text(cp_address, credentials, _say)
    grpc_client = joining.GrpcClient(
        mesh or DEFAULT_MESH, name, credentials.token_file, str(ca_cert_file.absolute()) if ca_cert_file else ""
    )
    with connect(cp_address, credentials=credentials) as client:
        configuration = json.loads(joining.grpc_bootstrap(client, grpc_client, patience, credentials.authority))
    typer.echo(json.dumps(configuration, indent=2))


def _join_mesh(membership: joining.Membership, file_document: FileDocument | None, patience: joining.RetryTime) -> str:
    join, credentials = membership.joining, membership.credentials
    with connect(membership.address, credentials=credentials) as client:
        if file_document is not None:
            ports.must_not_be_shared(file_document.document.data)
            joining.register(client, join, file_document, patience)
            bootstrap = joining.bootstrap(client, join, patience, credentials.authority)
        else:
            bootstrap = joining.bootstrap(client, join, patience, credentials.authority)
            ports.must_not_be_shared(client.get(join.path))
        joining.warn_of_another_run(client, join, _say)
        return bootstrap


def _dataplane(file: str | None, variables: Sequence[str], name: str | None, mesh: str | None) -> FileDocument | None:
    """The Dataplane in a file, or None if a stored one is named."""
    if file is None:
        if name is None:
            raise Problem("name the proxy to run with --dataplane-file FILE or --name NAME", status=2)
        return None
    if name is not None or mesh is not None:
        raise Problem(
            "--name and --mesh cannot be combined with a file, which contains both",
            "Leave out --name and --mesh.",
            status=2,
        )
    documents, report = file_documents(file_texts([file], variables), known_kinds())
    print_findings(findings_before_write(report))
    if not report.is_valid:
        raise Problem(f"{file} is no valid Dataplane")
    if len(documents) != 1 or documents[0].document.key.type != "Dataplane":
        listing = ", ".join(str(file_document.document.key) for file_document in documents) or "nothing"
        raise Problem(f"{file} must have one Dataplane in it, and nothing else; there is {listing}")
    return documents[0]


def _mesh_join(
    file_document: FileDocument | None, name: str | None, mesh: str | None, folder: Path
) -> joining.MeshJoin:
    if file_document is not None:
        key = file_document.document.key
        return joining.MeshJoin(key.mesh, key.name, str(folder), resource=file_document.text)
    return joining.MeshJoin(mesh or DEFAULT_MESH, name or "", str(folder))


def _system_ca(requested: Path | None) -> str:
    """The requested file, or the first usual one that exists; empty if there is none."""
    if requested is not None and not requested.is_file():
        raise Problem(
            f"{requested} is no file with certificates",
            "Leave out --system-ca to use the file of the system.",
            status=2,
        )
    usual = (requested,) if requested is not None else map(Path, _SYSTEM_CAS)
    return next((str(file.absolute()) for file in usual if file.is_file()), "")


@contextmanager
def _folder(requested: Path | None) -> Iterator[Path]:
    if requested is None:
        with tempfile.TemporaryDirectory(prefix="koguma-dp-") as folder:
            yield Path(folder)
        return
    try:
        requested.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{requested} cannot be used as the work folder: {error.strerror}") from None
    yield requested.resolve()


def _write_bootstrap(bootstrap: str, folder: Path) -> Path:
    """Write the bootstrap to a file that only its owner can read: it may contain a token."""
    file = folder / work_folder.BOOTSTRAP
    try:
        file.touch(0o600)
        file.chmod(0o600)
        file.write_text(bootstrap, encoding="utf-8")
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None
    return file


def _seconds(text: str) -> float:
    try:
        return Duration.parse(text).seconds
    except ValueError as error:
        raise Problem(str(error), status=2) from None


def _say(text: str) -> None:
    typer.echo(f"koguma dp: {text}", err=True)
