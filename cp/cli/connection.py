"""How commands reach the control plane: where it is, who calls, and whom to trust, as options that they share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from cp.cli.contexts import KnownControlPlane, read_config
from cp.cli.options import authority_option, token_option
from cp.client.credentials import NO_CREDENTIALS, Credentials, authority_in
from cp.client.problem import Problem
from cp.model.hosts import is_loopback

if TYPE_CHECKING:
    from cp.client.client import Client

ADDRESS: Final = "http://localhost:5681"

_UNREADABLE: Final = (KeyError, TypeError, AttributeError, IndexError, ValueError)

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar=["KOGUMA_ADDRESS"],
        metavar="URL",
        help="The URL of the control plane's HTTP API, such as https://cp.example:5682. Of several control planes on "
        f"one store, separated by commas, the first that can be reached is asked. Default: that of the context, or "
        f"{ADDRESS}.",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar=["KOGUMA_CONTEXT"],
        metavar="NAME",
        help="A control plane of `koguma config control-planes list`, with its token and its authority. Default: the "
        "one that is current there.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar=["KOGUMA_TOKEN_FILE"],
        metavar="FILE",
        help="A file with a user token (koguma generate user-token). A caller on the control plane's machine needs "
        "none.",
    ),
]
Token = Annotated[str, token_option("--token", "KOGUMA_TOKEN")]
AuthorityFile = Annotated[Path | None, authority_option("KOGUMA_CA_CERT_FILE", "what this machine trusts")]


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the HTTP API of a control plane is, and what a caller shows there."""

    address: str = ADDRESS
    credentials: Credentials = NO_CREDENTIALS


@dataclass(frozen=True, slots=True)
class ApiConnection:
    """The HTTP API of a control plane, as a command line names it. It is looked up when a command needs it."""

    access: Callable[[], ApiAccess]

    @contextmanager
    def client(self, patience: float = 60.0) -> Iterator[Client]:
        from cp.client.api_calls import addresses_in  # noqa: PLC0415  # most commands can answer from files alone
        from cp.client.client import Client  # noqa: PLC0415  # the same

        access = self.access()
        addresses_in(access.address)
        warn_of_plain_text(access.address, access.credentials, lambda text: typer.echo(text, err=True))
        if not access.credentials.verifies:
            typer.echo(f"Warning: the certificate of {access.address} is not verified (skipVerify)", err=True)
        if access.credentials.client_certificate and "https://" not in access.address:
            typer.echo(f"Warning: {access.address} is not shown clientCertFile, as there is no TLS", err=True)
        yield Client(access.address, patience, access.credentials)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What a command line and the environment say of the control plane."""

    address: str = ""
    context: str = ""
    token_file: Path | None = None
    token: str = field(default="", repr=False)
    ca_cert_file: Path | None = None
    typed: frozenset[str] = frozenset()
    """Those of them that stand on the command line."""

    def access(self) -> ApiAccess:
        """Raises `Problem`."""
        known = self._context()
        if known is None:
            authority = "" if self.ca_cert_file is None else authority_in(self.ca_cert_file)
            return ApiAccess(self.address or ADDRESS, credentials_of(self.token_file, self.token, authority))
        return self._access_by(known)

    def _context(self) -> KnownControlPlane | None:
        """The control plane of a context; None if an address is named, or there is no context.

        What stands on the command line goes before the environment, and this before the file.
        """
        if {"address", "context"} <= self.typed:
            raise Problem("--address and --context each name a control plane", "Leave out one of them.", status=2)
        if self.address and "context" not in self.typed:
            return None
        config = read_config()
        name = self.context or config.current
        return config.named(name) if name else None

    def _access_by(self, known: KnownControlPlane) -> ApiAccess:
        """With the credentials of the context. Those of the environment are for another control plane."""
        known.must_be_understood()
        file, token, authority = (
            getattr(self, name) if name in self.typed else None for name in ("token_file", "token", "ca_cert_file")
        )
        if file is None and not token:
            file, token = Path(known.token_file) if known.token_file else None, known.token
        authority = authority or (Path(known.authority_file) if known.authority_file else None)
        pem = "" if authority is None else authority_in(authority)
        credentials = replace(
            credentials_of(file, token or "", pem, verifies=known.verifies),
            client_certificate=known.client_certificate,
            client_key=known.client_key,
            further_headers=known.headers,
        )
        return ApiAccess(known.url, credentials)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its argument of type `ApiConnection`, if it has one."""
    signature = inspect.signature(command, eval_str=True)
    name = next((name for name, given in signature.parameters.items() if given.annotation is ApiConnection), None)
    if name is None:
        return command
    of_connection = inspect.signature(_options, eval_str=True).parameters

    @functools.wraps(command)
    def connected(*, invocation: typer.Context, **options: Any) -> None:
        own = {option: value for option, value in options.items() if option not in of_connection}
        typed = frozenset(option for option in of_connection if _is_typed(invocation, option))
        given = ConnectionOptions(**{option: options[option] for option in of_connection}, typed=typed)
        connection = ApiConnection(given.access)
        try:
            command(**own, **{name: connection})
        except _UNREADABLE:  # an answer of an unknown form: a fault of ours, unless a foreign program answers
            _must_not_be_foreign(connection)
            raise

    parameters = [
        *(given for given in signature.parameters.values() if given.name != name),
        *of_connection.values(),
        inspect.Parameter("invocation", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
    ]
    connected.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # PEP 362 has it
    connected.__annotations__ = {given.name: given.annotation for given in parameters}
    return connected


def _must_not_be_foreign(connection: ApiConnection) -> None:
    """Raise `NoControlPlane` if another program than a control plane answers."""
    from cp.client.failures import NoControlPlane  # noqa: PLC0415  # hardly any command needs it

    with connection.client() as client:
        try:
            client.must_be_control_plane()
        except NoControlPlane:
            raise
        except Problem:
            return  # nothing answers now, so the fault may be ours


def _is_typed(invocation: typer.Context, option: str) -> bool:
    source = invocation.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _options(
    *,
    address: Address = "",
    context: Context = "",
    token_file: TokenFile = None,
    token: Token = "",
    ca_cert_file: AuthorityFile = None,
) -> None:
    """The options that every command has that asks a control plane."""


def source_connection(address: str, token_file: Path | None, ca_cert_file: Path | None) -> ApiConnection:
    """A control plane of somebody else's, from which a mesh is read: it gets none of the credentials for ours."""
    authority = "" if ca_cert_file is None else authority_in(ca_cert_file)
    credentials = credentials_of(token_file, "", authority)
    access = ApiAccess(address, replace(credentials, authority_option="--source-ca-cert-file", address_option=""))
    return ApiConnection(lambda: access)


def credentials_of(token_file: Path | None, token: str, authority: str, *, verifies: bool = True) -> Credentials:
    if token_file is not None and token:
        raise Problem("a token and a file with a token were given", "Leave out one of them.", status=2)
    file = "" if token_file is None else str(token_file.absolute())
    return Credentials(token, file, authority, verifies=verifies)


def warn_of_plain_text(address: str, credentials: Credentials, say: Callable[[str], None]) -> None:
    secrets = [] if credentials.is_empty else ["the token is"]
    secrets += [f"the header {name} is" for name, _ in credentials.further_headers]
    for url in map(str.strip, address.split(",")):
        if url.startswith("https://") or is_loopback(urlsplit(url).hostname or ""):
            continue
        for secret in secrets:
            say(f"Warning: {secret} sent to {url} in plain text; write https://HOST:5682")
