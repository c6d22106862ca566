from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest

from fucina.errors import BadHeader, TemplateError
from fucina.text.template import ChatTemplate
from fucina.text.vocabulary import Vocabulary

Build = Callable[..., dict[str, Any]]


def _templates() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("chat_templates", Path(__file__).with_name("templates.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.ALL
    return found


TEMPLATES = _templates()

CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Roma é <b>", "n": 1.0}},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'Today\'s weather & "more" <here>',
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "n": {"minimum": 1.0}},
                "required": [],
            },
        },
    }
]
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hi, what's 1 < 2 & 3 > 2?\n"}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "  spaces  "}],
    "turns": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb "},
        {"role": "user", "content": "日本 😀 \u2028 {{ messages }}"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": ""},
    ],
    "calls": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "22", "tool_call_id": "call12345"},
    ],
    "two users": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "none": [],
}
EXTRA = {"b": None, "a": 1, "c": "x"}


def common_usage(source: str, **context: object) -> str:
    """Render as `transformers` does, whose use of jinja2 chat templates are written for."""

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    source = source.replace("endgeneration", "endif").replace("generation -%}", "if true -%}")
    return environment.from_string(source.replace("generation %}", "if true %}")).render(**context)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_renders_as_the_common_jinja2_usage_does(
    name: str, conversation: str, generate: bool, tools: list[Any] | None
) -> None:
    source, messages = TEMPLATES[name], CONVERSATIONS[conversation]
    variables: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    options: dict[str, Any] = {"extra": EXTRA, "date_string": "1 Jan 2026", "enable_thinking": False}
    if name == "PARTS":
        messages = [
            {**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages if m["content"] is not None
        ]
    try:
        expected: str | None = common_usage(
            source, messages=messages, add_generation_prompt=generate, tools=tools, **variables, **options
        )
    except (jinja2.TemplateError, TypeError):
        expected = None
    template = ChatTemplate(source, variables=variables)
    if expected is None:
        with pytest.raises(TemplateError):
            template.render(messages, add_generation_prompt=generate, tools=tools, **options)
    else:
        assert template.render(messages, add_generation_prompt=generate, tools=tools, **options) == expected


def test_a_refusal_carries_the_templates_own_message() -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(TEMPLATES["GEMMA"]).render(CONVERSATIONS["two users"])
    assert str(caught.value) == "Conversation roles must alternate user/assistant/user/assistant/..."


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% for %}", "line 1"),
        ("a\n{{ 'x' | nosuch }}", "nosuch.*line 2"),
        ("{{ messages[0].a.b }}", "undefined"),
        ("{% include 'other' %}", "other"),
        ("{{ 1 / 0 }}", "1 / 0"),
    ],
)
def test_a_broken_template_says_where(source: str, says: str) -> None:
    with pytest.raises(TemplateError, match=says):
        ChatTemplate(source).render(CONVERSATIONS["one"])


def test_without_a_template_chat_is_refused_with_a_way_out(vocabulary: Build) -> None:
    metadata = vocabulary("llama")
    del metadata["tokenizer.chat_template"]
    template = ChatTemplate.from_metadata(metadata, Vocabulary.from_metadata(metadata))
    assert not template.exists
    with pytest.raises(TemplateError, match=r"no chat template.*raw completion"):
        template.render(CONVERSATIONS["one"])


def test_metadata_gives_the_template_and_its_tokens(vocabulary: Build) -> None:
    metadata = vocabulary("llama")
    metadata["tokenizer.chat_template"] = (
        "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ messages[0].content }}"
    )
    metadata["tokenizer.chat_template.tool_use"] = "{{ tools | length }} tools"
    template = ChatTemplate.from_metadata(metadata, Vocabulary.from_metadata(metadata))
    assert template.exists
    assert template.render([{"role": "user", "content": "x"}]) == "<bos><eos><unk><pad>x"
    assert template.render([{"role": "user", "content": "x"}], tools=TOOLS) == "1 tools"
    with pytest.raises(BadHeader, match="chat_template"):
        ChatTemplate.from_metadata({**metadata, "tokenizer.chat_template": 3}, Vocabulary.from_metadata(metadata))


def test_content_takes_the_form_that_the_template_wants() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    wants_parts, wants_text = ChatTemplate(TEMPLATES["PARTS"]), ChatTemplate(TEMPLATES["CHATML"])
    assert wants_parts.render([{"role": "user", "content": "hello"}]) == "<|user|>hello<|assistant|>"
    assert wants_parts.render([{"role": "user", "content": parts}]) == "<|user|>ab<|assistant|>"
    assert "user\na\nb<|im_end|>" in wants_text.render([{"role": "user", "content": parts}])
    with pytest.raises(TemplateError, match="part without text"):
        wants_text.render([{"role": "user", "content": [{"type": "image", "image": "x"}]}])


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}, "\ud800", float])
def test_values_that_no_template_takes_are_refused(value: object) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": value}])


def test_messages_must_be_mappings() -> None:
    with pytest.raises(TemplateError, match="mapping"):
        ChatTemplate("x").render(["hi"])  # type: ignore[list-item]


def test_the_clock_is_within_reach() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]).isdecimal()


@pytest.fixture
def secrets() -> Iterator[list[str]]:
    yield [
        "{{ ''.__class__ }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__self__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ lipsum.__globals__['os'] }}",
    ]


def test_no_way_leads_out_of_the_sandbox(secrets: list[str]) -> None:
    for source in secrets:
        try:
            shown = ChatTemplate(source).render(CONVERSATIONS["one"])
        except TemplateError:
            continue
        assert shown in ("", "none", "None"), source
