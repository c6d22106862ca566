"""What templates are told of tools, calls and results, and how a model's own format is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import fucina
from fucina import SamplingParams
from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.engine.model import Model
from fucina.errors import ConfigError, TemplateError
from fucina.server.deltas import CallArguments, CallStart
from fucina.server.tools.definition import Tool, ToolChoice, ToolUse
from fucina.server.tools.formats import call_format, hidden_markers
from fucina.server.tools.hermes import HermesFormat, WrittenHermesFormat
from fucina.server.tools.llama import LlamaFormat
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.text.template import ChatTemplate

QWEN = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|im_start|>assistant
{{ message.content if message.content is string else '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role == 'user' or not tools %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LLAMA = """\
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls|length != 1 %}{{ raise_exception('only one call at a time') }}{% endif %}
{%- set call = message.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
{%- elif message.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>

{{ message.content | tojson }}<|eot_id|>
{%- else %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{% if loop.first and tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{{- message.content }}<|eot_id|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""

#: Writes calls in a way of its own.
OTHER = "{{ tools | tojson if tools else '' }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"

WEATHER = Tool(
    "get_weather",
    "Tells the weather.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
    },
)
ADD = Tool(
    "add",
    "Adds.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a", "b"],
        "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    },
)


def call(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "How is it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("get_weather", '{"city":"Rome", "unit":"C"}'), call("add", {"a": 1, "b": 2}, "call_2")],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "3"}]},
]


def test_the_format_is_the_one_that_the_template_writes() -> None:
    assert type(call_format(ChatTemplate(QWEN))) is HermesFormat
    assert type(call_format(ChatTemplate(LLAMA))) is LlamaFormat
    for source in (OTHER, OTHER.replace("tools", "nothing"), "{{ raise_exception('no') }}", None):
        assert type(call_format(ChatTemplate(source))) is WrittenHermesFormat
    assert type(call_format(None)) is WrittenHermesFormat


def test_templates_that_know_tools_get_them() -> None:
    messages, tools = HermesFormat().messages(HISTORY, [WEATHER])
    text = ChatTemplate(QWEN).render(messages, tools=tools)
    assert text.count("Tells the weather.") == 1
    assert '\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "unit": "C"}}\n</tool_call>' in text
    assert "<tool_response>sunny</tool_response>" in text
    assert HermesFormat().messages(HISTORY, [])[1] is None
    assert HISTORY[1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Rome", "unit":"C"}'


def test_llamas_one_call_a_message() -> None:
    template = ChatTemplate(LLAMA)
    found = call_format(template)
    messages, tools = found.messages(HISTORY, [WEATHER, ADD])
    text = template.render(messages, tools=tools)
    order = [text.index(part) for part in ('{"city": "Rome"', "sunny", '{"a": 1, "b": 2}', '"3"')]
    assert order == sorted(order)
    with pytest.raises(TemplateError):
        template.render(HISTORY)


def test_templates_without_tools_get_text() -> None:
    messages, tools = WrittenHermesFormat().messages([{"role": "system", "content": "Be brief."}, *HISTORY], [WEATHER])
    assert tools is None
    system, user, assistant, results = messages
    assert str(system["content"]).startswith("Be brief.\n\n# Tools")
    assert json.dumps(WEATHER.described()) in str(system["content"])
    assert user == HISTORY[0]
    assert assistant == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "get_weather", "arguments": {"city":"Rome", "unit":"C"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    }
    said = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\n3\n</tool_response>"
    assert results == {"role": "user", "content": said}
    added, *rest = WrittenHermesFormat().messages(HISTORY[:1], [WEATHER])[0]
    assert added["role"] == "system" and rest == HISTORY[:1]
    assert WrittenHermesFormat().messages(HISTORY[:1], [])[0] == HISTORY[:1]


@pytest.mark.parametrize("form", [HermesFormat(), WrittenHermesFormat(), LlamaFormat()])
@pytest.mark.parametrize("arguments", ["{", "[]", '{"a": 1, "a": 2}', '{"a": NaN}', 3, "{}}", "[" * 100_000])
def test_malformed_arguments_are_refused_by_their_message(form: HermesFormat, arguments: Any) -> None:
    messages = [HISTORY[0], {"role": "assistant", "tool_calls": [call("add", "{}"), call("add", arguments)]}]
    with pytest.raises(ConfigError) as refused:
        form.messages(messages, [ADD])
    assert refused.value.option == "messages[1].tool_calls[1].function.arguments"


def test_markers_that_say_nothing_are_known() -> None:
    class Controlled(ByteTokenizer):
        def encode(self, text: str, special: bool = False, *, at_start: bool = True) -> list[int]:
            if special and text == "<|python_tag|>":
                return [300]
            return super().encode(text, special, at_start=at_start)

    assert hidden_markers(Controlled()) == {300: "<|python_tag|>"}
    assert hidden_markers(ByteTokenizer()) == {}


@pytest.fixture(scope="module")
def smollm2_model(smollm2_path: Path) -> Any:
    with fucina.load(smollm2_path) as model:
        yield model


CASES = [
    (ToolUse((WEATHER, ADD), ToolChoice("required")), SamplingParams(max_tokens=300)),
    (ToolUse((WEATHER, ADD), ToolChoice.named("add"), parallel=False), SamplingParams(max_tokens=100)),
    *(
        (ToolUse((WEATHER, ADD), choice), SamplingParams(max_tokens=300, temperature=1.5, seed=seed))
        for seed, choice in enumerate((ToolChoice("required"), ToolChoice.named("get_weather")))
    ),
]


@pytest.mark.model
def test_forced_calls_fit_their_schemas(smollm2_model: Model) -> None:
    form = call_format(smollm2_model.speech.template)  # type: ignore[attr-defined]
    assert type(form) is WrittenHermesFormat
    prompts, constraints = [], []
    for use, _ in CASES:
        messages, tools = form.messages([{"role": "user", "content": "What is 2 + 3?"}], use.offered)
        prompts.append(smollm2_model.speech.chat_ids(messages, tools=tools))
        constraints.append(form.constraint(use))
    answers = smollm2_model.generate_batch(prompts, [params for _, params in CASES], constraints=constraints)
    for (use, _), answer in zip(CASES, answers, strict=True):
        assert answer.satisfied
        parser = form.parser(use)
        pieces = [*(piece for letter in answer.text for piece in parser.feed(letter)), *parser.flush()]
        starts = [piece for piece in pieces if isinstance(piece, CallStart)]
        assert 1 <= len(starts) <= (16 if use.parallel else 1)
        for start in starts:
            tool = next(tool for tool in use.callable if tool.name == start.name)
            written = "".join(p.text for p in pieces if isinstance(p, CallArguments) and p.call == start.call)
            jsonschema.validate(json.loads(written), dict(tool.parameters or {}))
        assert len(pieces) == sum(isinstance(piece, CallStart | CallArguments) for piece in pieces)


ANY = Tool("note", parameters={"type": "object", "additionalProperties": {"enum": [0]}, "minProperties": 1})


@pytest.mark.parametrize(
    ("use", "taken", "refused"),
    [
        (ToolUse((ANY,), ToolChoice("required")), '<tool_call>\n{"name": "note", "arguments": {"a": 0, "a', '": 0}'),
        (ToolUse((WEATHER,), ToolChoice("required")), "", "Hello"),
        (ToolUse((Tool("f", strict=True),)), 'a <tool_ "call', ""),
        (ToolUse((Tool("f", strict=True),)), '<<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', ""),
        (ToolUse((Tool("f", strict=True),)), 'a <tool_call>\n{"name": "f", "arguments": {', '"'),
        (ToolUse((Tool("f", strict=True), Tool("g"))), '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_c', ""),
    ],
)
def test_what_a_grammar_lets_pass(use: ToolUse, taken: str, refused: str) -> None:
    constraint = HermesFormat().constraint(use)
    assert constraint is not None
    matcher = Compiler(GrammarVocabulary(ByteTokenizer())).matcher(constraint)
    text = (taken + refused).encode()
    n_taken = 0
    while n_taken < len(text) and matcher.valid_prefix_len((text[n_taken],)):
        matcher.consume(text[n_taken])
        n_taken += 1
    assert text[:n_taken].decode() == taken
