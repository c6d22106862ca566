"""Hostile templates end in a named error, soon, and leave this process as it was."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Iterator

import pytest

from fucina.errors import TemplateError
from fucina.text.rendering import Renderer

DOUBLE = (
    "{{% set ns = namespace(x={0}) %}}{{% for i in range(60) %}}{{% set ns.x = {1} %}}{{% endfor %}}"
    "{{{{ ns.x | length }}}}"
)
NEST = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"
HOSTILE = {
    "repeat": "{{ 'a' * 10 ** 9 }}",
    "repeat twice": "{{ ('a' * 100000 * 100000) | length }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format method": "{{ '{:1000000000d}'.format(1) }}",
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "a billion steps": "{% for i in range(10 ** 9) %}{% endfor %}",
    "macro recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "loop recursion": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "doubling text": DOUBLE.format("'aaaaaaaa'", "ns.x ~ ns.x"),
    "doubling lists": DOUBLE.format("[1]", "ns.x + ns.x"),
    "doubling blocks": "{% set x = 'aaaaaaaaaa' %}" + "{% set x %}{{ x * 10 }}{% endset %}" * 12 + "{{ x | length }}",
    "replace": "{% set a = 'a' * 1000 %}{% set b = a | replace('a', a) %}{{ b | replace('a', b) | length }}",
    "join": "{% set a = 'a' * 1000000 %}{{ ([a] * 1000000) | join }}",
    "indent": "{{ ('\n' * 1000000) | indent(1000000, true, true) | length }}",
    "split": "{{ ('a' * 100000000).split('a') | length }}",
    "nested values": NEST,
    "parentheses": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "long sum": "{{ 1" + " + 1" * 100_000 + " }}",
    "long negation": "{{ " + "not " * 100_000 + "1 }}",
    "long pipe": "{{ x" + " | e" * 100_000 + " }}",
    "nested blocks": "{% if x %}" * 20_000 + "{% endif %}" * 20_000,
}


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    renderer = Renderer()
    yield renderer
    renderer.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_stopped(renderer: Renderer, name: str) -> None:
    renderer.close()  # what a worker took is counted when it has ended
    before, cpu_before_s = peak_kib(resource.RUSAGE_SELF), children_cpu_s()
    # until a child becomes another program it counts as large as this one
    children_before = max(before, peak_kib(resource.RUSAGE_CHILDREN))
    with pytest.raises(TemplateError, match="chat template"):
        renderer.render(HOSTILE[name], {})
    renderer.close()
    assert children_cpu_s() - cpu_before_s < 2  # some 0.1 s, and 0.3 where the kernel had to end it
    assert peak_kib(resource.RUSAGE_SELF) - before < 50 << 10
    assert peak_kib(resource.RUSAGE_CHILDREN) <= max(children_before, 200 << 10)
    assert renderer.render("{{ x }}", {"x": "as before"}) == "as before"


def peak_kib(whose: int) -> int:
    return resource.getrusage(whose).ru_maxrss


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_honest_long_conversations_pass(renderer: Renderer) -> None:
    messages = [{"role": "user", "content": "word " * 200} for _ in range(2000)]
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim | replace('o', '0') }}{% endfor %}"
    expected = "".join("<|user|>" + ("word " * 200).strip().replace("o", "0") for _ in messages)
    assert renderer.render(source, {"messages": messages}) == expected


def test_threads_take_turns(renderer: Renderer) -> None:
    wrong: list[str] = []

    def ask(name: str) -> None:
        for i in range(30):
            text = renderer.render("{{ name }} {{ i }}" + name, {"name": name, "i": i})
            if text != f"{name} {i}{name}":
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_has_a_worker_of_its_own(renderer: Renderer) -> None:
    renderer.render("warm", {})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, json.dumps(renderer.render("{{ x }}", {"x": 1})).encode())
            renderer.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b'"1"'
    assert renderer.render("{{ x }}", {"x": 2}) == "2"


def test_close_ends_the_worker_and_render_starts_another(renderer: Renderer) -> None:
    renderer.render("x", {})
    renderer.close()
    renderer.close()
    assert renderer.render("y", {}) == "y"
