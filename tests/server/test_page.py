"""GET / and its parts, without a browser: what is served, and what a browser is told not to do with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx2
import pytest

from fucina.server.app import ENDPOINTS
from fucina.server.routes import page

PATHS = [one.path for one in page.ENDPOINTS]


@pytest.fixture
def client(serve: Callable[..., str]) -> Iterator[httpx2.Client]:
    """One without a key, of a server that wants one."""
    with httpx2.Client(base_url=serve(lambda _: 257, api_keys=("a-key-of-ours",))) as client:
        yield client


def test_every_part_is_open_and_hemmed_in(client: httpx2.Client) -> None:
    for path in PATHS:
        reply = client.get(path)
        assert reply.status_code == 200, path
        assert reply.headers["content-security-policy"] == page.POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        kind = {"": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        assert reply.headers["content-type"].partition(";")[0] == kind[path.rpartition(".")[2] if "." in path else ""]
    assert client.get("/v1/models").status_code == 401
    assert client.get("/ui/../app.py").status_code == 401  # and a key would find nothing either


def test_the_policy_allows_nothing_but_our_own() -> None:
    rules = dict(rule.split(" ", 1) for rule in page.POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert {sources for name, sources in rules.items() if name.endswith("-src")} == {"'none'", "'self'"}


def test_nothing_is_asked_of_elsewhere_and_nothing_stands_inline(client: httpx2.Client) -> None:
    texts = {path: client.get(path).text for path in PATHS}
    namespace = "http://www.w3.org/2000/svg"  # a name, which nobody fetches
    for path, text in texts.items():
        assert not re.search(r"(https?:|[\"'(])//[a-z0-9]", text.replace(namespace, "")), path
    assert "<style" not in texts["/"] and not re.search(r"\s(style|on\w+)=", texts["/"])
    assert re.findall(r"<script[^>]*>([^<]*)<", texts["/"]) == [""]
    named = set(re.findall(r"(?:src|href)=\"(ui/[^\"]+)\"", texts["/"]))
    named |= {f"ui/{name}" for text in texts.values() for name in re.findall(r"from \"\./([^\"]+)\"", text)}
    assert {f"/{name}" for name in named} | {"/"} == set(PATHS)  # all that is served is used, and the other way round
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert not any(word in text for text in texts.values()), word


def test_it_is_small(client: httpx2.Client) -> None:
    packed = [client.get(path, headers={"accept-encoding": "gzip"}) for path in PATHS]
    assert {reply.headers["content-encoding"] for reply in packed} == {"gzip"}
    assert sum(int(reply.headers["content-length"]) for reply in packed) < 20_000
    plain = [client.get(path, headers={"accept-encoding": "identity"}) for path in PATHS]
    assert [reply.content for reply in plain] == [reply.content for reply in packed]
    assert sum(len(reply.content) for reply in plain) < 50_000


def test_what_a_browser_has_is_not_sent_again(client: httpx2.Client) -> None:
    first = client.get("/")
    again = client.get("/", headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == page.POLICY
    assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200


def test_its_paths_are_the_applications() -> None:
    assert set(page.ENDPOINTS) <= set(ENDPOINTS)
