"""POST /v1/messages and /v1/messages/count_tokens, by Anthropic's own client where it can say it."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from anthropic.types import TextBlock
from pydantic import BaseModel

from fucina import SamplingParams
from fucina.server.state import ServerState
from fucina.server.wire.messages_reply import MessageReply

QUESTION = [{"role": "user", "content": "Name three primary colors."}]
GREEDY: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 24}


@pytest.fixture
def client(smollm2_server: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=smollm2_server, api_key="none", max_retries=0)


def post(address: str, body: dict[str, Any], path: str = "/v1/messages", **headers: str) -> httpx2.Response:
    return httpx2.post(f"{address}{path}", json=body, headers=headers, timeout=60)


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
    options: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "max_tokens": 100, "temperature": 0}
    reply = client.messages.parse(**options, output_format=Color)
    assert isinstance(reply.parsed_output, Color)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"max_tokens": None}, 400, "max_tokens"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "messages[0].user.content"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": "Red"}]}, 400, "messages[1]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        501,
        "messages[0].user.content[0]",
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
