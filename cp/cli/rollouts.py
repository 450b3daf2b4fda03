"""`koguma rollout`: shows how far the rollouts of meshes have come, and pauses, continues or aborts them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.options import Mesh, TableFormat, TableOutput, TextFormat, TextOutput
from cp.cli.output import age, print_data
from cp.cli.tables import table_or
from cp.client.client import Client
from cp.client.failures import RequestRejected, Unreachable
from cp.client.problem import INTERRUPTED, Problem
from cp.model.names import DEFAULT_MESH
from cp.model.wording import few, printable

Data = Mapping[str, Any]

Follow = Annotated[bool, typer.Option("--follow", help="Print the progress of the rollout until its end.")]
Steps = Annotated[
    str | None,
    typer.Option(
        "--rollout",
        metavar="STEPS",
        help="Serve the change to some proxies of each class first, in steps such as 1,10%,100%, and store it once all "
        "steps were good.",
    ),
]
Hold = Annotated[
    str, typer.Option("--hold", metavar="DURATION", help="How long the proxies of each step of --rollout are watched.")
]
Until = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="CONDITION",
        help="What has to hold for the requests at the proxies of each step: '5xx < 1%'. Otherwise the rollout goes "
        "back.",
    ),
]

HOLD: Final = "30s"
_EVERY: Final = 0.5
_PATIENCE: Final = 60.0
"""Seconds for which nobody may answer while a rollout is followed: a control plane may be started again."""

_FIELDS: Final = ("number", "state", "underWay", "course", "resources")
_SHOWN: Final = 10


def listing(*, output: TableOutput = TableFormat.TABLE, api: ApiConnection) -> None:
    """Show the rollout of each mesh: the one that is under way, or the last."""
    with api.client() as client:
        answer = client.answer("/_rollouts", ["items"])
    if output.is_data:
        print_data(answer, output)
        return
    heads = ("MESH", "NUMBER", "STATE", "STEP", "PROXIES", "BEGUN", "BY", "REASON")
    rows = (tuple(map(printable, _row(item))) for item in answer["items"])
    nothing = "there is no rollout to show: `koguma apply --rollout` begins one"
    less, wide = ("BEGUN", "BY"), output is TableFormat.WIDE
    typer.echo(table_or(nothing, heads, rows, less=less, wide=wide), nl=False)


def show(
    *, mesh: Mesh = DEFAULT_MESH, follow: Follow = False, output: TableOutput = TableFormat.TABLE, api: ApiConnection
) -> None:
    """Show the rollout of a mesh: what it changes, how far it has come, and which proxies are served it.

    With --follow it ends with status 0 once the rollout is done, and with 1 if it went back or was aborted.
    """
    with api.client() as client:
        answer = _rollout(client, mesh)
        if follow:
            must_be_done(followed(client, mesh, answer["number"]), answer["number"], is_silent=output.is_data)
            answer = _rollout(client, mesh)
            if not output.is_data:
                return
    if output.is_data:
        print_data(answer, output)
        return
    for line in _lines(answer):
        typer.echo(printable(line))  # Envoy says why it refuses something


def pause(*, mesh: Mesh = DEFAULT_MESH, output: TextOutput = TextFormat.TEXT, api: ApiConnection) -> None:
    """Leave a rollout where it is: no further proxy gets it, and nothing is judged."""
    _command(mesh, "pause", output, api)


def continue_(*, mesh: Mesh = DEFAULT_MESH, output: TextOutput = TextFormat.TEXT, api: ApiConnection) -> None:
    """Continue a rollout that was paused. Its step is watched from the beginning."""
    _command(mesh, "continue", output, api)


def abort(*, mesh: Mesh = DEFAULT_MESH, output: TextOutput = TextFormat.TEXT, api: ApiConnection) -> None:
    """End a rollout: the proxies that are served it go back to what is stored."""
    _command(mesh, "abort", output, api)


def _command(mesh: str, action: str, output: TextFormat, api: ApiConnection) -> None:
    with api.client() as client:
        number = _rollout(client, mesh)["number"]
        answer = client.steer_rollout(mesh, action, number)
    if output is not TextFormat.TEXT:
        print_data(answer, output)
        return
    typer.echo(printable(f"rollout {answer['number']} of mesh {mesh}: {answer['course']}"))


def _rollout(client: Client, mesh: str) -> Data:
    return client.answer(f"/meshes/{mesh}/_rollout", _FIELDS)


def followed(client: Client, mesh: str, number: int) -> Data:
    """A rollout at its end. How it goes on until then is printed."""
    try:
        return _last(client, mesh, number)
    except KeyboardInterrupt:
        hint = f"See it with `koguma rollout show --mesh {mesh} --follow`, end it with `koguma rollout abort`."
        message = f"rollout {number} of mesh {mesh} goes on without being watched from here"
        raise Problem(message, hint, status=INTERRUPTED) from None


def must_be_done(last: Data, number: int, *, is_silent: bool = False) -> None:
    """Print how a rollout has ended, unless that was done. Raises `Problem` if it did not end well."""
    mesh = last["mesh"]
    if last["number"] != number:
        raise Problem(f"rollout {number} of mesh {mesh} has ended, and another one was begun: koguma history tells")
    reason = f": {last['reason']}" if last["reason"] else ""
    if last["state"] != "Done":
        hint = "Nothing was stored, and the proxies that had it go back to what they had."
        raise Problem(f"rollout {number} of mesh {mesh} was {last['course']}{reason}", hint)
    if not is_silent:
        typer.echo(printable(f"rollout {number} of mesh {mesh} is done{reason}"))


def _last(client: Client, mesh: str, number: int) -> Data:
    """A rollout at its end. Each time that it has come further, that is printed."""
    answer: Data = {}
    printed, heard = "", time.monotonic()
    while not answer or (answer["underWay"] and answer["number"] == number):
        if answer:
            time.sleep(_EVERY)
        try:
            answer = _rollout(client, mesh)
        except (Unreachable, RequestRejected) as problem:
            may_pass = isinstance(problem, Unreachable) or problem.may_pass
            if not may_pass or time.monotonic() - heard > _PATIENCE:
                raise
            continue
        heard = time.monotonic()
        line = f"{answer['course']}: {answer['reason']}" if answer["reason"] else str(answer["course"])
        if answer["underWay"] and line != printed:
            printed = line
            typer.echo(printable(printed), err=True)
    return answer


def _row(rollout: Data) -> tuple[str, ...]:
    proxies = f"{len(rollout['proxies'])}/{rollout['reached']}"
    steps = len(rollout["steps"])
    passed = steps if rollout["state"] == "Done" else rollout["step"]  # those that add nobody are passed over
    step = f"{passed}/{steps}"
    begun, reason = age(rollout["begun"]), rollout["reason"] or ""
    return rollout["mesh"], str(rollout["number"]), rollout["state"], step, proxies, begun, rollout["author"], reason


def _lines(rollout: Data) -> Iterator[str]:
    yield f"rollout {rollout['number']} of mesh {rollout['mesh']}: {rollout['course']}"
    if rollout["reason"]:
        yield f"  {rollout['reason']}"
    until = f", until {rollout['until']}" if rollout["until"] else ""
    yield f"begun {age(rollout['begun'])} ago by {rollout['author']}, in this state for {age(rollout['since'])}"
    yield f"steps {', '.join(rollout['steps'])}, each held for {rollout['hold']}{until}"
    for resource in rollout["resources"]:
        yield f"{resource['type']} {resource['mesh']}/{resource['name']} {_CHANGES[resource['change']]}"
    names = rollout["proxies"]
    if names:
        served = "served it" if rollout["underWay"] else "served it at the end"
        yield f"{served}: {few(names, _SHOWN)}"


_CHANGES: Final = {"Created": "is new", "Updated": "is changed", "Deleted": "is deleted"}
