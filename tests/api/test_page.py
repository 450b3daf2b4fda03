"""The files of the page over HTTP, and what is answered where there is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cp.api.page import PageFiles
from tests.api.conftest import Api, Unit

SCRIPT = "console.log('ü')"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A page as it is built, with little in it."""
    for name, text in (("index.html", "<!doctype html>"), ("assets/page-1.js", SCRIPT), ("assets/page-2.css", "")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.fixture
def paged(start: Unit, built: Path) -> Api:
    return start(page=PageFiles.read(built))


@pytest.mark.parametrize("path", ["/gui", "/gui/", "/gui/fleet", "/gui/proxies/default/a%2Fb?tab=envoy"])
def test_every_address_of_the_page_is_answered_with_its_document(path: str, paged: Api) -> None:
    answer = paged.get(path)

    assert (answer.status_code, answer.text) == (200, "<!doctype html>")
    assert answer.headers["cache-control"] == "no-cache"


def test_nothing_of_the_page_comes_from_or_goes_to_anywhere_else(paged: Api) -> None:
    for path in ("/gui", "/gui/assets/page-1.js"):
        headers = paged.get(path).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))

        assert policy.pop("img-src") == "'self' data:"
        assert policy.pop("require-trusted-types-for") == "'script'"
        assert set(policy.values()) == {"'self'", "'none'"}
        assert {name for name, source in policy.items() if source == "'self'"} == {
            "script-src",
            "style-src",
            "connect-src",
        }
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_file_is_kept_for_ever_as_its_name_says_what_is_in_it(paged: Api) -> None:
    answer = paged.get("/gui/assets/page-1.js")

    assert answer.text == SCRIPT
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip", "gzip"), ("br, gzip;q=0.5", "gzip"), ("gzip;q=0", None), ("br", None), ("", None)],
)
def test_who_takes_compressed_answers_gets_them(accepted: str, encoding: str | None, paged: Api) -> None:
    answer = paged.get("/gui/assets/page-1.js", headers={"accept-encoding": accepted})

    assert answer.text == SCRIPT
    assert answer.headers.get("content-encoding") == encoding


def test_what_has_not_changed_is_not_sent_again(paged: Api) -> None:
    tag = paged.get("/gui").headers["etag"]

    answer = paged.get("/gui", headers={"if-none-match": tag})

    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.parametrize("name", ["page-0.js", "page-1.js.gz", "..%2Findex.html", "%2Fetc%2Fpasswd"])
def test_what_is_no_file_of_the_page_is_not_answered(name: str, paged: Api) -> None:
    answer = paged.get(f"/gui/assets/{name}")

    assert (answer.status_code, SCRIPT in answer.text) in {(404, False), (200, False)}
    assert "root:" not in answer.text


def test_files_need_no_rights_and_data_does(paged: Api) -> None:
    assert paged.get("/gui/fleet", peer="10.0.0.9").status_code == 200
    assert paged.get("/dataplanes/_overview", peer="10.0.0.9").status_code == 401


def test_the_page_of_another_website_gets_none_of_it(paged: Api) -> None:
    assert paged.get("/gui", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (PageFiles.read(Path("/nowhere")), "installed without its page; build it with `make page`"),
        (PageFiles.read(is_on=False), "switched off (KUMA_API_SERVER_GUI_ENABLED)"),
    ],
)
def test_where_there_is_no_page_the_answer_says_why(files: PageFiles, reason: str, start: Unit) -> None:
    api = start(page=files)

    answer = api.get("/gui/fleet")

    assert answer.status_code == 404
    assert reason in answer.json()["detail"]
    assert api.get("/").json()["gui"] == ""


def test_the_control_plane_says_where_its_page_is(paged: Api) -> None:
    assert paged.get("/").json()["gui"] == "/gui"
