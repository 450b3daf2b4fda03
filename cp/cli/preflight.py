"""`--preflight` and `--no-preflight`: whether an Envoy is shown first what a write comes to."""

from __future__ import annotations

from typing import Annotated

import typer

from cp.client.problem import Problem

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
