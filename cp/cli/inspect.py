"""`koguma inspect`: the state of proxies and the effect of policies, in a running control plane or in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from cp.cli import envoys, instances, proxies, rule_tables
from cp.cli.connection import ApiConnection
from cp.cli.envoys import DumpedType, EnvoyView
from cp.cli.options import Mesh, Offline, TableFormat, TableOutput, Variables
from cp.cli.output import print_data
from cp.cli.types import folder_of, kind_of, type_of
from cp.cli.watching import WatchedQuestion, watch_answers
from cp.cli.worlds import dataplane_named, world_of
from cp.client.problem import Problem
from cp.model.names import DEFAULT_MESH, Key
from cp.resources.kinds import Kind
from cp.resources.world import World

RULES: Final = "rules"
POLICIES: Final = "policies"
INSTANCES: Final = "instances"

_DATAPLANE: Final = "Dataplane"
_OTHERWISE_LEGACY: Final = frozenset({"MeshGatewayRoute", "VirtualOutbound"})
"""Legacy kinds that come to no conf, but to routes and to names."""


What = Annotated[
    str,
    typer.Argument(
        metavar="dataplanes|dataplane|rules|policies|instances|TYPE",
        help="What to show: all proxies, one proxy, its rules, its policies, the control planes that share the store, "
        "or the effect of a policy of this type.",
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="The name of the Dataplane, or of the policy. Not needed for dataplanes and instances."
    ),
]
Clusters = Annotated[
    bool, typer.Option("--clusters", help="Show the clusters that a proxy's Envoy has, with the health of endpoints.")
]
Stats = Annotated[bool, typer.Option("--stats", help="Show the counters of a proxy's Envoy that were used.")]
ConfigDump = Annotated[bool, typer.Option("--config-dump", help="Show the configuration that a proxy's Envoy has.")]
Certificates = Annotated[
    bool, typer.Option("--certificates", help="Show the certificates that a proxy's Envoy shows and trusts.")
]
Filter = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="REGEX",
        help="With --stats and --config-dump: only names that this regular expression (RE2) matches.",
        show_default=False,
    ),
]
OneType = Annotated[
    DumpedType | None, typer.Option("--type", help="With --config-dump: only this type of Envoy resource.")
]


WatchProxies = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Print `dataplanes` or `dataplane NAME` again whenever something changes, until it is interrupted.",
    ),
]


def inspect(  # noqa: PLR0913  # an option each
    subject: What,
    name: Name = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    file: Offline = None,
    var: Variables = None,
    clusters: Clusters = False,
    stats: Stats = False,
    config_dump: ConfigDump = False,
    certificates: Certificates = False,
    filter_: Filter = "",
    type_: OneType = None,
    output: TableOutput = TableFormat.TABLE,
    watch: WatchProxies = False,
    api: ApiConnection,
) -> None:
    """Show what proxies have accepted and rejected, the rules or policies of a proxy, or where a policy has effect.

    With `dataplane NAME`, one of --clusters, --stats, --config-dump and --certificates shows what its Envoy itself has
    and does. The Envoy is asked by way of `koguma dp run` beside it.
    """
    flags = dict(zip(EnvoyView, (clusters, stats, config_dump, certificates), strict=True))
    chosen = "" if type_ is None else type_.value
    view = envoys.view_of(flags, filter_=filter_, type_=chosen)
    if view is not None:
        path = _of_proxy(subject, name, mesh, is_live=not file and not watch)
        with api.client() as client:
            envoys.show(client, path, view, output, filter=filter_, type=chosen)
        return
    is_of_proxies = subject not in {INSTANCES, RULES, POLICIES} and type_of(subject).name == _DATAPLANE
    if watch and not is_of_proxies:
        raise Problem(f"--watch is for dataplanes, and not for {subject}", status=2)
    if subject == INSTANCES:
        _instances(output, api, offline=bool(file))
        return
    if is_of_proxies:
        _proxies(name, mesh, output, api, offline=bool(file), watches=watch)
        return
    if name is None:
        raise Problem(f"inspect {subject} needs a name", "Add the NAME of a Dataplane or of a policy.", status=2)
    kind = None if subject in {RULES, POLICIES} else _policy_kind(subject)
    answer = _offline(subject, kind, name, mesh, file, var or []) if file else _online(subject, kind, name, mesh, api)
    if output.is_data:
        print_data(answer, output)
    else:
        typer.echo(_table(subject, kind, answer, wide=output is TableFormat.WIDE), nl=False)


def _table(subject: str, kind: Kind | None, answer: Any, *, wide: bool) -> str:
    """Where a policy of a kind has effect, or the rules or policies of a proxy."""
    if kind is not None:
        return rule_tables.dataplanes(answer, wide=wide)
    return rule_tables.rules(answer, wide=wide) if subject == RULES else rule_tables.policies(answer, wide=wide)


def _of_proxy(subject: str, name: str | None, mesh: str, *, is_live: bool) -> str:
    """The path of the proxy whose Envoy is asked. Raises `Problem`."""
    if not is_live:
        raise Problem("what an Envoy says is in no file, and is not watched", "Leave out --file and --watch.", status=2)
    kind = None if subject in {RULES, POLICIES, INSTANCES} else kind_of(subject)
    if kind is None or kind.name != _DATAPLANE or name is None:
        hint = "Write koguma inspect dataplane NAME."
        raise Problem("only the Envoy of one proxy can be asked for this", hint, status=2)
    return f"{folder_of(kind, mesh)}/{name}"


def _instances(output: TableFormat, api: ApiConnection, *, offline: bool) -> None:
    """Print which control planes share the store."""
    if offline:
        raise Problem("files do not know of control planes", "Leave out --file to ask one.", status=2)
    with api.client() as client:
        answer = client.get("/_instances")
    if output.is_data:
        print_data(answer, output)
        return
    for line in instances.listing(answer["items"], wide=output is TableFormat.WIDE):
        typer.echo(line)


def _proxies(  # noqa: PLR0913  # an option each
    name: str | None, mesh: str, output: TableFormat, api: ApiConnection, *, offline: bool, watches: bool
) -> None:
    """Print the state of all proxies of a mesh, or of one with all that it was sent."""
    if offline:
        raise Problem("files do not contain the state of proxies", "Leave out --file to ask a control plane.", status=2)
    where = folder_of(type_of(_DATAPLANE), mesh)

    def text(answer: Any) -> str:
        if name is None:
            return proxies.dataplanes(answer["items"], wide=output is TableFormat.WIDE)
        return "".join(f"{line}\n" for line in proxies.delivery(answer, wide=output is TableFormat.WIDE))

    with api.client() as client:

        def ask() -> Any:
            return client.all_pages(f"{where}/_overview") if name is None else client.get(f"{where}/{name}/_delivery")

        if watches:
            watch_answers(client, WatchedQuestion(ask, text), output)
            return
        answer = ask()
    if output.is_data:
        print_data(answer, output)
    else:
        typer.echo(text(answer), nl=False)


def _policy_kind(subject: str) -> Kind:
    kind = kind_of(subject)
    if kind.policy is None and kind.legacy is None and kind.name not in _OTHERWISE_LEGACY:
        hint = "Write dataplanes, dataplane, rules, policies, instances, or a type of policy."
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
