"""Refusals as findings."""

from __future__ import annotations

from typing import Any

from cp.ads.session.messages import Nack
from cp.model.names import Key
from cp.serving.delivery import CODE, NackReport, PolicyPart, finding, grouped
from cp.serving.delivery.nacks import without_dump
from cp.translate.packing import LISTENER

PATCH = PolicyPart(Key("MeshProxyPatch", "default", "patch"), "spec.default.appendModifications[0]", "patch.yaml", 7)
TIMEOUT = PolicyPart(Key("MeshTimeout", "default", "slow"), "spec.to[0]")


def report(number: int, text: str = "no", **changes: Any) -> NackReport:
    name = f"inbound:10.0.0.{number}:80"
    fields: dict[str, Any] = {
        "proxy": f"default.web-{number}",
        "dataplane": Key("Dataplane", "default", f"web-{number}"),
        "type_url": LISTENER,
        "nack": Nack("1", text.replace("{name}", name), (name,)),
        "at": float(number),
        "since": float(number),
        "names": (name,),
        "lasts": True,
        "policies": (PATCH, TIMEOUT),
        "likeliest": (PATCH,),
        "suspects": (PATCH,),
    }
    return NackReport(**{**fields, **changes})


def test_the_same_nack_of_thousands_of_proxies_is_one_finding_that_says_how_many() -> None:
    text = "listener {name}: cannot bind 10.0.0."
    (group,) = grouped(report(number, f"{text}{number}") for number in range(1, 2001))

    of_group = finding(group)
    assert (of_group.code, of_group.resource, of_group.file, of_group.line) == (CODE, PATCH.policy, "patch.yaml", 7)
    assert "2000 proxies refuse (default.web-1, default.web-2, default.web-3 and 1997 more)" in of_group.message
    assert "the listener inbound:10.0.0.1:80, and keep the version before" in of_group.message
    assert len(of_group.message) < 1000


def test_nacks_for_other_reasons_or_from_other_policies_are_findings_of_their_own() -> None:
    reports = [report(1), report(2, "port in use"), report(3, likeliest=(TIMEOUT,))]

    assert [len(group.reports) for group in grouped(reports)] == [1, 1, 1]


def test_a_proxy_without_an_earlier_version_does_without() -> None:
    (group,) = grouped([report(1, lasts=False)])

    assert (
        "1 proxy refuses (default.web-1) the listener inbound:10.0.0.1:80, and does without: no"
        in finding(group).message
    )


def test_what_follows_from_no_policy_is_about_the_dataplane() -> None:
    (group,) = grouped([report(1, policies=(), likeliest=(), suspects=())])

    assert finding(group).resource == Key("Dataplane", "default", "web-1")


def test_others_that_were_changed_since_are_named_too() -> None:
    (group,) = grouped([report(1, suspects=(PATCH, TIMEOUT))])

    assert finding(group).message.endswith("; MeshTimeout slow (spec.to[0]) had a say too")


def test_of_a_text_what_envoy_has_to_say_remains_and_not_what_it_was_given() -> None:
    dump = 'goo.gle/nodeletter name: "a"  connect_timeout { } : Proto constraint validation failed (ConnectTimeout)'

    assert without_dump(dump) == "Proto constraint validation failed (ConnectTimeout)"
    (group,) = grouped([report(1, dump), report(2, dump.replace("nodeletter", "debugonly"))])
    assert len(group.reports) == 2


def test_dump_ending_with_a_value_is_hidden() -> None:
    dump = 'goo.gle/debugonly \nname: "a"\nconnect_timeout {\n}\nalt_stat_name: "}: \\n:"\n'

    assert without_dump(f"{dump}: Proto constraint validation failed") == "Proto constraint validation failed"


def test_a_word_that_protobuf_chooses_at_random_makes_no_other_reason_and_is_not_told() -> None:
    text = "{name}: Invalid duration: Expected positive duration: goo.gle/%s  seconds: -5"
    words = ("debugonly", "debugstr", "debugproto", "nodeserialize")

    (group,) = grouped(report(number, text % word) for number, word in enumerate(words, 1))

    assert "4 proxies refuse" in finding(group).message
    assert finding(group).message.endswith("Invalid duration: Expected positive duration: seconds: -5")
    assert without_dump("no duration: goo.gle/debugstr") == "no duration:"


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    (group,) = grouped([report(1, f"begins {'x' * 5000} ends")])

    assert "begins" in finding(group).message
    assert finding(group).message.endswith("ends")
    assert len(finding(group).message) < 1000
