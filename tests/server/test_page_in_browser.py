"""The chat page in a real Chromium, without a screen.

Needs playwright (the extra `browser`) and a Chromium: what FUCINA_TEST_CHROMIUM names, or chromium-headless-shell or
chromium on the path. Debian's full chromium takes long to start where there is no desktop; its headless shell does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import pytest

from fucina import SamplingParams
from fucina.server.state import ServerState
from fucina.testing.byte_tokenizer import ASSISTANT, EOS

api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[browser]'")
expect = api.expect
expect.set_options(timeout=120_000)

CHROMIUM = os.environ.get("FUCINA_TEST_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: apt-get install chromium-headless-shell")

SCHEMA = {
    "type": "object",
    "properties": {"first_name": {"type": "string", "maxLength": 12}, "is_tall": {"type": "boolean"}},
    "required": ["first_name", "is_tall"],
    "additionalProperties": False,
}
#: Keeps the length of the newest answer each time that the page changes.
WATCH = """new MutationObserver(() => {
  const shown = [...document.querySelectorAll(".growing .body")].at(-1);
  if (shown) (window.lengths ??= []).push(shown.textContent.length);
}).observe(document, {subtree: true, childList: true, characterData: true});"""
#: Markdown to markup by the page's own module, all at once or character by character.
RENDER = """async ([text, marks, grows]) => {
  const { MarkdownView } = await import("/ui/nodes.js");
  const root = document.createElement("div");
  const view = new MarkdownView(root);
  for (let n = grows ? 1 : text.length; n <= text.length; n++) view.show(text.slice(0, n), marks.slice(0, n));
  return [root.innerHTML, root.textContent];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page of a server: `show(address)`. Whatever it asks of elsewhere, and its errors, fail the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def opened(address: str, *, name: str = "scripted") -> Any:
        context = browser.new_context(viewport={"width": 1000, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(WATCH)
        page.on("request", lambda request: None if request.url.startswith(address) else problems.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.goto(address)
        if name:
            expect(page).to_have_title(name)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def ask(page: Any, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def set_up(page: Any, **fields: str) -> None:
    """Fill in the settings and close them."""
    page.get_by_role("button", name="Settings").click()
    for name, text in fields.items():
        page.locator(f"#settings [name={name}]").fill(text)
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#settings")).to_be_hidden()


def ended(page: Any, n: int = 1) -> Any:
    """The newest of `n` answers, once all have ended."""
    expect(page.locator(".answer:not(.growing)")).to_have_count(n, timeout=300_000)
    return page.locator(".answer").last


def saying(text: str, pause_s: float = 0.0) -> Callable[[Sequence[int]], int]:
    """A script that answers everything with `text`."""
    said = text.encode()

    def script(prefix: Sequence[int]) -> int:
        time.sleep(pause_s)
        n = len(prefix) - 1 - max((i for i, token in enumerate(prefix) if token == ASSISTANT), default=0)
        return said[n] if n < len(said) else EOS

    return script


def test_an_answer_grows_and_tells_how_it_was_made(
    show: Callable[..., Any], smollm2_server: str, smollm2_state: ServerState
) -> None:
    page = show(smollm2_server, name="smollm2")
    set_up(page, temperature="0", max_tokens="120")
    ask(page, "List ten animals.")
    answer = ended(page)
    assert smollm2_state.loaded is not None
    question = [{"role": "user", "content": "List ten animals."}]
    wanted = smollm2_state.loaded.model.chat(question, SamplingParams(max_tokens=120))
    words = re.sub(r"^\s*(\d+\.|[-*])(\s|$)", "", wanted.text, flags=re.MULTILINE).split()
    assert answer.locator(".body").inner_text().split() == words
    assert len(set(page.evaluate("window.lengths"))) > 3
    facts = answer.locator(".facts").inner_text()
    assert re.search(r"\d+ tok/s", facts) and re.search(r"first after \d+ ms", facts)
    assert f"{len(wanted.ids)} tokens" in facts
    # the second question's prompt begins with the first turn, which is in the cache
    ask(page, "Thanks!")
    share = re.search(r"(\d+)%\s*cached", ended(page, 2).locator(".prompt").inner_text())
    assert share is not None and int(share[1]) > 50


def test_tokens_of_the_grammar_are_tinted(show: Callable[..., Any], smollm2_server: str) -> None:
    page = show(smollm2_server, name="smollm2")
    set_up(page, schema=json.dumps(SCHEMA), temperature="0")
    ask(page, "Describe Ada.")
    answer = ended(page)
    assert set(json.loads(answer.locator("pre").inner_text())) == {"first_name", "is_tall"}
    forced = answer.locator(".body .grammar")
    assert "first_name" in "".join(forced.all_inner_texts())
    assert re.search(r"grammar \d+%", answer.locator(".legend").inner_text())
    tint = "node => getComputedStyle(node).backgroundColor"
    assert forced.first.evaluate(tint) != "rgba(0, 0, 0, 0)"
    page.get_by_label("Show where tokens come from").uncheck()
    assert forced.first.evaluate(tint) == "rgba(0, 0, 0, 0)"
    expect(answer.locator(".legend")).to_be_hidden()
    page.reload()
    expect(page.get_by_label("Show where tokens come from")).not_to_be_checked()
    page.get_by_role("button", name="Settings").click()
    expect(page.locator("#settings [name=schema]")).to_have_value(json.dumps(SCHEMA))


def test_drafts_are_tinted_through_the_markdown(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    page = show(serve(saying("")))
    html, _ = page.evaluate(RENDER, ["a **bc** d", "mmmmddmdmm", False])
    span = '<span class="draft" title="from an accepted draft">'
    assert html == f"<p>a <strong>{span}bc</span></strong> d</p>"


def test_stop_ends_the_answer_here_and_on_the_server(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    address = serve(saying("word " * 80, pause_s=0.02))
    page = show(address)
    for n, stop in enumerate((lambda: page.keyboard.press("Escape"), page.get_by_role("button", name="Stop").click), 1):
        ask(page, "Go on.")
        expect(page.locator(".growing .body")).to_contain_text("word word")
        expect(page.locator("#live")).to_contain_text("tok/s")
        stop()
        answer = ended(page, n)
        assert "stopped" in answer.locator(".facts").inner_text()
        assert 1 < answer.locator(".body").inner_text().count("word") < 80
        while "fucina_live_requests 0.0" not in httpx2.get(f"{address}/metrics").text:
            time.sleep(0.02)
        expect(page.get_by_role("button", name="Send")).to_be_visible()


HOSTILE = """<img src=x onerror="document.title='taken'"> <script>document.title='taken'</script>

[click](javascript:document.title='taken') [data](data:text/html,<script>1</script>) ![pixel](https://evil.test/pixel)

```html"><img src=x onerror=alert(1)>
</code></pre><svg onload=alert(1)>
```
| <b>a</b> | b |
|---|---|
| <iframe src="//evil.test"> | [x](https://ok.test "title") |"""


def test_hostile_text_stays_text(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    name = '"><img src=x onerror="document.title=1">'
    page = show(serve(saying(HOSTILE)), name="")
    listed = {"data": [{"id": name, "context_length": 512}]}
    page.route("**/v1/models", lambda route: route.fulfill(json=listed))
    page.reload()
    expect(page).to_have_title(name)
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    # the server knows its model by another name: it refuses, and the refusal quotes this one
    ask(page, "<b>hello</b>")
    expect(page.get_by_role("alert").first).to_contain_text("<img src=x")
    listed["data"][0]["id"] = "scripted"
    page.reload()
    ask(page, "<b>hello</b>")
    body = ended(page).locator(".body")
    assert body.locator("img, script, iframe, svg, b").count() == 0
    assert "<img src=x onerror=" in body.inner_text() and "<svg onload=" in body.inner_text()
    addresses = [link.get_attribute("href") for link in body.locator("a").all()]
    assert addresses == ["https://evil.test/pixel", "https://ok.test/"]
    assert {link.get_attribute("rel") for link in body.locator("a").all()} == {"noopener noreferrer nofollow"}
    assert page.locator(".question b").count() == 0
    expect(page).to_have_title("scripted")


MARKDOWN = """# Title #

Some *slanted*, **bold**, ***both***, ~~gone~~ and `code *as is*` with 2 * 3 * 4 and snake_case_name \\*kept\\*.
See [the *page*](https://a.test/x) or https://b.test/y.

1. one
   - inner
   - second

     more
2. two

> quoted
> - item

```python
if a < b:

    print("**no**")
```

| name | n |
|:--|--:|
| a \\| b | 1 |

---
end"""
A = 'target="_blank" rel="noopener noreferrer nofollow"'
RENDERED = f"""<h3>Title</h3>
<p>Some <em>slanted</em>, <strong>bold</strong>, <strong><em>both</em></strong>, <del>gone</del> and
 <code>code *as is*</code> with 2 * 3 * 4 and snake_case_name *kept*.
 See <a href="https://a.test/x" title="https://a.test/x" {A}>the <em>page</em></a>
 or <a href="https://b.test/y" title="https://b.test/y" {A}>https://b.test/y</a>.</p>
<ol start="1"><li>one<ul><li>inner</li><li>second<p>more</p></li></ul></li><li>two</li></ol>
<blockquote><p>quoted</p><ul><li>item</li></ul></blockquote>
<div class="code-block"><div class="code-bar"><span>python</span>
<button type="button" data-copies="if a &lt; b:

    print(&quot;**no**&quot;)">Copy</button></div><pre><code>if a &lt; b:

    print("**no**")</code></pre></div>
<div class="table-frame"><table><thead><tr><th class="start">name</th><th class="end">n</th></tr></thead>
<tbody><tr><td class="start">a | b</td><td class="end">1</td></tr></tbody></table></div>
<hr><p>end</p>"""


def squeezed(html: str) -> str:
    """Without the line ends that the expectation is broken at."""
    return re.sub(r"\s*\n\s*", "", html).replace(" ", "")


def test_markdown_becomes_what_it_means_however_it_arrives(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    page = show(serve(saying("")))
    whole, _ = page.evaluate(RENDER, [MARKDOWN, "m" * len(MARKDOWN), False])
    assert squeezed(whole) == squeezed(RENDERED)
    grown, _ = page.evaluate(RENDER, [MARKDOWN, "m" * len(MARKDOWN), True])
    assert grown == whole
    for unit in (
        "*a ",
        "[",
        "[a](",
        "`",
        "``` ",
        "> ",
        "- ",
        "|",
        "_a",
        "**a*",
        "\\",
        "https://",
        "![",
        "# ",
        "\n- \n",
    ):
        text = unit * 4000
        _, shown = page.evaluate(RENDER, [text, "m" * len(text), False])
        assert isinstance(shown, str)


def test_turns_can_be_changed_and_asked_again(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    page = show(serve(saying("fine")))
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "POST" else None)
    set_up(page, system="Be kind.", seed="7", top_p="0.5")
    prompt = page.get_by_label("Message")
    prompt.fill("one")
    prompt.press("Shift+Enter")
    prompt.press("End")
    page.keyboard.type("more")
    page.keyboard.press("Enter")
    ended(page)
    ask(page, "two")
    ended(page, 2)
    page.get_by_role("button", name="Regenerate").last.click()
    ended(page, 2)
    page.get_by_role("button", name="Edit").first.click()
    expect(prompt).to_have_value("one\nmore")
    page.keyboard.press("Escape")
    expect(page.locator(".answer")).to_have_count(2)
    page.get_by_role("button", name="Edit").first.click()
    ask(page, "three")
    ended(page)
    system, first = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "one\nmore"}
    second = [system, first, {"role": "assistant", "content": "fine"}, {"role": "user", "content": "two"}]
    wanted = [[system, first], second, second, [system, {"role": "user", "content": "three"}]]
    assert [body["messages"] for body in sent] == wanted
    assert {(body["seed"], body["top_p"]) for body in sent} == {(7, 0.5)}
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)


def test_failures_say_what_to_do_and_lose_nothing(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    page = show(serve(saying("welcome"), api_keys=("a-key-of-ours",)), name="")
    alert, prompt = page.locator("#notice"), page.get_by_label("Message")
    expect(alert).to_contain_text("no API key was sent")
    page.get_by_label("API key").fill("a-key-of-ours")
    page.keyboard.press("Enter")
    expect(page).to_have_title("scripted")
    assert page.evaluate("localStorage.length + document.cookie.length") <= 1  # the settings, and no key
    ask(page, "x" * 600)
    expect(alert).to_contain_text("Begin a new chat, or shorten")
    expect(prompt).to_have_value("x" * 600)
    page.get_by_role("button", name="Settings").click()
    page.locator("#settings [name=temperature]").fill("warm")
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#settings-error")).to_contain_text("not “warm”")
    page.locator("#settings [name=temperature]").fill("")
    page.get_by_role("button", name="Done").click()
    page.route("**/v1/chat/completions", lambda route: route.abort())
    ask(page, "hello")
    expect(alert).to_contain_text("cannot be reached")
    expect(page.locator("article")).to_have_count(0)
    page.unroute("**/v1/chat/completions")
    page.keyboard.press("Enter")
    assert ended(page).locator(".body").inner_text() == "welcome"
    expect(alert).to_be_hidden()


def test_it_is_dark_for_who_likes_it_dark_and_fits_a_phone(show: Callable[..., Any], serve: Callable[..., str]) -> None:
    page = show(serve(saying("fine")))

    def brightness() -> int:
        color: str = page.locator("body").evaluate("node => getComputedStyle(node).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    light = brightness()
    page.emulate_media(color_scheme="dark")
    assert brightness() < 150 < 600 < light
    page.set_viewport_size({"width": 360, "height": 640})
    ask(page, "word" * 50)
    ended(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
