"""Problems: sentences that say what went wrong and what to do next. No user sees a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from cp.model.wording import printable

INTERRUPTED: Final = 130
"""The status of a command that somebody interrupts, as shells have it: 128 and the number of the signal."""


class Problem(Exception):
    """Why a command failed, and a hint what to do about it. The command ends with the status."""

    def __init__(self, message: str, hint: str = "", status: int = 1) -> None:
        self.message, self.hint, self.status = message, hint, status
        super().__init__(message)

    def __str__(self) -> str:
        text = f"Error: {self.message}\n{self.hint}" if self.hint else f"Error: {self.message}"
        return "\n".join(map(printable, text.split("\n")))


def problem_of(error: Exception) -> Problem:
    """The problem to print for an error: itself, a library that is not installed, or a fault of Koguma."""
    if isinstance(error, ModuleNotFoundError) and _is_of_others(error):
        return missing_library(error)
    return error if isinstance(error, Problem) else _fault(error)


def missing_library(error: ModuleNotFoundError, extra: str = "cp") -> Problem:
    """What to install for something that a machine with a proxy can do without (record 0081)."""
    needed = "the libraries of the control plane, which are" if extra == "cp" else f"the library {error.name}, which is"
    how = "Install the package koguma-cp." if is_debian_package() else f"Install with pip install 'koguma[{extra}]'."
    return Problem(f"this needs {needed} not installed", how)


def is_debian_package() -> bool:
    """Whether this Koguma is the one of our Debian packages, which have its libraries in a folder of their own."""
    return Path(sys.prefix).parts[-3:] == ("usr", "lib", "koguma")


def _is_of_others(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] not in {"", "cp", "generators", "koguma"}


def _fault(error: Exception) -> Problem:
    """The problem that reports a fault of Koguma. The trace goes to a file, for a report."""
    import tempfile  # noqa: PLC0415  # hardly any command ends in a fault of ours
    import traceback  # noqa: PLC0415  # the same

    with tempfile.NamedTemporaryFile("w", prefix="koguma-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    message = f"this is a fault of koguma itself: {type(error).__name__}: {error}"
    return Problem(message, f"Please report it with the contents of {file.name}.")
