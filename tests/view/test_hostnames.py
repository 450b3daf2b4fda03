"""The names by which workloads know services, and who is asked for them."""

from __future__ import annotations

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.translate.view.hostnames import hosts
from cp.translate.view.proxies import outbounds
from cp.translate.view.vips import vips
from tests.view.meshes import dataplane, external, redirected, service, world


def generator(name: str, template: str, kind: str = "meshService", **labels: str) -> Document:
    spec = {"selector": {kind: {"matchLabels": labels} if labels else {}}, "template": template}
    return Document(Key("HostnameGenerator", "", name), {"type": "HostnameGenerator", "name": name, "spec": spec})


def known(found: World, name: str = "client") -> dict[str, str]:
    """The names that a proxy knows."""
    asked = hosts(found, "default", outbounds(found, dataplane(found, name)))
    return {} if asked is None else dict(asked.names)


def test_every_service_has_a_usual_name_at_its_virtual_address() -> None:
    found = world(service("a"), external("e"), redirected(tag="old_client"))
    addresses = {one.name: address for one, address in vips(found, "default").services}
    ((_, of_tag),) = vips(found, "default").tagged

    assert known(found) == {
        "a.svc.mesh.local": addresses["a"],
        "e.extsvc.mesh.local": addresses["e"],
        "old.client.mesh": of_tag,
    }


def test_generators_say_the_names_of_the_services_that_they_choose() -> None:
    """Then there is no usual name any more; a label that is not there makes no name, nor does what is no name."""
    chosen = generator("red", "{{ .DisplayName }}.red.example", team="red")
    of_all = generator("team", '{{ label "team" }}.{{ .Mesh }}.example')
    found = world(service("a", team="red"), service("b"), service("c", team="a_b"), chosen, of_all, external("e"))
    every = found.next({redirected().key: redirected()}, 1)

    assert set(known(every)) == {"a.red.example", "red.default.example", "e.extsvc.mesh.local", "client.mesh"}


def test_a_proxy_knows_the_names_of_what_it_reaches() -> None:
    backends = {"refs": [{"kind": "MeshService", "name": "a"}]}
    found = world(service("a"), service("b"), redirected(reachableBackends=backends, reachableServices=["none"]))

    assert set(known(found)) == {"a.svc.mesh.local"}


def test_whoever_lists_outbounds_has_no_names() -> None:
    listed = redirected().data["networking"] | {"outbound": [{"port": 1, "tags": {"kuma.io/service": "client"}}]}
    del listed["transparentProxying"]
    data = {**redirected().data, "networking": listed}

    assert known(world(service("a"), Document(redirected().key, data))) == {}


def test_an_endpoint_that_comes_or_goes_makes_nothing_new() -> None:
    old = world(service("a"), redirected())
    before = hosts(old, "default", outbounds(old, dataplane(old)))
    sick = redirected(ready=False)
    new = old.next({sick.key: sick}, 1)

    assert hosts(new, "default", outbounds(new, dataplane(new))) is before is not None
