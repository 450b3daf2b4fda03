"""The command line: which command is which function.

A command's module is imported when the command is run, or its own help is asked for: nobody who asks for the version
waits for what a control plane needs. So the one line that stands for a command in a list of commands is written here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cp.cli.commands import COMMANDS, GROUPS, Words
from cp.cli.environment import warnings
from cp.cli.options import TextFormat, TextOutput
from cp.cli.reporting import reporting_problems
from cp.model.wording import plain


def version(*, output: TextOutput = TextFormat.TEXT) -> None:
    """Print the version."""
    from cp.cli.output import reply  # noqa: PLC0415  # few commands are this one
    from cp.version import VERSION  # noqa: PLC0415  # asking for it takes longer than most commands need

    reply({"version": VERSION}, f"koguma {VERSION}", output)


def build() -> typer.Typer:
    """The command line, with every command."""
    app = typer.Typer(
        cls=_group(()),
        help="Koguma: a control plane for Envoy that explains itself.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_top)
    return app


def command(words: Words) -> Any:
    """A command of `COMMANDS`, with its options."""
    return _load(words)


def _top(
    *, version_: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False
) -> None:
    for warning in warnings(os.environ):  # noqa: TID251  # names that no setting has
        typer.echo(f"Warning: {warning}", err=True)
    if version_:
        version()
        raise typer.Exit


class _Command(TyperCommand):
    """A command with plain messages about invalid arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = plain(error.message)
            if error.param is not None and error.param.envvar:
                error.param_hint = _with_variables(error.param)
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, which nobody waits for who asks for no help."""
        from cp.cli.examples import example_lines  # noqa: PLC0415  # only help has them

        lines = list(example_lines(tuple(ctx.command_path.split(" ")[1:])))
        if lines:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))


def _with_variables(parameter: Any) -> str:
    """The option that an error is about, and its variables: click writes those as Python does a list."""
    names = " / ".join(f"'{name}'" for name in parameter.opts)
    variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
    return f"{names} (or {', '.join(variables)})"


class _Commands(MutableMapping[str, Any]):
    """The commands of a group, each imported when it is first used."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load((*self._words, name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    @property
    def summaries(self) -> Mapping[str, str]:
        """The summary of each command or subgroup."""
        depth = len(self._words)
        below = (words for words in COMMANDS if words[:depth] == self._words)
        return {words[depth]: _summary(words[: depth + 1]) for words in below}


def _summary(words: Words) -> str:
    return GROUPS[words] if words in GROUPS else COMMANDS[words].summary


def _group(words: Words) -> type[TyperGroup]:
    commands = _Commands(words)

    class Group(TyperGroup):
        """Lists its commands without importing them."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = commands

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            del ctx
            with formatter.section("Commands"):
                formatter.write_dl(list(commands.summaries.items()))

    return Group


def _load(words: Words) -> Any:
    if words in GROUPS:
        return _load_group(words)
    if words not in COMMANDS:
        raise KeyError(words)
    from cp.cli.connection import with_options  # noqa: PLC0415  # TLS and more, which a list of commands does without

    command = COMMANDS[words]
    try:
        function = getattr(importlib.import_module(command.module), command.function)
    except ModuleNotFoundError as error:
        return _typer_command(words[-1], _failing(error), allow_extra_args=True, ignore_unknown_options=True)
    return _typer_command(words[-1], with_options(function))


def _typer_command(name: str, function: Callable[..., None], **context_settings: bool) -> Any:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(name, cls=_Command, context_settings=context_settings)(reporting_problems(function))
    return typer.main.get_command(app)


def _failing(error: ModuleNotFoundError) -> Callable[[], None]:
    """A command in the place of one that cannot be imported: it says why, whatever its arguments are."""

    def fail() -> None:
        """This command is not installed: run it to see what it needs."""
        raise error

    return fail


def _load_group(words: Words) -> Any:
    def callback() -> None:
        """A group does nothing by itself."""

    app = typer.Typer(
        cls=_group(words),
        help=GROUPS[words],
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(callback)
    return typer.main.get_command(app)
