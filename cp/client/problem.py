"""Problems: sentences that say what went wrong and what to do next. No user sees a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

P = ParamSpec("P")
R = TypeVar("R")


class Problem(Exception):
    """Why a command failed, and a hint what to do about it. The command ends with the status."""

    def __init__(self, message: str, hint: str = "", status: int = 1) -> None:
        self.message, self.hint, self.status = message, hint, status
        super().__init__(message)

    def __str__(self) -> str:
        return f"Error: {self.message}\n{self.hint}" if self.hint else f"Error: {self.message}"


def reporting_problems(command: Callable[P, R]) -> Callable[P, R]:
    """A command that prints its problems and ends with their status."""

    @functools.wraps(command)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Problem as problem:
            typer.echo(str(problem), err=True)
            raise typer.Exit(problem.status) from None
        except Exception as error:  # noqa: BLE001  # nothing outside of this catches it
            typer.echo(str(_fault(error)), err=True)
            raise typer.Exit(1) from None

    return reporting


def _fault(error: Exception) -> Problem:
    """The problem that reports a fault of Koguma. The trace goes to a file, for a report."""
    import tempfile  # noqa: PLC0415  # hardly any command ends in a fault of ours
    import traceback  # noqa: PLC0415  # the same

    with tempfile.NamedTemporaryFile("w", prefix="koguma-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    message = f"this is a fault of koguma itself: {type(error).__name__}: {error}"
    return Problem(message, f"Please report it with the contents of {file.name}.")
