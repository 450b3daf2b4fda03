"""Three things to try while the demo is up: commands to copy, and what to see."""

import sys
from dataclasses import dataclass
from pathlib import Path

from examples.demo.plan import API_PORT, HERE, Plan


@dataclass(frozen=True, slots=True)
class Try:
    """One thing to try."""

    what: str
    commands: tuple[str, ...]


def tries(plan: Plan, control_plane: int) -> tuple[Try, ...]:
    """What to try with this plan; `control_plane` is the id of its process."""
    frontend = plan.sidecar("frontend-1").url
    status = "curl -sS -o /dev/null -w '%{http_code} after %{time_total} s\\n'"
    shorter = f"sed 's/requestTimeout: 2s/requestTimeout: 300ms/' {_here(HERE / 'resources/timeouts.yaml')}"
    return (
        Try(
            "Give the slow route of frontend-1 a shorter timeout: 504 after 0.3 s, where it was 2 s",
            (f"{shorter} | {_koguma(plan)} apply -f -", f"{status} '{frontend}/slow-endpoint?delay=5'"),
        ),
        Try(
            "Retry what fails on that route alone: 200 there in spite of two failures, 503 elsewhere",
            (
                f"{_koguma(plan)} apply -f {_here(HERE / 'try/retries.yaml')}",
                f"{status} '{frontend}/slow-endpoint?fail=2&id=there'",
                f"{status} '{frontend}/?fail=2&id=elsewhere'",
            ),
        ),
        Try(
            "Take the control plane away: requests go on",
            (f"kill {control_plane}", f"{status} {frontend}/"),
        ),
    )


def _koguma(plan: Plan) -> str:
    koguma = _here(Path(sys.executable).with_name("koguma"))
    return koguma if plan.port(API_PORT) == API_PORT else f"KOGUMA_ADDRESS={plan.api} {koguma}"


def _here(path: Path) -> str:
    """A path as it is typed in the folder of the project."""
    root = HERE.parents[1]
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
