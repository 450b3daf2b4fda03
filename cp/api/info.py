"""What the control plane says of itself: who it is, how it is set, which types it knows, whether it is well."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.access.rights import CONTROL_PLANE
from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import UNAVAILABLE
from cp.api.parameters import choice
from cp.insight.lint import CATALOGUE
from cp.resources.kinds import Kind, PolicyShape

PRODUCT: Final = "Koguma"
COMPATIBLE_WITH: Final = "2.14.3"
"""The version of Kuma whose API this is."""

_PREVIEW: Final = "+preview"
"""kumactl adds a control plane that is not Kuma's only if it calls itself a preview. What we have of Kuma's API is one.

It stands where SemVer has what does not count in the order of versions, so that 0.1.0 stays 0.1.0.
"""

OK: Final = 200
_LEVELS: Final = ("follows", "writes", "delivers")
"""The levels of readiness that a request can ask for, beyond serving proxies."""

_MOST_LATE_NAMED: Final = 5
_REFUSES: Final = "The store takes no writes"

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]*|[a-z]+|[A-Z]+")


class InfoHandler:
    """The handlers that need no store."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def index(self, _request: Request) -> Response:
        about = self._api.about
        return JSONResponse(
            {
                "hostname": about.hostname,
                "product": PRODUCT,
                "version": f"{about.version}{_PREVIEW}",
                "instanceId": about.instance,
                "clusterId": about.cluster,
                "gui": self._api.page.address,
                "basedOnKuma": COMPATIBLE_WITH,
            }
        )

    async def config(self, _request: Request) -> Response:
        return JSONResponse(dict(self._api.config))

    async def who_am_i(self, request: Request) -> Response:
        user = caller_of(request).user
        return JSONResponse({"name": user.name, "groups": list(user.groups)})

    async def resources(self, _request: Request) -> Response:
        kinds = sorted(self._api.kinds.values(), key=lambda kind: kind.name)
        return JSONResponse({"resources": [self._described(kind) for kind in kinds]})

    async def policies(self, _request: Request) -> Response:
        kinds = sorted(self._api.kinds.values(), key=lambda kind: kind.name)
        policies = [self._policy(kind, kind.policy) for kind in kinds if kind.policy is not None]
        return JSONResponse({"policies": policies})

    async def healthy(self, _request: Request) -> Response:
        return JSONResponse({"status": "healthy"})

    async def ready(self, request: Request) -> Response:
        """Whether it serves proxies and, as further levels, follows the store, can write to it, and delivers changes.

        With an Envoy for preflight, `preflight` says whether it can be asked.

        Not ready until the first World is there: a proxy that came earlier would wait. Without the store it serves what
        it has read, so it stays ready, unless `level=follows` or `level=writes` is asked for. A mesh that waits for a
        change leaves it ready too, for the other meshes and for whoever repairs that one (record 0095).
        """
        level = choice(request, "level", _LEVELS if self._api.preflight is None else (*_LEVELS, "preflight"))
        caller, outage, refusal = caller_of(request), self._api.store.outage, self._api.store.refusal
        state = self._api.state
        if not state.is_ready or state.is_stuck:
            status = "stopping" if state.is_stopping else "stuck" if state.is_stuck else "reading the store"
            return JSONResponse({"status": status}, UNAVAILABLE)
        warnings = self._warnings(caller, outage, refusal)
        reached = (self._api.follows, not (outage or refusal), not state.late_meshes)
        levels = dict(zip(_LEVELS, reached, strict=True))
        levels |= {} if self._api.preflight is None else {"preflight": not self._api.preflight.unavailable}
        body = {"status": "ready", **levels, **({"warnings": warnings} if warnings else {})}
        return JSONResponse(body, OK if levels.get(level, True) else UNAVAILABLE)

    def _warnings(self, caller: ApiCaller, outage: str, refusal: str) -> list[str]:
        """What is wrong with the control plane itself; in full only for those who may see its settings."""
        findings = tuple(self._api.own_findings())
        if caller.may_read(CONTROL_PLANE, ""):
            about_store = (outage or self._missed, refusal and f"{_REFUSES}: {refusal}")
            return [*filter(None, about_store), *self._late, *map(str, findings)]
        meanings = dict.fromkeys(CATALOGUE[finding.code].meaning for finding in findings)
        about_store = ("The store cannot be read." if outage else self._missed, f"{_REFUSES}." if refusal else "")
        late = len(self._api.state.late_meshes)
        about_delivery = [f"Proxies of {late} mesh{'es' if late > 1 else ''} wait for a change."] if late else []
        return [*filter(None, about_store), *about_delivery, *meanings]

    @property
    def _late(self) -> list[str]:
        return [
            f"mesh {mesh}: proxies have waited {seconds:.0f} s for a change, as it takes long to compute; "
            "make what was changed last (koguma history) smaller"
            for mesh, seconds in islice(self._api.state.late_meshes.items(), _MOST_LATE_NAMED)
        ]

    @property
    def _missed(self) -> str:
        return "" if self._api.follows else "What was written while the store could not be read is not served yet."

    def _described(self, kind: Kind) -> dict[str, Any]:
        description: dict[str, Any] = {
            "name": kind.name,
            "scope": "Global" if kind.is_global else "Mesh",
            "path": kind.plural,
            "shortName": kind.short,
            "singularDisplayName": words(kind.name),
            "pluralDisplayName": plural_words(kind),
            "readOnly": self._api.read_only,
            "includeInFederation": kind.name != "Dataplane",
        }
        return description if kind.policy is None else description | {"policy": _shape(kind.policy)}

    def _policy(self, kind: Kind, shape: PolicyShape) -> dict[str, Any]:
        return {
            "name": kind.name,
            "path": kind.plural,
            "readOnly": self._api.read_only,
            "singularDisplayName": words(kind.name),
            "pluralDisplayName": plural_words(kind),
            "isExperimental": False,
            "isTargetRef": True,
            "isInbound": shape.from_ or shape.rules,
            "isOutbound": shape.to,
        }


def _shape(shape: PolicyShape) -> dict[str, bool]:
    return {
        "isTargetRef": True,
        "hasToTargetRef": shape.to,
        "hasFromTargetRef": shape.from_,
        "hasRulesTargetRef": shape.rules,
        "isFromAsRules": shape.from_as_rules,
    }


def words(name: str) -> str:
    """`MeshHTTPRoute` is read as `Mesh HTTP Route`."""
    return " ".join(_WORD.findall(name))


def plural_words(kind: Kind) -> str:
    """The plural as it is written in the path, with the spaces and capitals of the name."""
    singular = words(kind.name)
    letters = len(kind.name) - 1 if kind.plural.endswith("ies") else len(kind.name)
    return singular[: len(singular) - (len(kind.name) - letters)] + kind.plural[letters:]
