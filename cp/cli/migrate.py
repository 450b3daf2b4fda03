"""`koguma migrate`: a mesh with policies with a targetRef in place of its legacy ones, and the proof that it is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection, source_connection
from cp.cli.findings import print_findings
from cp.cli.meshes import MeshFiles, must_be_shown, read, texts_of, with_engines
from cp.cli.options import (
    EngineOfMeshes,
    Offline,
    Output,
    OutputFormat,
    SourceAuthorityFile,
    SourceTokenFile,
    Variables,
)
from cp.cli.output import as_yaml, brief, print_data
from cp.cli.worlds import assembled
from cp.client.files import file_texts
from cp.client.problem import Problem
from cp.model.failure import Failure
from cp.model.names import DEFAULT_MESH, Key
from cp.model.wording import few, printable
from cp.policies import discover

if TYPE_CHECKING:
    from cp.insight.migrate import Difference, GoneUse, Migration
    from cp.resources.world import World


class KumaVersion(StrEnum):
    """A version of Kuma for which a mesh can be made ready."""

    THREE = "3.0"


NEW: Final = "new.yaml"
REPLACED: Final = "replaced.yaml"

MeshName = Annotated[str, typer.Argument(metavar="MESH", help="The mesh.")]
FromKuma = Annotated[
    str | None,
    typer.Option("--from-kuma", metavar="URL", help="Read the mesh from the HTTP API of a Kuma control plane."),
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--write",
        "-w",
        metavar="FOLDER|-",
        help=f"Write the new policies to {NEW} and those that they replace to {REPLACED} in a folder; "
        "or the new ones to standard output, and all else to standard error.",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="End with status 1 if a policy cannot be moved, some Envoy would not do the same as before or it is not "
        "known whether it would, or something is invalid; "
        "with --to also if something is used that is gone.",
    ),
]


To = Annotated[
    KumaVersion | None,
    typer.Option(
        "--to",
        help="Show what the mesh uses that this version of Kuma does not have, and write what can be written instead.",
    ),
]


def migrate(  # noqa: PLR0913  # an option each
    mesh: MeshName = DEFAULT_MESH,
    *,
    file: Offline = None,
    from_kuma: FromKuma = None,
    source_token_file: SourceTokenFile = None,
    source_ca_cert_file: SourceAuthorityFile = None,
    engine: EngineOfMeshes = None,
    var: Variables = None,
    write: Folder = None,
    to: To = None,
    check: Check = False,
    output: Output = OutputFormat.TABLE,
    api: ApiConnection,
) -> None:
    """Write policies with a targetRef in place of the legacy ones of a mesh, and show what would be different.

    What every proxy is served is worked out before and after, and compared byte by byte. Nothing is changed anywhere.
    """
    from cp.api.envoy_json import decoded  # noqa: PLC0415  # it knows all of Envoy
    from cp.insight.migrate import gone_uses, migration, rewrites, translations  # noqa: PLC0415  # the same

    source = _source(from_kuma, source_token_file, source_ca_cert_file) or api
    if file and from_kuma:
        raise Problem("-f cannot be combined with --from-kuma", "Leave out one of them.", status=2)
    files, taken = with_engines(_files(mesh, file, var or [], source), None if engine is None else engine.value)
    for line in taken:
        typer.echo(printable(line), err=True)
    world = assembled(files.documents)
    if world.mesh(mesh) is None:
        raise Problem(f"there is no valid Mesh {mesh}", "Name the mesh that is meant.")
    moved = migration(world, mesh, discover(), decoded, translations if to is None else rewrites)
    uses = [] if to is None else list(gone_uses(world, mesh))
    if write is not None:
        _write(moved, world, write)
    _print(moved, None if to is None else uses, output, is_err=write == "-")
    if not files.report.is_valid:
        typer.echo("Nothing is said about what is invalid: it was left out.", err=True)
    if check and (uses or not files.report.is_valid or not moved.is_safe):
        raise typer.Exit(1)


def _print(moved: Migration, uses: Sequence[GoneUse] | None, output: OutputFormat, *, is_err: bool) -> None:
    """Print what a migration comes to, and what is gone in the version that was asked for."""
    if output is OutputFormat.TABLE:
        gone = () if uses is None else _section("gone in Kuma 3.0", map(str, uses), "nothing")
        for line in (*report(moved), *gone):
            typer.echo(printable(line), err=is_err)
    elif is_err:
        raise Problem("-w - and -o cannot be combined", "Both would be on standard output.", status=2)
    else:
        print_data(data_of(moved) if uses is None else {**data_of(moved), "gone": [_use(use) for use in uses]}, output)


def _source(address: str | None, token_file: Path | None, ca_cert_file: Path | None) -> ApiConnection | None:
    return None if address is None else source_connection(address, token_file, ca_cert_file)


def _files(mesh: str, file: Sequence[str] | None, variables: Sequence[str], source: ApiConnection) -> MeshFiles:
    """The documents of a mesh. What is invalid in them is told: it is not served either."""
    if file:
        files = read(file_texts(file, variables))
    else:
        with source.client() as client:
            files = read(list(texts_of(client, mesh)), with_keys=False)
    must_be_shown(files, "nothing can be said about this mesh")
    print_findings(files.report.errors)
    return files


def _write(moved: Migration, world: World, place: str) -> None:
    new = "---\n".join(as_yaml(dict(document.data)) for document in moved.documents)
    if place == "-":
        typer.echo(new, nl=False)
        return
    written = {document.key for document in moved.documents}  # one that is written anew is not to be deleted
    old = (world.get(key) for key in moved.removed if key not in written)
    replaced = "---\n".join(as_yaml(dict(policy.document.data)) for policy in old if policy is not None)
    folder = Path(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NEW).write_text(new)
        (folder / REPLACED).write_text(replaced)
    except OSError as error:
        raise Problem(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from None


def report(moved: Migration) -> Iterator[str]:
    """What a migration comes to, for people."""
    proxies = len(moved.proxies)
    yield f"mesh {moved.mesh}: {proxies} {'proxy' if proxies == 1 else 'proxies'} compared"
    yield from _section("replaced", _replaced(moved), "nothing")
    yield from _section("stays", (f"{group.kind}: {group.reason}" for group in moved.kept))
    yield from _section("look at", (note for translation in moved.translations for note in translation.notes))
    in_names = [difference for difference in moved.differences if difference.in_names_alone]
    changed = [difference for difference in moved.differences if not difference.in_names_alone]
    yield from _section("different for proxies", _differences(changed), _no_difference(moved))
    if in_names:
        yield from _section("called by other names, and the same otherwise", _differences(in_names))
    yield from _section("not known, so nothing is proven", _unknown(moved))


def _no_difference(moved: Migration) -> str:
    """What is said where no difference is seen."""
    if moved.is_comparable:
        return "none that could be seen" if moved.failures else "none"
    if moved.failures:
        return "not comparable: what proxies are served cannot be worked out"
    return "not comparable: the mesh has no Dataplane that would show it"


def _unknown(moved: Migration) -> Iterator[str]:
    """The faults of ours, each with the proxies that meet it."""
    names: dict[str, list[str]] = {}
    for key, failures in moved.failures.items():
        for failure in failures:
            names.setdefault(_sentence(moved, key, failure), []).append(key.name)
    return (f"{few(proxies)}: {text}" for text, proxies in names.items())


def _sentence(moved: Migration, proxy: Key, failure: Failure) -> str:
    if proxy in moved.proxies:
        return str(failure)
    return f"what it is served {failure.unknown}; nor is it known what it calls, for which policies may be missing"


def _section(title: str, lines: Iterable[str], empty: str = "") -> Iterator[str]:
    listed = list(lines) or ([empty] if empty else [])
    if listed:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in listed)


def _replaced(moved: Migration) -> Iterator[str]:
    for translation in moved.translations:
        for policy in translation.policies if translation.is_done else ():
            new = [f"{key.type} {key.name}" for key, origin in translation.origins.items() if origin == policy.key]
            yield f"{translation.kind} {policy.name}: {', '.join(new) or 'nothing takes its place'}"


def _differences(differences: Iterable[Difference]) -> Iterator[str]:
    by_cause: dict[tuple[Key, ...], list[Difference]] = {}
    for difference in differences:
        by_cause.setdefault(difference.causes, []).append(difference)
    for causes, of_cause in by_cause.items():
        yield "because of " + (", ".join(f"{key.type} {key.name}" for key in causes) or "all of them together")
        for difference in of_cause:
            names = ", ".join(proxy.name for proxy in difference.proxies)
            yield f"  {difference.resource.type} {difference.resource.name}, for {names}"
            for field in difference.fields:
                yield f"    {field.path or 'as a whole'}: {brief(_shown(field.before))} → {brief(_shown(field.after))}"


def _shown(value: Any) -> Any:
    from cp.insight.migrate import ABSENT  # noqa: PLC0415  # loaded by now

    return "(none)" if value is ABSENT else value


def data_of(moved: Migration) -> Mapping[str, Any]:
    """What a migration comes to, for programs."""
    return {
        "mesh": moved.mesh,
        "proxies": [proxy.name for proxy in moved.proxies],
        "comparable": moved.is_comparable,
        "equal": moved.is_equal,
        "safe": moved.is_safe,
        "new": [dict(document.data) for document in moved.documents],
        "replaced": [_key(key) for key in moved.removed],
        "kept": [
            {"policies": [_key(policy.key) for policy in group.policies], "reason": group.reason}
            for group in moved.kept
        ],
        "notes": [note for translation in moved.translations for note in translation.notes],
        "differences": [_difference(difference) for difference in moved.differences],
        "failed": [
            {"proxy": key.name, "compared": key in moved.proxies, "message": _sentence(moved, key, failure)}
            for key, failures in moved.failures.items()
            for failure in failures
        ],
    }


def _difference(difference: Difference) -> Mapping[str, Any]:
    return {
        "causes": [_key(key) for key in difference.causes],
        "proxies": [proxy.name for proxy in difference.proxies],
        "type": difference.resource.type,
        "name": difference.resource.name,
        "inNamesAlone": difference.in_names_alone,
        "fields": [dict(_sides(field.path, field.before, field.after)) for field in difference.fields],
    }


def _sides(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any]]:
    """A side on which there is nothing is left out."""
    from cp.insight.migrate import ABSENT  # noqa: PLC0415  # loaded by now

    yield "path", path
    yield from ((name, value) for name, value in (("before", before), ("after", after)) if value is not ABSENT)


def _use(use: GoneUse) -> Mapping[str, Any]:
    place = {"file": use.resource.source.file, "line": use.resource.source.line(use.path)}
    return {**_key(use.resource.key), "path": use.path, **place, "message": use.message, "instead": use.instead}


def _key(key: Key) -> Mapping[str, str]:
    return {"type": key.type, "mesh": key.mesh, "name": key.name}
