"""How commands reach the control plane: where it is, who calls, and whom to trust, as options that they share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from cp.cli.options import authority_option, token_option
from cp.client.credentials import NO_CREDENTIALS, Credentials, authority_in
from cp.client.problem import Problem
from cp.model.hosts import is_loopback

if TYPE_CHECKING:
    from cp.client.client import Client

ADDRESS: Final = "http://localhost:5681"

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar=["KOGUMA_ADDRESS"],
        metavar="URL",
        help="The URL of the control plane's HTTP API, such as https://cp.example:5682.",
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
class ApiConnection:
    """The HTTP API of a control plane, as a command line names it."""

    address: str = ADDRESS
    credentials: Credentials = NO_CREDENTIALS

    @contextmanager
    def client(self) -> Iterator[Client]:
        from cp.client.client import connect  # noqa: PLC0415  # most commands can answer from files alone

        warn_of_plain_text(self.address, self.credentials, lambda text: typer.echo(text, err=True))
        with connect(self.address, credentials=self.credentials) as client:
            yield client


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its argument of type `ApiConnection`, if it has one."""
    signature = inspect.signature(command, eval_str=True)
    name = next((name for name, given in signature.parameters.items() if given.annotation is ApiConnection), None)
    if name is None:
        return command

    @functools.wraps(command)
    def connected(**options: Any) -> None:
        names = inspect.signature(_connection).parameters
        own = {option: value for option, value in options.items() if option not in names}
        command(**own, **{name: _connection(**{option: options[option] for option in names})})

    options_of_command = [given for given in signature.parameters.values() if given.name != name]
    parameters = [*options_of_command, *inspect.signature(_connection, eval_str=True).parameters.values()]
    connected.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # PEP 362 has it
    connected.__annotations__ = {given.name: given.annotation for given in parameters}
    return connected


def _connection(
    *, address: Address = ADDRESS, token_file: TokenFile = None, token: Token = "", ca_cert_file: AuthorityFile = None
) -> ApiConnection:
    authority = "" if ca_cert_file is None else authority_in(ca_cert_file)
    return ApiConnection(address, credentials_of(token_file, token, authority))


def credentials_of(token_file: Path | None, token: str, authority: str, *, verifies: bool = True) -> Credentials:
    if token_file is not None and token:
        raise Problem("a token and a file with a token were given", "Leave out one of them.", status=2)
    file = "" if token_file is None else str(token_file.absolute())
    return Credentials(token, file, authority, verifies=verifies)


def warn_of_plain_text(address: str, credentials: Credentials, say: Callable[[str], None]) -> None:
    host = urlsplit(address).hostname or ""
    if not credentials.is_empty and not address.startswith("https://") and not is_loopback(host):
        say(f"Warning: the token is sent to {address} in plain text; write https://HOST:5682")
