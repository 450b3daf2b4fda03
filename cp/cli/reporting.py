"""Commands that end with a sentence and a status where something goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from cp.client.problem import problem_of

P = ParamSpec("P")
R = TypeVar("R")


def reporting_problems(command: Callable[P, R]) -> Callable[P, R]:
    """A command that prints its problems and ends with their status."""

    @functools.wraps(command)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001  # nothing outside of this catches it
            problem = problem_of(error)
            typer.echo(str(problem), err=True)
            raise typer.Exit(problem.status) from None

    return reporting
