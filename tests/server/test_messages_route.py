"""POST /v1/messages and /v1/messages/count_tokens, by Anthropic's own client where it can say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from anthropic.types import TextBlock, ToolUseBlock
from pydantic import BaseModel

from fucina import SamplingParams
from fucina.server.state import ServerState
from fucina.server.wire.messages_reply import MessageReply

QUESTION = [{"role": "user", "content": "Name three primary colors."}]
#: What the client has no parameter for.
EXTRA: dict[str, Any] = {"temperature": 0}
GREEDY: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "max_tokens": 24, "extra_body": EXTRA}


@pytest.fixture
def client(smollm2_server: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=smollm2_server, api_key="none", max_retries=0) as client:
        yield client


def post(address: str, body: dict[str, Any], path: str = "/v1/messages", **headers: str) -> httpx2.Response:
    fields = body.get("extra_body", {}) | {key: value for key, value in body.items() if key != "extra_body"}
    return httpx2.post(f"{address}{path}", json=fields, headers=headers, timeout=300)


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


def wanted_of(state: ServerState, messages: Any, **options: Any) -> Any:
    assert state.loaded is not None
    return state.loaded.model.chat(messages, SamplingParams(**options))


def events_of(address: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, each under its own name."""
    found = []
    for block in post(address, body | {"stream": True}).text.strip().split("\n\n"):
        name, data = block.splitlines()
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def test_the_reply_is_the_librarys(client: anthropic.Anthropic, smollm2_state: ServerState) -> None:
    for max_tokens, reason in ((5, "max_tokens"), (300, "end_turn")):
        body = GREEDY | {"max_tokens": max_tokens}
        wanted = wanted_of(smollm2_state, QUESTION, max_tokens=max_tokens)
        reply = client.messages.create(**body)
        assert (text_of(reply), reply.stop_reason, reply.stop_sequence) == (wanted.text, reason, None)
        usage = reply.usage
        assert usage.cache_read_input_tokens is not None
        assert usage.input_tokens + usage.cache_read_input_tokens == len(wanted.prompt_ids)
        assert usage.cache_creation_input_tokens == 0
        assert usage.output_tokens == len(wanted.ids)
        with client.messages.stream(**body) as stream:
            assert "".join(stream.text_stream) == wanted.text
            final = stream.get_final_message()
        assert (text_of(final), final.stop_reason) == (wanted.text, reason)
        assert final.usage.cache_read_input_tokens is not None
        assert final.usage.cache_read_input_tokens > 0
        assert final.usage.input_tokens + final.usage.cache_read_input_tokens == len(wanted.prompt_ids)
        assert final.usage.output_tokens == len(wanted.ids)


def test_a_stream_has_the_whole_skeleton(smollm2_server: str) -> None:
    body = GREEDY | {"max_tokens": 3}
    events = events_of(smollm2_server, body)
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[3:-3]) == {"content_block_delta"}
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 0)
    text = "".join(event["delta"]["text"] for event in events[3:-3])
    whole = post(smollm2_server, body).json()
    assert whole["content"] == [{"type": "text", "text": text}]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    MessageReply.model_validate_json(orjson.dumps(whole))


def test_the_matched_stop_sequence_is_told(client: anthropic.Anthropic, smollm2_state: ServerState) -> None:
    text = wanted_of(smollm2_state, QUESTION, max_tokens=24).text
    stop = text[8:12]
    assert len(stop) == 4
    body = GREEDY | {"stop_sequences": ["never said", stop]}
    reply = client.messages.create(**body)
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop)
    assert text_of(reply) == text[: text.index(stop)]
    with client.messages.stream(**body) as stream:
        final = stream.get_final_message()
    assert (text_of(final), final.stop_reason, final.stop_sequence) == (text_of(reply), "stop_sequence", stop)


CONVERSATIONS: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
    (
        {"system": "You are a pirate.", "messages": QUESTION},
        [{"role": "system", "content": "You are a pirate."}, *QUESTION],
    ),
    (
        {
            "system": [
                {"type": "text", "text": "You are", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "a pirate."},
            ],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}],
        },
        [{"role": "system", "content": "You are\na pirate."}, {"role": "user", "content": "Who?"}],
    ),
    (
        {
            "messages": [
                {"role": "user", "content": "Hi."},
                {"role": "user", "content": "You there?"},
                {"role": "assistant", "content": [{"type": "text", "text": "Yes.", "citations": None}]},
                {"role": "user", "content": "Good."},
            ]
        },
        [
            {"role": "user", "content": "Hi.\nYou there?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Good."},
        ],
    ),
]


@pytest.mark.parametrize(("fields", "messages"), CONVERSATIONS, ids=["system", "blocks", "turns"])
def test_turns_are_messages(
    client: anthropic.Anthropic, smollm2_state: ServerState, fields: dict[str, Any], messages: list[dict[str, str]]
) -> None:
    wanted = wanted_of(smollm2_state, messages, max_tokens=12)
    reply = client.messages.create(**GREEDY | {"max_tokens": 12} | fields)
    assert text_of(reply) == wanted.text
    assert client.messages.count_tokens(model="smollm2", **fields).input_tokens == len(wanted.prompt_ids)


class Color(BaseModel):
    name: str
    is_warm: bool


def test_parse_gives_an_instance(client: anthropic.Anthropic) -> None:
    options: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "max_tokens": 100, "extra_body": EXTRA}
    reply = client.messages.parse(**options, output_format=Color)
    assert isinstance(reply.parsed_output, Color)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"max_tokens": None}, 400, "max_tokens"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "user", "content": []}]}, 400, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "messages[0].content"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": "Red"}]}, 400, "messages[1]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        501,
        "messages[0].content[0]",
    ),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 501, "tools[0]"),
    ({"container": "x"}, 501, "container"),
    ({"mcp_servers": [{}]}, 501, "mcp_servers"),
    ({"stop": ["x"]}, 400, "stop"),
    ({"temperature": -1}, 400, "temperature"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "bogus"}}}}, 400, "output_config.format"),
    ({"messages": [{"role": "user", "content": "word " * 9000}]}, 400, "messages"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_name_the_field(
    smollm2_server: str, fields: dict[str, Any], status: int, param: str, stream: bool
) -> None:
    reply = post(smollm2_server, GREEDY | fields | {"stream": stream})
    assert reply.status_code == status, reply.text
    told = reply.json()
    assert (told["type"], set(told["error"])) == ("error", {"type", "message"})
    assert f"(in '{param}')" in told["error"]["message"]


def test_a_missing_field_is_told(smollm2_server: str) -> None:
    reply = post(smollm2_server, {"model": "smollm2", "messages": QUESTION})
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in reply.json()["error"]["message"]


def test_anthropics_client_raises_its_own_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(**GREEDY | {"model": "claude-9"})
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError):
        client.messages.count_tokens(model="smollm2", messages=[])


def test_any_version_is_taken(smollm2_server: str) -> None:
    body = GREEDY | {"max_tokens": 1}
    reply = post(smollm2_server, body, "/v1/messages?beta=true", **{"anthropic-version": "2099-01-01"})
    assert reply.status_code == 200
    assert reply.headers["request-id"] == reply.headers["x-request-id"]


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"name": "weather", "description": "Weather of a city.", "input_schema": WEATHER},
    {"type": "custom", "name": "clock", "input_schema": {"type": "object", "additionalProperties": False}},
]
ASKED: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "How warm is it in Rome?"}],
    "extra_body": EXTRA,
    "max_tokens": 100,
    "tools": TOOLS,
}
FORCED: dict[str, Any] = {"tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}}


def test_forced_calls_fit_their_schema(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(**ASKED, **FORCED)
    (block,) = reply.content
    assert isinstance(block, ToolUseBlock)
    assert (block.name, set(block.input), reply.stop_reason) == ("weather", {"city", "unit"}, "tool_use")
    with client.messages.stream(**ASKED, **FORCED) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    (streamed,) = final.content
    assert isinstance(streamed, ToolUseBlock)
    assert (streamed.name, streamed.input, final.stop_reason) == ("weather", block.input, "tool_use")
    assert orjson.loads("".join(pieces)) == block.input


def test_some_tool_is_used_where_any_is_required(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(**ASKED, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    (block,) = reply.content
    assert isinstance(block, ToolUseBlock) and block.name in ("weather", "clock")


def test_calls_that_are_cut_off_tell_what_there_is(client: anthropic.Anthropic) -> None:
    for n in range(14, 34, 4):
        body = ASKED | FORCED | {"max_tokens": n}
        reply = client.messages.create(**body)
        with client.messages.stream(**body) as stream:
            final = stream.get_final_message()
        told = [(one.name, one.input) for one in reply.content if isinstance(one, ToolUseBlock)]
        streamed = [(one.name, one.input) for one in final.content if isinstance(one, ToolUseBlock)]
        assert (told, reply.stop_reason) == (streamed, final.stop_reason)


def test_results_of_tools_are_read(client: anthropic.Anthropic) -> None:
    first = client.messages.create(**ASKED, **FORCED)
    (block,) = first.content
    assert isinstance(block, ToolUseBlock)
    result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "31 degrees"}]}

    def ask(result: dict[str, Any], said: str) -> anthropic.types.Message:
        turns = [
            *ASKED["messages"],
            first.to_param(),
            {"role": "user", "content": [result, {"type": "text", "text": said}]},
        ]
        fields = ASKED | {"messages": turns}
        reply = client.messages.create(**fields)
        assert reply.usage.cache_read_input_tokens is not None
        counted = {key: value for key, value in fields.items() if key not in ("extra_body", "max_tokens")}
        n_prompt = reply.usage.input_tokens + reply.usage.cache_read_input_tokens
        assert client.messages.count_tokens(**counted).input_tokens == n_prompt
        return reply

    assert ask(result, "Thanks!").content
    assert ask(result | {"content": "No such city.", "is_error": True}, "Oh.").content


BAD_TOOLS: list[tuple[dict[str, Any], int, str]] = [
    ({"tool_choice": {"type": "tool"}}, 400, "tool_choice.name"),
    ({"tool_choice": {"type": "tool", "name": "stove"}}, 400, "tool_choice"),
    ({"tools": [{"name": "x", "input_schema": {"type": "bogus"}}]}, 400, "tools[0].input_schema"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 400, "thinking"),
    ({"output_config": {"effort": "max"}}, 400, "output_config.effort"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD_TOOLS, ids=[str(i) for i in range(len(BAD_TOOLS))])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_refusals_of_tools_name_the_field(
    smollm2_server: str, fields: dict[str, Any], status: int, param: str, path: str
) -> None:
    dropped = ("max_tokens", "extra_body") if path.endswith("count_tokens") else ()
    body = {key: value for key, value in (ASKED | fields).items() if key not in dropped}
    reply = post(smollm2_server, body, path)
    assert reply.status_code == status, reply.text
    assert f"(in '{param}')" in reply.json()["error"]["message"]


def test_a_model_that_does_not_think_need_not_be_told(client: anthropic.Anthropic) -> None:
    body = GREEDY | {"max_tokens": 4}
    plain = client.messages.create(**body)
    thinkings: list[Any] = [{"type": "disabled"}, {"type": "adaptive"}]
    for thinking in thinkings:
        assert text_of(client.messages.create(**body, thinking=thinking)) == text_of(plain)
