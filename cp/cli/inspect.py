"""`koguma inspect`: the state of proxies and the effect of policies, in a running control plane or in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from cp.cli import proxies, rule_tables
from cp.cli.connection import ApiConnection
from cp.cli.options import Mesh, Offline, Output, OutputFormat, Variables
from cp.cli.output import print_data
from cp.cli.types import folder_of, kind_of
from cp.cli.worlds import dataplane_named, world_of
from cp.client.problem import Problem
from cp.model.names import Key
from cp.model.source import DEFAULT_MESH
from cp.resources.kinds import Kind
from cp.resources.world import World

RULES: Final = "rules"
POLICIES: Final = "policies"

_DATAPLANE: Final = "Dataplane"

What = Annotated[
    str,
    typer.Argument(
        metavar="dataplanes|dataplane|rules|policies|TYPE",
        help="What to show: all proxies, one proxy, its rules, its policies, or the effect of a policy of this type.",
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The name of the Dataplane, or of the policy. Not needed for dataplanes."),
]


def inspect(  # noqa: PLR0913  # an option each
    subject: What,
    name: Name = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    file: Offline = None,
    var: Variables = None,
    output: Output = OutputFormat.TABLE,
    api: ApiConnection,
) -> None:
    """Show what proxies have accepted and rejected, the rules or policies of a proxy, or where a policy has effect."""
    if subject not in {RULES, POLICIES} and kind_of(subject).name == _DATAPLANE:
        _proxies(name, mesh, output, api, offline=bool(file))
        return
    if name is None:
        raise Problem(f"inspect {subject} needs a name", "Add the NAME of a Dataplane or of a policy.", status=2)
    kind = None if subject in {RULES, POLICIES} else _policy_kind(subject)
    answer = _offline(subject, kind, name, mesh, file, var or []) if file else _online(subject, kind, name, mesh, api)
    if output is not OutputFormat.TABLE:
        print_data(answer, output)
    elif kind is not None:
        typer.echo(rule_tables.dataplanes(answer["items"]), nl=False)
    else:
        shown = rule_tables.rules if subject == RULES else rule_tables.policies
        typer.echo(shown(answer), nl=False)


def _proxies(name: str | None, mesh: str, output: OutputFormat, api: ApiConnection, *, offline: bool) -> None:
    """Print the state of all proxies of a mesh, or of one with all that it was sent."""
    if offline:
        raise Problem("files do not contain the state of proxies", "Leave out --file to ask a control plane.", status=2)
    where = folder_of(kind_of(_DATAPLANE), mesh)
    with api.client() as client:
        answer = client.all_pages(f"{where}/_overview") if name is None else client.get(f"{where}/{name}/_delivery")
    if output is not OutputFormat.TABLE:
        print_data(answer, output)
    elif name is None:
        typer.echo(proxies.dataplanes(answer["items"]), nl=False)
    else:
        for line in proxies.delivery(answer):
            typer.echo(line)


def _policy_kind(subject: str) -> Kind:
    kind = kind_of(subject)
    if kind.policy is None:
        hint = "Write dataplanes, dataplane, rules, policies, or a type of policy."
        raise Problem(f"a {kind.name} is no policy", hint)
    return kind


def _online(subject: str, kind: Kind | None, name: str, mesh: str, api: ApiConnection) -> Any:
    with api.client() as client:
        if kind is not None:
            return client.all_pages(f"{folder_of(kind, mesh)}/{name}/_resources/dataplanes")
        return client.get(f"/meshes/{mesh}/dataplanes/{name}/_{subject}")


def _offline(  # noqa: PLR0913, PLR0917  # one argument for each of the command line
    subject: str, kind: Kind | None, name: str, mesh: str, files: Sequence[str], variables: Sequence[str]
) -> Any:
    from cp.insight.inspect import inspect_policies, inspect_rules  # noqa: PLC0415  # only files need it here

    world = world_of(files, variables)
    if kind is not None:
        return _affected(world, kind, name, mesh)
    answer = inspect_rules if subject == RULES else inspect_policies
    return answer(world, dataplane_named(world, mesh, name))


def _affected(world: World, kind: Kind, name: str, mesh: str) -> Any:
    from cp.insight.inspect import affected_proxies  # noqa: PLC0415  # only files need it here

    policy = world.get(Key(kind.name, mesh, name))
    if policy is None:
        names = ", ".join(resource.name for resource in world.table(kind.name, mesh))
        raise Problem(f"there is no valid {kind.name} {name} in mesh {mesh}", f"There is {names}." if names else "")
    items = [proxy.data for proxy in affected_proxies(world, policy)]
    return {"total": len(items), "items": items, "next": None}
