"""`koguma dp`: runs the proxy of a workload, or gives a gRPC client that needs no proxy what it reads."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from cp.agent import envoys, joining, supervise
from cp.agent.certificate_folder import CertificateFolder
from cp.agent.retrying import RetryTime
from cp.cli.connection import ADDRESS, credentials_of, warn_of_plain_text
from cp.cli.findings import findings_before_write, print_findings
from cp.cli.options import DataFormat, DataOutput, WorkDir, authority_option, token_option
from cp.cli.output import print_data
from cp.client.api_calls import addresses_in
from cp.client.client import Client
from cp.client.credentials import Credentials, authority_in
from cp.client.files import FileDocument, file_documents, file_texts
from cp.client.problem import Problem, missing_library
from cp.model.duration import Duration
from cp.model.names import DEFAULT_MESH
from cp.resources.dataplane import DATAPLANE
from cp.resources.kinds import Kinds

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
        help="The URL of the control plane's HTTP API. Of several control planes on one store, separated by commas, "
        "the agent and Envoy go to the next when one is gone.",
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
        help="How long the proxy drains connections when it is told to end. "
        "It ends earlier if none is left, unless it is a gateway.",
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

GrpcClientName = Annotated[
    str, typer.Argument(metavar="NAME", help="A stored Dataplane with the label `koguma.io/client: grpc`.")
]

_SYSTEM_CAS: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # CentOS, Amazon Linux
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def run(  # noqa: PLR0913  # an option each
    context: typer.Context,
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
    from cp.agent import run as agent  # noqa: PLC0415  # the other commands need less of it

    envoy = envoys.find(envoy_path)
    orders = agent.AgentOrders(
        address=_in_any_order(cp_address),
        credentials=_credentials(dataplane_token_file, dataplane_token, ca_cert_file, ca_cert, skip_verify=skip_verify),
        dataplane=_proxy_dataplane(dataplane_file, dataplane_var or [], name, mesh),
        envoy=str(envoy),
        flags=envoys.EnvoyFlags(envoy_log_level, concurrency, round(_seconds(listener_drain_time))),
        drain_seconds=_seconds(drain_time),
        retry_seconds=_seconds(retry_max_duration),
        system_ca=_system_ca(system_ca),
        work_dir="" if work_dir is None else str(work_dir),
    )
    warn_of_plain_text(cp_address, orders.credentials, _say)
    # Where `koguma` was started by itself; a process that runs it for something else does not become another program.
    if (execv := context.find_root().obj) is not None:
        agent.become(orders, execv)
    raise typer.Exit(agent.run(orders))


def _credentials(
    token_file: Path | None, token: str, authority_file: Path | None, authority: str, *, skip_verify: bool
) -> Credentials:
    text = authority if authority_file is None else authority_in(authority_file)
    credentials = credentials_of(token_file, token, text, verifies=not skip_verify)
    return replace(credentials, address_option="--cp-address", issuing_command="koguma generate dataplane-token")


def grpc_bootstrap(  # noqa: PLR0913  # an option each
    *,
    name: GrpcClientName,
    mesh: ProxyMesh = None,
    cp_address: ControlPlane = ADDRESS,
    dataplane_token_file: TokenFile = None,
    ca_cert_file: AuthorityFile = None,
    certificates_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder in which `koguma dp certificates` keeps the client's certificate. Default: the client has "
            "none, and speaks plain text.",
        ),
    ] = None,
    skip_verify: SkipVerify = False,
    retry_max_duration: RetryFor = "5m",
    output: DataOutput = DataFormat.JSON,
) -> None:
    """Print the bootstrap of a gRPC client without a proxy, for the file that GRPC_XDS_BOOTSTRAP names.

    It names the files with the token, the authority and certificates, which the library reads itself.
    """
    patience = RetryTime(_seconds(retry_max_duration), _say)
    credentials = _credentials(dataplane_token_file, "", ca_cert_file, "", skip_verify=skip_verify)
    files = None if certificates_dir is None else CertificateFolder(certificates_dir).file_paths
    grpc_client = _grpc_client(name, mesh, credentials, ca_cert_file, files)
    print_data(_bootstrap_of_client(cp_address, grpc_client, credentials, patience), output)


def certificates(  # noqa: PLR0913  # an option each
    *,
    name: GrpcClientName,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The folder for the files. It is made if it is not there.")
    ],
    mesh: ProxyMesh = None,
    cp_address: ControlPlane = ADDRESS,
    dataplane_token_file: TokenFile = None,
    ca_cert_file: AuthorityFile = None,
    once: Annotated[bool, typer.Option(help="End as soon as the files are there, and renew nothing.")] = False,
    retry_max_duration: RetryFor = "5m",
) -> None:
    """Keep the certificate of a gRPC client without a proxy in files, in the foreground.

    In `DIR/current` are its certificate, its key, and the roots that it trusts. All three are replaced at once, long
    before they expire. Only the user who runs this can read them, so it is the user of the client.
    """
    try:
        from cp.agent.client_secrets import ClientSecretSource, SecretKeeper  # noqa: PLC0415  # gRPC is slow to import
    except ModuleNotFoundError as error:
        raise missing_library(error, "certificates") from None
    patience = RetryTime(_seconds(retry_max_duration), _say)
    credentials = _credentials(dataplane_token_file, "", ca_cert_file, "", skip_verify=False)
    grpc_client = _grpc_client(name, mesh, credentials, ca_cert_file)
    bootstrap = _bootstrap_of_client(cp_address, grpc_client, credentials, patience)
    trusted = credentials.authority or _trusted_by_system()
    source = ClientSecretSource.of(bootstrap, grpc_client.mesh, trusted)
    chance = secrets.SystemRandom().random
    keeper = SecretKeeper(source, credentials, CertificateFolder(directory), _say, chance)
    with suppress(SystemExit, KeyboardInterrupt), supervise.tidied_up():  # whoever ends it means no harm
        keeper.run(threading.Event(), once=once)


def _grpc_client(
    name: str,
    mesh: str | None,
    credentials: Credentials,
    authority_file: Path | None,
    files: Mapping[str, str] | None = None,
) -> joining.GrpcClient:
    authority = str(authority_file.absolute()) if authority_file else ""
    return joining.GrpcClient(mesh or DEFAULT_MESH, name, credentials.token_file, authority, files)


def _bootstrap_of_client(
    address: str, grpc_client: joining.GrpcClient, credentials: Credentials, patience: RetryTime
) -> Any:
    addresses = _in_any_order(address)
    warn_of_plain_text(addresses, credentials, _say)
    client = Client(addresses, credentials=credentials)
    return json.loads(joining.grpc_bootstrap(client, grpc_client, patience, credentials.authority))


def _in_any_order(addresses: str) -> str:
    """Proxies do not all begin with the same control plane. Raises `Problem` if one is no address."""
    shuffled = list(addresses_in(addresses))
    secrets.SystemRandom().shuffle(shuffled)
    return ",".join(shuffled)


def _trusted_by_system() -> str:
    """The authorities that this machine trusts, in PEM; empty if they are in no usual file."""
    file = _system_ca(None)
    return Path(file).read_text(encoding="utf-8") if file else ""


def _proxy_dataplane(
    file: str | None, variables: Sequence[str], name: str | None, mesh: str | None
) -> joining.ProxyDataplane:
    """The Dataplane in a file, or the stored one that is named."""
    if file is None:
        if name is None:
            raise Problem("name the proxy to run with --dataplane-file FILE or --name NAME", status=2)
        return joining.ProxyDataplane(mesh or DEFAULT_MESH, name)
    if name is not None or mesh is not None:
        raise Problem(
            "--name and --mesh cannot be combined with a file, which contains both",
            "Leave out --name and --mesh.",
            status=2,
        )
    documents, report = file_documents(file_texts([file], variables), Kinds(DATAPLANE))
    if [file_document.document.key.type for file_document in documents] not in ([], ["Dataplane"]):
        raise _no_dataplane(file, documents)
    print_findings(findings_before_write(report))
    if not report.is_valid:
        raise Problem(f"{file} is no valid Dataplane")
    if not documents:
        raise _no_dataplane(file, documents)
    return _registered(documents[0])


def _registered(file_document: FileDocument) -> joining.ProxyDataplane:
    key, data = file_document.document.key, file_document.document.data
    return joining.ProxyDataplane(key.mesh, key.name, file_document.text, file_document.location, dict(data))


def _no_dataplane(file: str, documents: Sequence[FileDocument]) -> Problem:
    listing = ", ".join(str(file_document.document.key) for file_document in documents) or "nothing"
    return Problem(f"{file} must have one Dataplane in it, and nothing else; there is {listing}")


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


def _seconds(text: str) -> float:
    try:
        return Duration.parse(text).seconds
    except ValueError as error:
        raise Problem(str(error), status=2) from None


def _say(text: str) -> None:
    typer.echo(f"koguma dp: {text}", err=True)
