"""Names that are made in more than one place agree."""

from __future__ import annotations

from cp.model.names import SHORT_NAMES, Identity, Key, dataplane_key, kri, proxy_id
from cp.policies import discover, kinds


def test_the_short_names_inside_of_names_are_those_of_the_kinds() -> None:
    known = kinds(discover())

    assert {name: known[name].short for name in SHORT_NAMES} == SHORT_NAMES


def test_an_identity_in_one_word_keeps_the_places_of_what_it_does_not_have() -> None:
    assert kri(Identity("MeshService", "default", "backend", section="http")) == "kri_msvc_default___backend_http"
    assert kri(Identity("MeshHTTPRoute", "m", "r", "east", "ns")) == "kri_mhttpr_m_east_ns_r_"


def test_a_proxy_is_called_by_its_dataplane_and_the_other_way_round() -> None:
    key = Key("Dataplane", "default", "backend-1.eu")

    assert proxy_id(key) == "default.backend-1.eu"
    assert dataplane_key(proxy_id(key)) == key
    assert dataplane_key("nobody") == Key("Dataplane", "nobody", "")
