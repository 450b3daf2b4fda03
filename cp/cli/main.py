"""The command line: which command is which function."""

from __future__ import annotations

from typing import Annotated

import typer

from cp.cli import dp, explain, inspect, lint, render, resources, run, validate
from cp.cli.problem import told
from cp.settings import VERSION


def version() -> None:
    """Print the version."""
    typer.echo(f"koguma {VERSION}")


def _plain(help_: str) -> typer.Typer:
    return typer.Typer(
        help=help_,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def build() -> typer.Typer:
    """The command line, with every command."""
    app = _plain("Koguma: a control plane for Envoy that explains itself.")
    app.callback(invoke_without_command=True)(_top)
    app.command("run")(told(run.run))
    proxies = _plain("Proxies beside workloads.")
    proxies.callback()(_nothing)
    proxies.command("run")(told(dp.run))
    proxies.command("grpc-bootstrap")(told(dp.grpc_bootstrap))
    app.add_typer(proxies, name="dp")
    app.command("validate")(told(validate.validate))
    app.command("lint")(told(lint.lint))
    app.command("render")(told(render.render))
    app.command("inspect")(told(inspect.inspect))
    app.command("explain")(told(explain.explain))
    app.command("apply")(told(resources.apply))
    app.command("get")(told(resources.get))
    app.command("delete")(told(resources.delete))
    app.command("version")(version)
    return app


def _top(
    *, version_: Annotated[bool, typer.Option("--version", help="Print the version and end.", is_eager=True)] = False
) -> None:
    if version_:
        version()
        raise typer.Exit


def _nothing() -> None:
    """Proxies beside workloads."""
