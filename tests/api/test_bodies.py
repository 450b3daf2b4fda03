"""What the HTTP API makes of bodies that nobody should send."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.api.body import BodyOrigin, _reading
from cp.model.checkpoint import checkpoint_set
from cp.model.names import Key
from tests.api.conftest import Api, Unit
from tests.api.samples import TIMEOUT_YAML, dataplane, timeout

SLOW = "/meshes/default/meshtimeouts/slow"


def refusal(api: Api, text: str | bytes, kind: str = "application/yaml") -> str:
    """Why a body is refused, in one line."""
    answer = api.put_yaml(SLOW, text, content_type=kind)
    assert answer.status_code == 400, answer.text
    body = answer.json()
    faults = body.get("invalid_parameters", [])
    return "; ".join([body["detail"], *(f"{fault['field']}: {fault['reason']}" for fault in faults)])


@pytest.mark.parametrize("kind", ["application/yaml", "application/json"])
def test_body_is_read_with_checkpoints(kind: str) -> None:
    """So its thread waits for delivery, and ends when the client has gone."""
    text = json.dumps({"type": "Mesh", "name": "m", "tags": [{"a": str(number)} for number in range(50)]})
    passed: Counter[str] = Counter()

    with checkpoint_set(lambda: passed.update(["all"])):
        _reading(text, kind, BodyOrigin())
    assert passed["all"] >= 50


def test_yaml_and_json_are_stored_alike(api: Api) -> None:
    api.put_yaml(SLOW, TIMEOUT_YAML)
    from_yaml = api._runner.run(api.store.get(Key("MeshTimeout", "default", "slow")))
    api.put(SLOW, timeout())
    from_json = api._runner.run(api.store.get(Key("MeshTimeout", "default", "slow")))

    assert from_yaml is not None
    assert from_json is not None
    assert from_yaml.document == from_json.document


def test_invalid_yaml_is_refused_with_its_line(api: Api) -> None:
    answer = api.put_yaml(SLOW, "type: MeshTimeout\nname: [slow\nmesh: default\n")

    (fault,) = answer.json()["invalid_parameters"]
    assert answer.status_code == 400
    assert "not YAML" in fault["reason"]
    assert fault["line"] == 3


def test_invalid_json_is_refused_with_its_line_and_column(api: Api) -> None:
    assert "line 2, column 1" in refusal(api, '{"type":\n}', "application/json")


def test_an_unknown_kind_is_refused_with_the_one_that_was_meant(api: Api) -> None:
    body = api.put_yaml(SLOW, TIMEOUT_YAML.replace("MeshTimeout", "MeshTimeouts")).json()

    assert any(fault.get("hint") == "did you mean `MeshTimeout`?" for fault in body["invalid_parameters"])


def test_a_value_of_the_wrong_type_is_refused_with_what_would_be_right(api: Api) -> None:
    faults = refusal(api, TIMEOUT_YAML.replace("10s", "10"))

    assert "spec.to[0].default.http.requestTimeout: must be" in faults


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has none"),
        ("---\n---\n", "it has none"),
        (f"{TIMEOUT_YAML}---\n{TIMEOUT_YAML.replace('slow', 'other')}", "it has 2"),
        (f"{TIMEOUT_YAML}---\n{TIMEOUT_YAML}", "written a second time"),
        ("- a\n- b\n", "not a resource but a bare value"),
        ("type: MeshTimeout\nmesh: default\n", "a resource without `name`"),
        ("name: slow\n", "a resource without `type`"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_body_that_is_not_one_resource_is_refused(api: Api, text: str, reason: str) -> None:
    assert reason in refusal(api, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "an object"),
        ('{"type": "MeshTimeout"}', "name: must be set"),
        ('{"type": "MeshTimeout", "name": 7}', "name: must be set"),
        ('{"type": "MeshTimeout", "name": "slow", "name": "slow"}', "name: stands in one object twice"),
        ('{"type": "MeshTimeout", "name": "slow", "x": NaN}', "NaN"),
        ('{"type": "MeshTimeout", "name": "slow", "x": 123456789012345678901234567890}', "30 digits"),
        ('{"type": "MeshTimeout", "name": "slow", "x": "\\ud800"}', "lone surrogate"),
        ('{"x":' * 100_000, "nested more than 64 levels deep"),
    ],
)
def test_json_that_is_not_one_resource_is_refused(api: Api, text: str, reason: str) -> None:
    assert reason in refusal(api, text, "application/json")


def test_json_may_be_indented_with_tabs(api: Api) -> None:
    text = '{\n\t"type": "Mesh",\n\t"name": "other"\n}'

    assert api.put_yaml("/meshes/other", text, content_type="application/json").status_code == 201


def test_a_media_type_that_is_neither_is_refused(api: Api) -> None:
    answer = api.put_yaml(SLOW, TIMEOUT_YAML, content_type="text/html")

    assert (answer.status_code, answer.json()["detail"]) == (
        415,
        "the body is said to be text/html; send application/json or application/yaml",
    )


def test_a_body_that_says_it_is_too_large_is_not_read(start: Unit) -> None:
    answer = start(body_limit=1024).with_mesh().put_yaml(SLOW, "x" * 2000)

    assert answer.status_code == 413
    assert "larger than 1024 bytes" in answer.json()["detail"]


def test_who_sends_too_much_is_told_of_the_setting_only_where_the_setting_is_the_limit(start: Unit) -> None:
    api = start(body_limit=8 * 1024 * 1024).with_mesh()

    resource = api.put_yaml(SLOW, "x" * (4 * 1024 * 1024 + 1)).json()["detail"]
    bootstrap = api.request(
        "POST", "/bootstrap", content=b"x" * (256 * 1024 + 1), headers={"content-type": "application/json"}
    ).json()["detail"]

    less = "send less: this request has that at the most, whatever KOGUMA_BODY_LIMIT is"
    assert resource == f"the body is larger than 4 MiB; {less}"
    assert bootstrap == f"the body is larger than 262144 bytes; {less}"
    assert "raise KOGUMA_BODY_LIMIT" in start(body_limit=1024).with_mesh().put_yaml(SLOW, "x" * 2000).json()["detail"]


def test_a_body_that_turns_out_too_large_is_not_read_to_its_end(start: Unit) -> None:
    api = start(body_limit=1024).with_mesh()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    answer = api.request("PUT", SLOW, content=chunks(), headers={"content-type": "application/yaml"})

    assert answer.status_code == 413


def test_a_large_valid_body_is_stored(api: Api) -> None:
    text = TIMEOUT_YAML + "".join(f"# {number:090}\n" for number in range(40_000))

    assert len(text) > 3_500_000
    assert api.put_yaml(SLOW, text).status_code == 201


def test_a_large_body_of_nonsense_is_refused(api: Api) -> None:
    assert "nested more than" in refusal(api, "x: " + "[" * 90_000)


def test_a_body_of_very_many_values_is_refused_before_it_is_read(api: Api) -> None:
    text = '{"type": "MeshTimeout", "name": "slow", "spec": [' + "{}," * 500_000 + "1]}"

    assert "are the most" in refusal(api, text, "application/json")


def test_a_resource_of_many_mebibytes_is_refused_whatever_the_limit_of_bodies_is(api: Api) -> None:
    answer = api.put_yaml(SLOW, TIMEOUT_YAML + "# " + "x" * 5_000_000)

    assert (answer.status_code, "4 MiB" in answer.json()["detail"]) == (413, True)


def test_a_number_that_is_infinite_is_refused(api: Api) -> None:
    assert "`1e999` in it, which is larger than any number" in refusal(
        api, '{"type": "MeshTimeout", "name": "slow", "x": 1e999}', "application/json"
    )


def test_of_very_many_faults_some_are_told_and_the_others_counted(api: Api) -> None:
    fields = "".join(f"  field{number}: 1\n" for number in range(5000))
    answer = api.put_yaml(SLOW, f"type: MeshTimeout\nmesh: default\nname: slow\nspec:\n{fields}")

    assert len(answer.json()["invalid_parameters"]) == 100
    assert "at least 101 more" in answer.json()["detail"]
    assert len(answer.content) < 64 * 1024


SCALARS = st.none() | st.booleans() | st.integers(-1, 70000) | st.text(max_size=5) | st.sampled_from(["Mesh", "10s"])
NAMES = st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
SEEDS = [(SLOW, timeout()), ("/meshes/default/dataplanes/web-1", dataplane() | {"labels": {"a": "b"}})]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in inner:
        yield (*path, step)
        yield from places(value, (*path, step))


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    step, *rest = path
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[step] = replaced(copy[step], tuple(rest), value) if rest else value
    return copy


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_no_body_is_more_than_the_control_plane_can_take(data: st.DataObject) -> None:
    path, seed = data.draw(st.sampled_from(SEEDS))
    document = replaced(seed, data.draw(st.sampled_from(sorted(places(seed), key=str))), data.draw(VALUES))
    wanted = {"mesh": "default", "name": "web-1", "dataplaneResource": json.dumps(document)}

    with asyncio.Runner() as runner:
        api = Api(runner).with_mesh()
        answers = [
            api.put(path, document),
            api.put_yaml(path, json.dumps(document)),
            api.get(path, params={"format": "kubernetes"}),
            api.get("/dataplanes", params={"tag": "kuma.io/service:web", "gateway": "false"}),
            api.post("/validate", json=document),
            api.post("/bootstrap", json=wanted),
        ]

    assert not [answer.text for answer in answers if answer.status_code >= 500]


def test_a_question_that_is_nested_too_deeply_is_refused_in_our_words(api: Api) -> None:
    body = '{"version":{"a":' + "[" * 100_000

    answer = api.post("/bootstrap", content=body, headers={"content-type": "application/json"})

    assert (answer.status_code, "nested too deeply" in answer.json()["detail"]) == (400, True)
