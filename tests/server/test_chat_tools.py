"""Tools in POST /v1/chat/completions: calls that are forced, calls that a model writes by itself, and its thoughts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import openai
import pytest
from jsonschema import validate

from fucina.testing.byte_tokenizer import ASSISTANT, EOS

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}},
]
ASKED: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": TOOLS,
    "max_tokens": 200,
    "temperature": 0,
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture
def client(smollm2_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_server}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_named_call_is_made_once_and_fits(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(**ASKED, tool_choice=NAMED, parallel_tool_calls=False).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    validate(json.loads(call.function.arguments), WEATHER)


def test_streamed_calls_are_the_same(client: openai.OpenAI) -> None:
    options = {**ASKED, "tool_choice": "required", "temperature": 0.7, "seed": 3}
    whole = client.chat.completions.create(**options).choices[0]
    assert whole.message.tool_calls
    with client.chat.completions.stream(**options) as stream:
        for _ in stream:
            pass
        grown = stream.get_final_completion().choices[0]
    assert grown.finish_reason == whole.finish_reason
    assert [call.function.arguments for call in grown.message.tool_calls or ()] == [
        call.function.arguments for call in whole.message.tool_calls
    ]


def test_results_of_tools_go_back(client: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees and sunny"},
    ]
    options = {**ASKED, "messages": messages, "max_tokens": 20}
    assert client.chat.completions.create(**options, tool_choice="none").choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "none_such"}}}, 400, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, 400, "tool_choice"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, 400, "tools[1].function.name"),
        ({"response_format": {"type": "json_object"}}, 501, "response_format"),
        ({"reasoning_effort": "high"}, 400, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, 400, "enable_thinking"),
        ({"chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs.messages"),
    ],
)
def test_refusals_name_the_field(smollm2_server: str, fields: dict[str, Any], status: int, param: str) -> None:
    reply = httpx2.post(f"{smollm2_server}/v1/chat/completions", json=ASKED | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


def test_malformed_arguments_in_the_history_are_told_as_such(smollm2_server: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{"}}
    messages = [*ASKED["messages"], {"role": "assistant", "content": "", "tool_calls": [call]}]
    reply = httpx2.post(f"{smollm2_server}/v1/chat/completions", json=ASKED | {"messages": messages})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("messages[")


def saying(text: str) -> Callable[[Sequence[int]], int]:
    """A script that says this as its answer."""
    said = [*text.encode(), EOS]

    def script(prefix: Sequence[int]) -> int:
        n_said = len(prefix) - 1 - max(i for i, token in enumerate(prefix) if token == ASSISTANT)
        return said[min(n_said, len(said) - 1)]

    return script


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "content", "names", "reason"),
    [
        (f"Let me see. {CALL}", "Let me see.", ["get_weather"], "tool_calls"),
        (f"{CALL}\n{CALL}", "", ["get_weather", "get_weather"], "tool_calls"),
        ("No call <tool_call> here", "No call <tool_call> here", [], "stop"),
        ('<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>', None, [], "stop"),
    ],
)
def test_calls_that_a_model_writes_by_itself(
    serve: Callable[..., str], text: str, content: str | None, names: list[str], reason: str, stream: bool
) -> None:
    with openai.OpenAI(base_url=f"{serve(saying(text), context=4096)}/v1", api_key="none", max_retries=0) as client:
        options = {**ASKED, "model": "scripted"}
        if stream:
            with client.chat.completions.stream(**options) as events:
                choice: Any = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**options).choices[0]
    assert choice.finish_reason == reason
    assert (choice.message.content or "").strip() == (text if content is None else content)
    assert [call.function.name for call in choice.message.tool_calls or ()] == names
