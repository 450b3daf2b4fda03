"""Warns of environment variables that look like settings but are none: a misspelt one would silently do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

OURS: Final = "KOGUMA_"
KUMAS: Final = "KUMA_"

OF_OPTIONS: Final = frozenset(
    {
        "KOGUMA_ADDRESS",
        "KOGUMA_CA_CERT_FILE",
        "KOGUMA_CONFIG",
        "KOGUMA_CONTEXT",
        "KOGUMA_ENVOY",
        "KOGUMA_SOURCE_CA_CERT_FILE",
        "KOGUMA_SOURCE_TOKEN_FILE",
        "KOGUMA_TOKEN",
        "KOGUMA_TOKEN_FILE",
        "KUMA_CONTROL_PLANE_CA_CERT",
        "KUMA_CONTROL_PLANE_CA_CERT_FILE",
        "KUMA_CONTROL_PLANE_RETRY_MAX_DURATION",
        "KUMA_CONTROL_PLANE_TLS_SKIP_VERIFY",
        "KUMA_CONTROL_PLANE_URL",
        "KUMA_DATAPLANE_DRAIN_TIME",
        "KUMA_DATAPLANE_MESH",
        "KUMA_DATAPLANE_NAME",
        "KUMA_DATAPLANE_RUNTIME_CONCURRENCY",
        "KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH",
        "KUMA_DATAPLANE_RUNTIME_SYSTEM_CA_PATH",
        "KUMA_DATAPLANE_RUNTIME_TOKEN",
        "KUMA_DATAPLANE_RUNTIME_TOKEN_PATH",
        "KUMA_DATAPLANE_RUNTIME_WORK_DIR",
    }
)
"""Variables of command line options; the control plane's settings are apart from these."""

_FROM_US: Final = frozenset({"KOGUMA_LOG_KEY"})
"""Variables that we set for processes that we start."""

_NEAR: Final = 0.9


def warnings(names: Iterable[str]) -> Iterator[str]:
    """A warning for each unknown `KOGUMA_` variable, and for each `KUMA_` variable that is nearly a known one."""
    unknown_names = [
        name for name in sorted(names) if name.startswith((OURS, KUMAS)) and name not in OF_OPTIONS | _FROM_US
    ]
    if unknown_names:
        known_names = _names_of_settings()
        yield from (text for name in unknown_names if name not in known_names and (text := _warning(name, known_names)))


def _warning(name: str, known_names: Collection[str]) -> str:
    near = (
        _similar_names(name, known_names)
        if name.startswith(OURS)
        else difflib.get_close_matches(name, known_names, n=1, cutoff=_NEAR)
    )
    if not near:
        return f"{name} is no setting of koguma, and has no effect" if name.startswith(OURS) else ""
    return f"{name} is no setting of koguma, and has no effect; did you mean {near[0]}?"


def _similar_names(name: str, known_names: Collection[str]) -> Sequence[str]:
    """Known names for an unknown `KOGUMA_` one: a `KUMA_` name with the same end, or a similar `KOGUMA_` name."""
    suffix = name.removeprefix(OURS)
    if same_suffix := [
        known_name for known_name in sorted(known_names) if suffix and known_name.endswith(f"_{suffix}")
    ]:
        return same_suffix
    our_suffixes = [name_of_ours.removeprefix(OURS) for name_of_ours in known_names if name_of_ours.startswith(OURS)]
    return [OURS + near for near in difflib.get_close_matches(suffix, our_suffixes, n=1)]


def _names_of_settings() -> frozenset[str]:
    from cp.settings import rows  # noqa: PLC0415  # hardly any environment has such variables

    return OF_OPTIONS | {variable for variable, _, _ in rows()}
