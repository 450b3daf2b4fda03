"""`koguma inspect`: what policies come to, in a running control plane or in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from cp.cli import rule_tables
from cp.cli.client import connect
from cp.cli.options import ADDRESS, Address, Format, Mesh, Output, Variables
from cp.cli.output import print_data
from cp.cli.problem import Problem
from cp.cli.render import found, world_of
from cp.cli.types import folder_of, kind_of
from cp.inspect import affected, inspect_policies, inspect_rules
from cp.model.names import Key
from cp.model.source import DEFAULT_MESH
from cp.resources.kinds import Kind
from cp.resources.world import World

RULES: Final = "rules"
POLICIES: Final = "policies"

What = Annotated[
    str,
    typer.Argument(metavar="rules|policies|TYPE", help="The rules or the policies of a proxy, or a type of policy."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the Dataplane, or of the policy.")]
Offline = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Files, in place of a running control plane."),
]


def inspect(  # noqa: PLR0913  # an option each
    what: What,
    name: Name,
    *,
    mesh: Mesh = DEFAULT_MESH,
    file: Offline = None,
    var: Variables = None,
    output: Output = Format.TABLE,
    address: Address = ADDRESS,
) -> None:
    """Show the rules or policies of a proxy, or the proxies of a policy and what of it survives there."""
    kind = None if what in {RULES, POLICIES} else _policy_kind(what)
    answer = _offline(what, kind, name, mesh, file, var or []) if file else _asked(what, kind, name, mesh, address)
    if output is not Format.TABLE:
        print_data(answer, output)
    elif kind is not None:
        typer.echo(rule_tables.dataplanes(answer["items"]), nl=False)
    else:
        shown = rule_tables.rules if what == RULES else rule_tables.policies
        typer.echo(shown(answer), nl=False)


def _policy_kind(what: str) -> Kind:
    kind = kind_of(what)
    if kind.policy is None:
        raise Problem(f"a {kind.name} is no policy", "Write rules, policies, or a type of policy.")
    return kind


def _asked(what: str, kind: Kind | None, name: str, mesh: str, address: str) -> Any:
    with connect(address) as client:
        if kind is not None:
            return client.get(f"{folder_of(kind, mesh)}/{name}/_resources/dataplanes")
        return client.get(f"/meshes/{mesh}/dataplanes/{name}/_{what}")


def _offline(  # noqa: PLR0913, PLR0917  # what the command line says
    what: str, kind: Kind | None, name: str, mesh: str, files: Sequence[str], variables: Sequence[str]
) -> Any:
    world = world_of(files, variables)
    if kind is not None:
        return _affected(world, kind, name, mesh)
    answer = inspect_rules if what == RULES else inspect_policies
    return answer(world, found(world, mesh, name))


def _affected(world: World, kind: Kind, name: str, mesh: str) -> Any:
    policy = world.get(Key(kind.name, mesh, name))
    if policy is None:
        there = ", ".join(one.name for one in world.table(kind.name, mesh))
        raise Problem(f"there is no valid {kind.name} {name} in mesh {mesh}", f"There is {there}." if there else "")
    items = [one.data for one in affected(world, policy)]
    return {"total": len(items), "items": items, "next": None}
