"""What the writers of responses and messages make of thoughts, words and calls, read by the vendors' own types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import httpx2
import orjson
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from fucina import SamplingParams
from fucina.engine.events import FinishEvent, Timings, TokenEvent, Usage
from fucina.server.answer import Step
from fucina.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from fucina.server.failures import ApiError
from fucina.server.routes.messages_writer import MessageWriter
from fucina.server.routes.responses_writer import ResponseWriter
from fucina.server.state import Loaded
from fucina.server.wire.messages import MessagesRequest
from fucina.server.wire.messages_reply import MessageReply
from fucina.server.wire.responses import ResponsesRequest
from fucina.server.wire.responses_reply import ResponseReply

OPENAIS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ANTHROPICS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
DELTAS: list[Delta] = [
    ReasoningDelta("It is "),
    ReasoningDelta("warm."),
    TextDelta("I "),
    TextDelta("look."),
    CallStart(0, "call_1", "weather"),
    CallArguments(0, '{"city": '),
    CallArguments(0, '"Rome"}'),
    CallStart(1, "call_2", "clock"),
    CallArguments(1, "{}"),
]


@pytest.fixture
def loaded(served: Callable[..., Any]) -> Loaded:
    """A model that nobody asks."""
    found = served(lambda _: 97).state.loaded
    assert isinstance(found, Loaded)
    return found


def finish(reason: Any = "stop") -> FinishEvent:
    timings = Timings(0.0, 0.1, 0.2, 5, 9)
    return FinishEvent(request_id=0, reason=reason, usage=Usage(7, 10, 2), timings=timings, seed=1)


def steps(deltas: Sequence[Delta], reason: Any = "stop") -> list[Step]:
    tokens = [Step(0, [delta], TokenEvent(0, 97 + i, "")) for i, delta in enumerate(deltas)]
    return [*tokens, Step(0, [], finish(reason))]


def responses_writer(loaded: Loaded, **fields: Any) -> ResponseWriter:
    body = ResponsesRequest.model_validate({"model": "scripted", "input": "?", **fields})
    return ResponseWriter(body, SamplingParams(), loaded)


def response_events(writer: ResponseWriter, deltas: Sequence[Delta], reason: Any = "stop") -> list[dict[str, Any]]:
    """The events as a client gets them."""
    found = list(writer.opening())
    for step in steps(deltas, reason):
        found += writer.events(step, 3)
    return [orjson.loads(orjson.dumps(event)) for event in found]


def test_responses_are_what_openais_client_reads(loaded: Loaded) -> None:
    writer = responses_writer(loaded)
    events = response_events(writer, DELTAS)
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(OPENAIS.validate_python(event))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    thought, said, *calls = writer.response["output"]
    assert (thought["type"], thought["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "It is warm."}])
    assert (thought["summary"], said["content"][0]["text"]) == ([], "I look.")
    assert [(call["call_id"], call["name"], call["arguments"]) for call in calls] == [
        ("call_1", "weather", '{"city": "Rome"}'),
        ("call_2", "clock", "{}"),
    ]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == writer.response["output"] == events[-1]["response"]["output"]
    assert writer.response["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    assert writer.response["usage"]["input_tokens_details"]["cached_tokens"] == 2
    reply = ResponseReply.model_validate_json(orjson.dumps(writer.response))
    assert reply.status == "completed"


def test_thoughts_are_a_summary_where_one_is_asked_for(loaded: Loaded) -> None:
    writer = responses_writer(loaded, reasoning={"summary": "auto"})
    events = response_events(writer, DELTAS[:3], "length")
    for event in events:
        OPENAIS.validate_python(event)
    thought, said = writer.response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "It is warm."}]
    assert (thought["content"], said["status"], thought["status"]) == ([], "incomplete", "completed")
    kinds = [event["type"] for event in events]
    assert "response.reasoning_summary_text.delta" in kinds
    assert "response.reasoning_text.delta" not in kinds
    assert kinds[-1] == "response.incomplete"


def test_an_answer_of_nothing_is_an_empty_message(loaded: Loaded) -> None:
    writer = responses_writer(loaded)
    for event in response_events(writer, []):
        OPENAIS.validate_python(event)
    (item,) = writer.response["output"]
    assert item["content"][0]["text"] == ""


def test_a_response_that_fails_says_so_twice(loaded: Loaded) -> None:
    writer = responses_writer(loaded)
    events = response_events(writer, DELTAS[:1])[:-4]
    frames = writer.farewell(ApiError(504, "too late", code="deadline_exceeded")).decode().strip().split("\n\n")
    told, failed = (OPENAIS.validate_json(frame.split("data: ")[1]) for frame in frames)
    assert (told.type, told.message, told.code) == ("error", "too late", "deadline_exceeded")
    assert (failed.type, failed.response.status, failed.response.error.message) == (
        "response.failed",
        "failed",
        "too late",
    )
    assert failed.sequence_number > told.sequence_number > events[-1]["sequence_number"]


def messages_writer(loaded: Loaded) -> MessageWriter:
    body = MessagesRequest.model_validate(
        {"model": "scripted", "max_tokens": 10, "messages": [{"role": "user", "content": "?"}]}
    )
    return MessageWriter(body, loaded)


@pytest.mark.parametrize(
    ("deltas", "reason", "told"),
    [
        (DELTAS, "stop", "tool_use"),
        (DELTAS[:4], "stop", "end_turn"),
        (DELTAS, "cancelled", "tool_use"),
        (DELTAS[:6], "length", "max_tokens"),
        ([], "stop", "end_turn"),
    ],
    ids=["calls", "text", "one call", "cut off", "nothing"],
)
def test_messages_are_what_anthropics_client_reads(loaded: Loaded, deltas: list[Delta], reason: Any, told: str) -> None:
    writer = messages_writer(loaded)
    events = [*writer.opening(7)]
    for step in steps(deltas, reason):
        events += writer.events(step, 3)
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] != "ping":  # the client's stream leaves them out
            read = ANTHROPICS.validate_python(orjson.loads(orjson.dumps(event)))
            snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    read = orjson.loads(snapshot.model_dump_json(exclude_none=True))
    assert read["content"] == writer.message["content"]
    assert (snapshot.stop_reason, writer.message["stop_reason"]) == (told, told)
    assert snapshot.usage.output_tokens_details.thinking_tokens == 3
    assert (snapshot.usage.input_tokens, snapshot.usage.cache_read_input_tokens) == (5, 2)
    MessageReply.model_validate_json(orjson.dumps(writer.message))


def test_a_full_context_is_told_apart_from_a_spent_limit(loaded: Loaded) -> None:
    writer = messages_writer(loaded)
    timings = Timings(0.0, 0.1, 0.2, 5, 9)
    end = FinishEvent(request_id=0, reason="length", usage=Usage(7, 9, 2), timings=timings, seed=1)
    writer.events(Step(0, [], end), 0)
    assert writer.message["stop_reason"] == "model_context_window_exceeded"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_failure_on_the_way_is_told_in_its_dialect(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def slow_letters(prefix: Sequence[int]) -> int:
        sleep(0.01)
        return 97 + len(prefix) % 26

    server, passes = served(slow_letters), []
    forward = server.scripted.forward

    def fails(batch: Any) -> Any:
        passes.append(batch)
        if len(passes) > 5:
            raise RuntimeError("bit rot")
        return forward(batch)

    monkeypatch.setattr(server.scripted, "forward", fails)
    limit = {"max_tokens": 50, "messages": [{"role": "user", "content": "?"}]}
    body = {"model": "scripted", "stream": True} | ({"input": "?"} if path == "/v1/responses" else limit)
    reply = httpx2.post(server.address + path, json=body, timeout=300)
    assert reply.status_code == 200
    last = [block for block in reply.text.split("\n\n") if block][-1]
    name, data = last.splitlines()
    event = orjson.loads(data.removeprefix("data: "))
    if path == "/v1/responses":
        assert name == "event: response.failed"
        assert event["response"]["error"]["code"] == "server_error"
    else:
        assert name == "event: error"
        assert event["error"]["type"] == "api_error"
    assert "bit rot" not in reply.text
