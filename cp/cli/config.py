"""`koguma config`: which control planes there are, and which of them commands ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from cp.cli.connection import ApiAccess, ApiConnection, credentials_of
from cp.cli.contexts import (
    ClientConfig,
    KnownControlPlane,
    config_file,
    is_open_to_others,
    read_config,
    write_config,
)
from cp.cli.options import DataFormat, DataOutput, TableFormat, TableOutput, TextFormat, TextOutput
from cp.cli.output import print_data, reply
from cp.cli.tables import table_or
from cp.client.api_calls import addresses_in
from cp.client.credentials import authority_in
from cp.client.problem import Problem
from cp.model.wording import without_user

_PATIENCE: Final = 10.0

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The name by which you call it.")]
Url = Annotated[str, typer.Option("--address", metavar="URL", help="The URL of its HTTP API.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with your token for it, read whenever it is called."),
]
Token = Annotated[
    str, typer.Option("--token", metavar="TOKEN", help="The token itself, which is kept in the file of control planes.")
]
AuthConf = Annotated[
    list[str] | None,
    typer.Option("--auth-conf", metavar="token=TOKEN", help="The token, as kumactl takes it; with --auth-type=tokens."),
]
AuthType = Annotated[
    str, typer.Option("--auth-type", metavar="tokens", help="As kumactl takes it. There is no other type.")
]
AuthorityFile = Annotated[
    Path | None, typer.Option("--ca-cert-file", metavar="FILE", help="The authority of its certificate.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the control plane that has the name.")]
SkipCheck = Annotated[bool, typer.Option("--skip-check", help="Do not ask it whether it is a control plane.")]


def add(  # noqa: PLR0913  # an option each
    *,
    name: Name,
    address: Url,
    token_file: TokenFile = None,
    token: Token = "",
    auth_type: AuthType = "",
    auth_conf: AuthConf = None,
    ca_cert_file: AuthorityFile = None,
    overwrite: Overwrite = False,
    skip_check: SkipCheck = False,
    output: TextOutput = TextFormat.TEXT,
) -> None:
    """Remember a control plane, and ask it from now on.

    The file ~/.koguma/config has all of them, and only its owner can read it.
    """
    config = read_config()
    if config.has(name) and not overwrite:
        raise Problem(f"there is a control plane {name} already", "Take another name, or replace it with --overwrite.")
    addresses_in(address)
    token = token or _token_in(auth_type, auth_conf or [])
    known = KnownControlPlane(name, address, token, _absolute(token_file), _absolute(ca_cert_file))
    authority = "" if ca_cert_file is None else authority_in(ca_cert_file)
    access = ApiAccess(address, credentials_of(token_file, token, authority))
    if not skip_check:
        with ApiConnection(lambda: access).client(_PATIENCE) as client:
            client.answer("/", ["product", "version"])
    write_config(config.adding(known))
    reply({"name": name, "address": address}, f"control plane {name} is added, and asked from now on", output)


def list_(*, output: TableOutput = TableFormat.TABLE) -> None:
    """List the control planes that are remembered, and which of them is asked."""
    config = read_config()
    items = [
        {
            "active": name == config.current,
            "name": name,
            "address": without_user(known.url),
            "token": _token_source(known),
        }
        for name, known in config.control_planes.items()
    ]
    if output.is_data:
        print_data({"items": items}, output)
        return
    rows = [("*" if item["active"] else "", str(item["name"]), str(item["address"])) for item in items]
    nothing = "no control plane is remembered: `koguma config control-planes add` does it"
    typer.echo(table_or(nothing, ("ACTIVE", "NAME", "ADDRESS"), rows, wide=output is TableFormat.WIDE), nl=False)
    _warn_of_mode(config)


def switch(*, name: Name, output: TextOutput = TextFormat.TEXT) -> None:
    """Ask another control plane from now on."""
    config = read_config()
    known = config.named(name)
    write_config(config.using(name))
    address = without_user(known.url)
    reply({"name": name, "address": address}, f"control plane {name} at {address} is asked from now on", output)


def remove(*, name: Name, output: TextOutput = TextFormat.TEXT) -> None:
    """Forget a control plane, with its token. If it is the one that is asked, none is from now on.

    Where another context of the file has the same control plane, its token stays for that one.
    """
    config = read_config()
    known = config.named(name)
    write_config(config.removing(name))
    reply({"name": name, "address": without_user(known.url)}, f"control plane {name} is forgotten", output)


def view(*, output: DataOutput = DataFormat.YAML) -> None:
    """Print the file of control planes, without what is secret in it."""
    config = read_config()
    print_data(config.shown, output)
    _warn_of_mode(config)


def _token_in(auth_type: str, pairs: list[str]) -> str:
    """The token as kumactl's options name it."""
    if auth_type not in {"", "tokens"}:
        raise Problem(f"--auth-type: `{auth_type}` is not supported", "Write tokens, or leave it out.", status=2)
    conf = dict(pair.partition("=")[::2] for pair in pairs)
    if set(conf) - {"token"}:
        raise Problem("--auth-conf: only token=TOKEN is understood", status=2)
    return conf.get("token", "")


def _absolute(file: Path | None) -> str:
    return "" if file is None else str(file.absolute())


def _token_source(known: KnownControlPlane) -> str:
    return "file" if known.token_file else "kept" if known.token else "none"


def _warn_of_mode(config: ClientConfig) -> None:
    if is_open_to_others() and any(known.has_secrets for known in config.control_planes.values()):
        file = config_file()
        typer.echo(f"Warning: {file} can be read by others, and there are secrets in it; chmod 600 {file}", err=True)
