"""`--preflight` and `--no-preflight`, and the answer of an Envoy in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from cp.client.problem import Problem

Data = Mapping[str, Any]

_LIMITS: Final = (
    "preflight proves that this version of Envoy loads what it was shown: it sends no request, reaches no host or "
    "file, and runs no Lua or Wasm; proxies with other versions may NACK what it takes"
)
_SIDES: Final = {
    "refused": "NACKed",
    "refusedBefore": "NACKed already before this change",
    "notShown": "not shown",
    "shownInPart": "shown in part",
}

Preflighted = Annotated[
    bool | None,
    typer.Option(
        "--preflight/--no-preflight",
        help="Have an Envoy look at what proxies would be served before any proxy is. The control plane needs one: "
        "KOGUMA_PREFLIGHT_ENVOY. With --no-preflight no Envoy is asked, even if the control plane asks one for each "
        "write (KOGUMA_PREFLIGHT_WRITES); the history says so.",
        show_default="as the control plane does",
    ),
]


def must_be_write(*, preflight: bool | None, dry_run: bool) -> None:
    """Check that no preflight is asked of a dry run. Raises `Problem`."""
    if dry_run and preflight:
        hint = "koguma plan --preflight shows an Envoy what files would come to."
        raise Problem("--preflight cannot be combined with --dry-run", hint, status=2)


def preflight_lines(preflight: Data) -> Iterator[tuple[str, str]]:
    """The answer of an Envoy to what proxies would be served, each line with its sign."""
    yield from ((line, "") for line in preflight_summary(preflight))
    for resource in preflight["refused"]:
        yield _shown(resource), "-"
        yield from ((line, "") for line in _explanation(resource))
    for side in ("refusedBefore", "notShown", "shownInPart"):
        yield from ((f"{_SIDES[side]}: {_shown(resource)}", "") for resource in preflight.get(side, ()))
    for text in preflight.get("notCompared", ()):
        yield f"{_SIDES['notShown']}: {text}", ""
    untold = preflight.get("inMeshesNotTold", {})
    for side in filter(untold.get, _SIDES):
        yield f"{_SIDES[side]} in meshes that you may not look into: {_count(untold[side], 'resource')}", ""


def preflight_summary(preflight: Data) -> Iterator[str]:
    """How much an Envoy was shown, its answer, and what that proves."""
    yield f"preflight: {_shown_to_envoy(preflight)}"
    if preflight["shown"]:
        yield _LIMITS


def _shown(resource: Data) -> str:
    return f"{resource['type']} {resource['name']} of {resource['proxy']}: {resource['reason']}"


def _explanation(resource: Data) -> Iterator[str]:
    if before := resource.get("reasonBefore"):
        yield f"    NACKed already before this change, for another reason: {before}"
    for part in resource["policies"]:
        place = f", {part['file']}:{part['line']}" if part.get("file") else ""
        state = "in this change" if part.get("written") else "as stored"
        yield f"    made of {part['type']} {part['name']} ({part['path']}{place}), {state}"


def _shown_to_envoy(preflight: Data) -> str:
    text = "nothing was shown to an Envoy"
    if preflight["shown"]:
        counts = f"{_count(preflight['shown'], 'resource')} of {_count(preflight['proxies'], 'proxy')}"
        text = f"Envoy {preflight['envoy']} was shown {counts}, and {_verdict(preflight)}"
    for side, words in (("notShown", "it was not shown"), ("shownInPart", "it was shown in part")):
        if number := _with_untold(preflight, side):
            text += f"; {_count(number, 'resource')} {words}"
    return text


def _verdict(preflight: Data) -> str:
    refused, older = refused_count(preflight), _with_untold(preflight, "refusedBefore")
    verdict = f"NACKs {refused} of them" if refused else "loads all of them" if not older else "loads the others"
    return f"NACKs {older} of them already before this change, and {verdict}" if older else verdict


def refused_count(preflight: Data) -> int:
    """How many resources an Envoy NACKs because of the change, also in meshes of which the plan does not tell."""
    return _with_untold(preflight, "refused")


def _with_untold(preflight: Data, side: str) -> int:
    untold: int = preflight.get("inMeshesNotTold", {}).get(side, 0)
    return len(preflight.get(side, ())) + untold


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else {'proxy': 'proxies'}.get(noun, f'{noun}s')}"
