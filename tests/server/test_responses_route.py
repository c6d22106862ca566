"""POST /v1/responses, by OpenAI's own client where it can say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import orjson
import pytest
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import BaseModel

from fucina import SamplingParams
from fucina.server.state import ServerState
from fucina.server.wire.responses_reply import ResponseReply

QUESTION = "Name three primary colors."
MESSAGES = [{"role": "user", "content": QUESTION}]
GREEDY: dict[str, Any] = {"model": "smollm2", "input": QUESTION, "temperature": 0, "max_output_tokens": 24}


@pytest.fixture
def client(smollm2_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_server}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(address: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(f"{address}/v1/responses", json=body, timeout=300)


def events_of(address: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, each under its own name."""
    found = []
    for block in post(address, body | {"stream": True}).text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = orjson.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
    return found


def timeless(response: dict[str, Any]) -> dict[str, Any]:
    """A response without its names, times and what the cache did."""
    kept = {key: value for key, value in response.items() if key not in ("id", "created_at", "completed_at")}
    usage = {key: value for key, value in response["usage"].items() if key.startswith(("output", "total"))}
    output = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    return kept | {"usage": usage, "output": output}


def test_the_reply_is_the_librarys(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(MESSAGES, SamplingParams(max_tokens=5))
    body = GREEDY | {"max_output_tokens": 5}
    reply = client.responses.create(**body)
    assert reply.output_text == wanted.text
    assert wanted.finish_reason == "length"
    assert reply.status == "incomplete"
    assert reply.incomplete_details is not None and reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (len(wanted.prompt_ids), len(wanted.ids))
    assert reply.usage.total_tokens == len(wanted.prompt_ids) + len(wanted.ids)
    streamed = list(client.responses.create(**body, stream=True))
    assert "".join(event.delta for event in streamed if event.type == "response.output_text.delta") == wanted.text
    assert streamed[-1].type == "response.incomplete"
    assert streamed[-1].response.output_text == wanted.text


def test_an_answer_that_ends_by_itself_is_completed(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(MESSAGES, SamplingParams(max_tokens=300))
    assert wanted.finish_reason == "stop"
    reply = client.responses.create(**GREEDY | {"max_output_tokens": 300})
    assert (reply.status, reply.incomplete_details, reply.output_text) == ("completed", None, wanted.text)
    assert reply.completed_at is not None
    with client.responses.stream(**GREEDY | {"max_output_tokens": 300}) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == wanted.text
    assert final.output_text == wanted.text
    assert final.usage is not None and final.usage.input_tokens_details.cached_tokens > 0


def test_a_stream_has_the_whole_skeleton(smollm2_server: str) -> None:
    body = GREEDY | {"max_output_tokens": 3}
    events = events_of(smollm2_server, body)
    kinds = [event["type"].removeprefix("response.") for event in events if "delta" not in event]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert {event["output_index"] for event in events if "output_index" in event} == {0}
    assert {event["item_id"] for event in events if "item_id" in event} == {events[2]["item"]["id"]}
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    assert events[2]["item"]["content"] == []
    assert events[-2]["item"] == events[-1]["response"]["output"][0]
    whole = post(smollm2_server, body).json()
    assert timeless(events[-1]["response"]) == timeless(whole)
    ResponseReply.model_validate_json(orjson.dumps(whole))


ITEMS: list[tuple[Any, list[dict[str, Any]]]] = [
    ([{"role": "user", "content": QUESTION}], MESSAGES),
    ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}], MESSAGES),
    (
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}],
            },
            {"role": "user", "content": [{"type": "input_text", "text": "Red"}, {"type": "input_text", "text": "or?"}]},
        ],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Red\nor?"},
        ],
    ),
]


@pytest.mark.parametrize(("items", "messages"), ITEMS, ids=["easy", "typed", "replayed"])
def test_items_are_messages(
    client: openai.OpenAI, smollm2_state: ServerState, items: Any, messages: list[dict[str, Any]]
) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(messages, SamplingParams(max_tokens=12))
    reply = client.responses.create(**GREEDY | {"input": items, "max_output_tokens": 12})
    assert reply.output_text == wanted.text
    assert reply.usage is not None and reply.usage.input_tokens == len(wanted.prompt_ids)


def test_instructions_come_first(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    messages = [{"role": "system", "content": "You are a pirate."}, *MESSAGES]
    wanted = smollm2_state.loaded.model.chat(messages, SamplingParams(max_tokens=24))
    reply = client.responses.create(**GREEDY, instructions="You are a pirate.")
    assert (reply.output_text, reply.instructions) == (wanted.text, "You are a pirate.")


def test_a_reply_is_read_back_as_input(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    first = client.responses.create(**GREEDY)
    items = [*MESSAGES, *(item.model_dump() for item in first.output), {"role": "user", "content": "Why?"}]
    said = [*MESSAGES, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "Why?"}]
    wanted = smollm2_state.loaded.model.chat(said, SamplingParams(max_tokens=8))
    reply = client.responses.create(**GREEDY | {"input": items, "max_output_tokens": 8})
    assert reply.output_text == wanted.text


class Color(BaseModel):
    name: str
    is_warm: bool


def test_parse_gives_an_instance(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "smollm2", "input": "Describe red.", "max_output_tokens": 100, "temperature": 0}
    reply = client.responses.parse(**options, text_format=Color)
    assert isinstance(reply.output_parsed, Color)
    with client.responses.stream(**options, text_format=Color) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == reply.output_parsed


def test_any_json(client: openai.OpenAI) -> None:
    options = GREEDY | {"max_output_tokens": 300, "text": {"format": {"type": "json_object"}}}
    reply = client.responses.create(**options)
    assert isinstance(orjson.loads(reply.output_text), dict)


def test_logprobs_have_openais_shape(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(MESSAGES, SamplingParams(max_tokens=24, logprobs=2))
    assert wanted.logprobs is not None
    said = [entry.logprob for entry in wanted.logprobs if entry.token != wanted.stop]
    included: dict[str, Any] = {"include": ["message.output_text.logprobs"]}
    for options, n_top in ((included, 0), (included | {"top_logprobs": 2}, 2)):
        reply = client.responses.create(**GREEDY, **options)
        (item,) = reply.output
        assert isinstance(item, ResponseOutputMessage)
        (part,) = item.content
        assert isinstance(part, ResponseOutputText) and part.logprobs is not None
        assert [entry.logprob for entry in part.logprobs] == said
        assert {len(entry.top_logprobs) for entry in part.logprobs} == {n_top}
        assert b"".join(bytes(entry.bytes) for entry in part.logprobs).decode() == wanted.text
        streamed = list(client.responses.create(**GREEDY, **options, stream=True))
        told = [one.logprob for e in streamed if e.type == "response.output_text.delta" for one in e.logprobs]
        assert told == said


def test_what_was_taken_is_told(client: openai.OpenAI) -> None:
    reply = client.responses.create(
        **GREEDY | {"max_output_tokens": 1}, top_p=0.5, metadata={"key": "value"}, user="me", store=True
    )
    assert (reply.temperature, reply.top_p, reply.max_output_tokens) == (0.0, 0.5, 1)
    assert (reply.metadata, reply.user) == ({"key": "value"}, "me")
    assert reply.model_extra is not None and reply.model_extra["store"] is False


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"input": 5}, 400, "input"),
    ({"input": []}, 400, "input"),
    ({"input": [{"role": "user"}]}, 400, "input[0].content"),
    ({"input": [{"role": "user", "content": 5}]}, 400, "input[0].content"),
    ({"input": [{"type": "strange"}]}, 400, "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, 501, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, 501, "input[0].content[0]"),
    ({"previous_response_id": "resp_1"}, 501, "previous_response_id"),
    ({"conversation": "conv_1"}, 501, "conversation"),
    ({"background": True}, 501, "background"),
    ({"include": ["reasoning.encrypted_content"]}, 501, "include[0]"),
    ({"include": ["all"]}, 400, "include[0]"),
    ({"tools": [{"type": "web_search"}]}, 501, "tools[0]"),
    ({"tool_choice": {"type": "mcp", "server_label": "x"}}, 501, "tool_choice"),
    ({"tool_choice": "always"}, 400, "tool_choice"),
    ({"truncation": "auto"}, 501, "truncation"),
    ({"messages": []}, 400, "messages"),
    ({"model": "gpt-9"}, 404, "model"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "bogus"}}}}, 400, "text.format"),
    ({"max_output_tokens": 0}, 400, "max_output_tokens"),
    ({"input": "word " * 9000}, 400, "input"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_name_the_field(
    smollm2_server: str, fields: dict[str, Any], status: int, param: str, stream: bool
) -> None:
    reply = post(smollm2_server, GREEDY | fields | {"stream": stream})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == param, error
    assert error["message"]


def test_neutral_values_are_taken(smollm2_server: str) -> None:
    neutral = {"previous_response_id": None, "background": False, "truncation": "disabled", "service_tier": "auto"}
    assert post(smollm2_server, GREEDY | {"max_output_tokens": 1} | neutral).status_code == 200


def test_openais_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(**GREEDY | {"model": "gpt-9"})
    assert missing.value.param == "model"
    assert missing.value.request_id
    with pytest.raises(openai.BadRequestError):
        client.responses.create(**GREEDY | {"temperature": -1})


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "name": "weather", "description": "Weather of a city.", "parameters": WEATHER},
    {"type": "function", "name": "clock", "parameters": {"type": "object", "additionalProperties": False}},
]
ASKED: dict[str, Any] = {
    "model": "smollm2",
    "input": "How warm is it in Rome?",
    "temperature": 0,
    "max_output_tokens": 100,
    "tools": TOOLS,
    "parallel_tool_calls": False,
}


def calls_of(response: openai.types.responses.Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "weather"}, "weather"),
        ({"type": "function", "name": "clock"}, "clock"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}, "weather"),
    ],
    ids=["weather", "clock", "allowed"],
)
def test_forced_calls_fit_their_schema(client: openai.OpenAI, choice: Any, name: str) -> None:
    reply = client.responses.create(**ASKED, tool_choice=choice)
    (call,) = calls_of(reply)
    assert (call.name, call.status, reply.status, reply.output) == (name, "completed", "completed", [call])
    arguments = orjson.loads(call.arguments)
    assert set(arguments) == ({"city", "unit"} if name == "weather" else set())
    with client.responses.stream(**ASKED, tool_choice=choice) as stream:
        events = list(stream)
        final = stream.get_final_response()
    (streamed,) = calls_of(final)
    assert (streamed.name, streamed.arguments) == (name, call.arguments)
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert (done.arguments, done.item_id) == (call.arguments, streamed.id)


def test_some_call_is_made_where_one_is_required(client: openai.OpenAI) -> None:
    reply = client.responses.create(**ASKED, tool_choice="required")
    assert [call.name in ("weather", "clock") for call in calls_of(reply)] == [True]
    assert reply.output_text == ""


def test_results_of_calls_are_read(client: openai.OpenAI) -> None:
    first = client.responses.create(**ASKED, tool_choice={"type": "function", "name": "weather"})
    (call,) = calls_of(first)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "31 degrees"}
    asked = {"role": "user", "content": ASKED["input"]}
    reply = client.responses.create(**ASKED | {"input": [asked, call.model_dump(exclude_none=True), result]})
    assert reply.output_text or calls_of(reply)
    assert reply.usage is not None and first.usage is not None
    assert reply.usage.input_tokens > first.usage.input_tokens
    parts = result | {"output": [{"type": "input_text", "text": "31 degrees"}]}
    again = client.responses.create(**ASKED | {"input": [asked, call.model_dump(exclude_none=True), parts]})
    assert (again.output_text, again.usage.input_tokens if again.usage else 0) == (
        reply.output_text,
        reply.usage.input_tokens,
    )


def test_no_tool_is_told_of_where_none_may_be_called(client: openai.OpenAI) -> None:
    plain = client.responses.create(**{key: value for key, value in ASKED.items() if key != "tools"})
    reply = client.responses.create(**ASKED, tool_choice="none")
    assert reply.output_text == plain.output_text
    assert reply.usage is not None and plain.usage is not None
    assert reply.usage.input_tokens == plain.usage.input_tokens


BAD_TOOLS: list[tuple[dict[str, Any], int, str]] = [
    ({"tool_choice": {"type": "function", "name": "stove"}}, 400, "tool_choice"),
    ({"tool_choice": "required", "tools": []}, 400, "tool_choice"),
    ({"tools": [*TOOLS, TOOLS[0]]}, 400, "tools[2].name"),
    ({"tools": [{"type": "function", "name": "x", "parameters": {"type": "bogus"}}]}, 400, "tools[0].parameters"),
    ({"tools": [{"type": "function", "name": "x y"}]}, 400, "tools[0].name"),
    (
        {"input": [{"type": "function_call", "call_id": "1", "name": "x", "arguments": "{"}]},
        400,
        "input[0].arguments",
    ),
    ({"reasoning": {"effort": "high"}}, 400, "reasoning.effort"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD_TOOLS, ids=[str(i) for i in range(len(BAD_TOOLS))])
def test_refusals_of_tools_name_the_field(smollm2_server: str, fields: dict[str, Any], status: int, param: str) -> None:
    reply = post(smollm2_server, ASKED | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text
