"""Take docs/images/chat-page.png: the chat page in the middle of an answer, with its tokens' origins tinted.

Serves SmolLM2 on a free port and drives a Chromium through playwright (the extra `browser`). The first answer keeps to
a JSON schema; the second repeats much of what the conversation already has, and is caught while it grows.

Usage: make_screenshot.py [--dark] [OUTPUT]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from socket import socket
from time import sleep
from typing import Any

from playwright.sync_api import expect, sync_playwright

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "chat-page.png"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"type": "string", "maxLength": 20},
        "is_capital": {"type": "boolean"},
    },
    "required": ["city", "country", "is_capital"],
    "additionalProperties": False,
}
QUESTION = """Explain how this class works, step by step, and show how to use it:

```python
class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        self.balance += amount
```"""
#: Where the second answer is caught.
CAUGHT = "automatically called"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=OUTPUT)
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "fucina", "serve", "smollm2", "--port", address.rpartition(":")[2]]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(server, address)
        with sync_playwright() as playwright:
            chromium = os.environ.get("FUCINA_TEST_CHROMIUM") or shutil.which("chromium-headless-shell")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            scheme = "dark" if args.dark else "light"
            page = browser.new_page(viewport={"width": 960, "height": 1090}, color_scheme=scheme)
            page.goto(address)
            converse(page)
            server.send_signal(signal.SIGSTOP)  # hold still for the picture
            page.screenshot(path=args.output)
            server.send_signal(signal.SIGCONT)
            browser.close()
    finally:
        server.terminate()
        server.wait()
    print(f"{args.output}: {args.output.stat().st_size} bytes")
    return 0


def wait(server: subprocess.Popen[bytes], address: str) -> None:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health"):
                return
        except OSError:
            sleep(0.2)
    raise SystemExit("the server ended: try 'fucina serve smollm2'")


def converse(page: Any) -> None:
    """Stop where the second answer has explained a little."""
    settings(page, temperature="0", schema=json.dumps(SCHEMA))
    ask(page, "Tell me about the city of Paris.")
    expect(page.locator(".answer:not(.growing)")).to_have_count(1, timeout=60_000)
    settings(page, schema="")
    ask(page, QUESTION)
    answer = page.locator(".answer").last
    while CAUGHT not in answer.inner_text():
        expect(answer).to_have_class("answer growing")


def settings(page: Any, **fields: str) -> None:
    page.get_by_role("button", name="Settings").click()
    for name, text in fields.items():
        page.locator(f"#settings [name={name}]").fill(text)
    page.get_by_role("button", name="Done").click()


def ask(page: Any, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


if __name__ == "__main__":
    sys.exit(main())
