"""`koguma generate`: tokens, and the keys that sign them. What is secret goes to standard output and nowhere else."""

from __future__ import annotations

import stat
import sys
import time
import uuid
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cp.access.issue import (
    DataplaneTokenRequest,
    TokenRequest,
    TooLong,
    UserTokenRequest,
    ZoneTokenRequest,
    new_token,
    request_of,
)
from cp.access.keys import SigningKey, UnusableKey, new_private_key, public_pem, read_private_key
from cp.cli.connection import ApiConnection
from cp.cli.options import TextFormat, TextOutput
from cp.cli.output import reply
from cp.client.problem import Problem

ValidFor = Annotated[
    str, typer.Option("--valid-for", metavar="DURATION", help="How long the token is good, such as 24h.")
]
SigningKeyPath = Annotated[
    Path | None,
    typer.Option(
        "--signing-key-path",
        metavar="FILE",
        help="Sign with the key in this file, without a control plane. Needs --kid.",
    ),
]
Kid = Annotated[
    str | None, typer.Option("--kid", metavar="ID", help="The id by which control planes know that signing key.")
]
Name = Annotated[str, typer.Option("--name", help="The proxy. Default: every proxy of the mesh.")]
Mesh = Annotated[str, typer.Option("--mesh", "-m", help="The mesh of the proxy.")]
ProxyType = Annotated[
    str, typer.Option("--proxy-type", metavar="TYPE", help="dataplane, ingress or egress. Default: dataplane.")
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", metavar="NAME=VALUE,VALUE", help="A tag that the proxy must have, and its values. May be repeated."
    ),
]
Workload = Annotated[str, typer.Option("--workload", help="The value of the proxy's label kuma.io/workload.")]
UserName = Annotated[str, typer.Option("--name", help="The person or the program.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A group of the user. May be repeated.")]
Zone = Annotated[str, typer.Option("--zone", help="The zone.")]
Scopes = Annotated[list[str] | None, typer.Option("--scope", help="What the token is for. May be repeated.")]


class KeyFormat(StrEnum):
    """The forms of a signing key."""

    PEM = "pem"
    BASE64 = "pem-base64"


Format = Annotated[
    KeyFormat, typer.Option("--format", help="pem, or pem-base64 as it stands in the `data` of a Secret.")
]
KeyFile = Annotated[Path, typer.Option("--signing-key-path", metavar="FILE", help="The file with the signing key.")]


def dataplane_token(  # noqa: PLR0913  # an option each
    *,
    valid_for: ValidFor,
    name: Name = "",
    mesh: Mesh = "default",
    proxy_type: ProxyType = "",
    tag: Tags = None,
    workload: Workload = "",
    signing_key_path: SigningKeyPath = None,
    kid: Kid = None,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Print a token with which a proxy gets its configuration.

    It is valid for the proxies that have everything that it names. A token that names nothing is valid for every
    proxy of the mesh.
    """
    data = {
        "name": name,
        "mesh": mesh,
        "tags": _tags(tag or ()),
        "type": proxy_type,
        "workload": workload,
        "validFor": valid_for,
    }
    _print_token(DataplaneTokenRequest, data, _Signing(signing_key_path, kid, api), output)


def user_token(  # noqa: PLR0913  # an option each
    *,
    name: UserName,
    valid_for: ValidFor,
    group: Groups = None,
    signing_key_path: SigningKeyPath = None,
    kid: Kid = None,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Print a token with which a person or a program calls the HTTP API."""
    data = {"name": name, "groups": group or [], "validFor": valid_for}
    _print_token(UserTokenRequest, data, _Signing(signing_key_path, kid, api), output)


def zone_token(  # noqa: PLR0913  # an option each
    *,
    zone: Zone,
    valid_for: ValidFor,
    scope: Scopes = None,
    signing_key_path: SigningKeyPath = None,
    kid: Kid = None,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Print a token for the services of a zone. Koguma itself asks for none: it is for other control planes."""
    data = {"zone": zone, "scope": scope or [], "validFor": valid_for}
    _print_token(ZoneTokenRequest, data, _Signing(signing_key_path, kid, api), output)


def signing_key(*, format_: Format = KeyFormat.PEM, output: TextOutput = TextFormat.TEXT) -> None:
    """Print a new key that can sign tokens.

    Store it as a Secret with the next number, such as user-token-signing-key-2: it signs from then on. Tokens of
    earlier keys are good until their Secret is deleted.
    """
    key = new_private_key()
    _print("key", b64encode(key).decode() if format_ is KeyFormat.BASE64 else key.decode(), output)


def public_key(*, signing_key_path: KeyFile, output: TextOutput = TextFormat.TEXT) -> None:
    """Print the public half of a signing key. A control plane that has it verifies tokens and cannot make any."""
    _print("key", public_pem(_read(signing_key_path, "1").key), output)


@dataclass(frozen=True, slots=True)
class _Signing:
    """Who signs a token: a key in a file, or the control plane."""

    file: Path | None
    kid: str | None
    api: ApiConnection


def _print_token(schema: type[TokenRequest], data: dict[str, Any], signing: _Signing, output: TextFormat) -> None:
    if (signing.file is None) != (signing.kid is None):
        raise Problem("--signing-key-path and --kid belong together", "Give both, or ask a control plane with neither.")
    if signing.file is not None and signing.kid is not None:
        _print("token", _signed(schema, data, _read(signing.file, signing.kid)), output)
        return
    with signing.api.client() as client:
        _print("token", client.post(f"/tokens/{schema.purpose}", data), output)


def _signed(schema: type[TokenRequest], data: dict[str, Any], key: SigningKey) -> str:
    request, faults = request_of(schema, data)
    if request is None or faults:
        raise Problem("\n  ".join(["there can be no such token", *map(str, faults)]))
    try:
        return new_token(request, key, now=time.time(), token_id=str(uuid.uuid4()))
    except TooLong as error:
        raise Problem(str(error)) from None


def _read(file: Path, kid: str) -> SigningKey:
    try:
        key = read_private_key(file.read_bytes())
        is_open = file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except OSError as error:
        raise Problem(f"{file} cannot be read: {error.strerror}") from None
    except UnusableKey as error:
        raise Problem(f"{file} {error}", "`koguma generate signing-key` makes one.") from None
    if is_open:
        typer.echo(f"Warning: {file} can be read by others, who can make tokens with it; chmod 600 {file}", err=True)
    return SigningKey(kid, key)


def _tags(tags: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for tag in tags:
        name, equals, value = tag.partition("=")
        if not name or not equals or not value:
            raise Problem(f"`{tag}` is not a tag", "Write it as --tag kuma.io/service=web,web-api.")
        values.setdefault(name, []).extend(value.split(","))
    return values


def _print(name: str, text: str, output: TextFormat) -> None:
    """Print a text without ending its line, so that a file has it as it is. On a terminal the prompt comes after it."""
    reply({name: text}, text, output, ends_line=sys.stdout.isatty() and not text.endswith("\n"))
