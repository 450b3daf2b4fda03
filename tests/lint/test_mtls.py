"""What lint says of mTLS, beside the cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cp.insight.enforcement import MTLS_OFF, parts_without_mtls, warnings_without_mtls
from cp.insight.lint import mtls
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.rules.legacy import NO_LEGACY

MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
WEB: dict[str, Any] = {"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}}


def document(kind: str, spec: dict[str, Any]) -> Document:
    key = Key(kind, "default", "a")
    return Document(key, {"type": kind, "mesh": "default", "name": "a", "spec": spec})


def identity(**provider: Any) -> Document:
    return document("MeshIdentity", {"selector": {"dataplane": {"matchLabels": {}}}, **provider})


SIGNING = identity(
    provider={"type": "Bundled", "bundled": {"autogenerate": {"enabled": True}, "insecureAllowSelfSigned": True}}
)
PERMISSION = document("MeshTrafficPermission", {"rules": [{"default": {"allow": [WEB]}}]})


@pytest.mark.parametrize(("written", "codes"), [(SIGNING, []), (identity(), [MTLS_OFF])])
def test_a_mesh_identity_that_gives_certificates_is_mtls_from_the_beginning(
    written: Document, codes: list[str]
) -> None:
    """It has no record yet, and gets one by itself."""
    before = World.of([MESH], kinds(discover()))
    after = World.of([MESH, written, PERMISSION], kinds(discover()))
    permission = after.get(PERMISSION.key)

    assert [warning.code for warning in warnings_without_mtls(before, [written, PERMISSION])] == codes
    assert permission is not None
    assert len(parts_without_mtls(after, permission)) == len(codes)


def test_permissions_of_one_inbound_are_not_taken_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rules of the first are gone, and those of the second are at its place in the memory."""

    class Rules:
        def __init__(self, name: int) -> None:
            self.name = name

    def inbound(name: int) -> Any:
        rules = SimpleNamespace(get=lambda _: Rules(name), legacy=NO_LEGACY)
        dataplane = SimpleNamespace(mesh="default")
        reached = SimpleNamespace(legacy={})
        return SimpleNamespace(
            takes_tls=True, has_failed=False, index=0, dataplane=dataplane, rules=rules, reached=reached
        )

    names = range(10)
    policies = {"MeshTrafficPermission": SimpleNamespace(judges_every_client=True)}
    survey: Any = SimpleNamespace(policies=policies, proxies=names, inbounds_of=lambda name: [inbound(name)])
    monkeypatch.setattr(mtls, "permissions_at", lambda _policy, rules, _index, _mesh, _legacy: (rules.name,))

    judged: list[Any] = [permissions for _, permissions in mtls.judged_inbounds(survey)]
    assert judged == [(name,) for name in names]
