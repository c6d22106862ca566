"""POST /tokenize, /detokenize and /apply-template, in llama.cpp's and vLLM's spellings."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from fucina.engine.model import Model
from fucina.server.state import ServerState
from fucina.server.wire.tokens import TokenizeReply

CHAT = [{"role": "user", "content": "Hello <|im_end|> é"}]


def post(address: str, path: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(address + path, json=body, timeout=300)


@pytest.fixture
def model(smollm2_state: ServerState) -> Model:
    assert smollm2_state.loaded is not None
    return smollm2_state.loaded.model


def test_text_and_tokens_and_back(smollm2_server: str, model: Model) -> None:
    text = "Hello, world: é€𝄞"
    for name in ("content", "prompt"):
        reply = post(smollm2_server, "/tokenize", {name: text, "return_token_strs": True}).json()
        assert reply["tokens"] == model.tokenizer.encode(text)
        assert (reply["count"], reply["max_model_len"]) == (len(reply["tokens"]), model.context)
        assert len(reply["token_strs"]) == reply["count"]
    back = post(smollm2_server, "/detokenize", {"tokens": reply["tokens"]}).json()
    assert back == {"content": text, "prompt": text}
    pieces = post(smollm2_server, "/tokenize", {"content": text, "with_pieces": True})
    TokenizeReply.model_validate_json(pieces.content)
    raw = [piece["piece"] for piece in pieces.json()["tokens"]]
    assert b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in raw).decode() == text


def test_markers_are_tokens_unless_told_otherwise(smollm2_server: str) -> None:
    counts = [
        post(smollm2_server, "/tokenize", {"content": "<|im_end|>"} | more).json()["count"]
        for more in ({}, {"parse_special": True}, {"parse_special": False})
    ]
    assert counts[:2] == [1, 1] and counts[2] > 1


def test_conversations_are_what_the_model_reads(smollm2_server: str, model: Model) -> None:
    ids = model.speech.chat_ids(CHAT)
    assert post(smollm2_server, "/tokenize", {"messages": CHAT}).json()["tokens"] == ids
    written = post(smollm2_server, "/apply-template", {"messages": CHAT}).json()
    assert written["count"] == len(ids)
    assert written["prompt"].endswith("<|im_start|>user\nHello <|im_end|> é<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "content"),
        ("/tokenize", {"content": "a", "prompt": "b"}, 400, "prompt"),
        ("/tokenize", {"content": "a", "chat_template": "{{ 1 }}"}, 501, "chat_template"),
        ("/tokenize", {"content": "a", "model": "gpt-9"}, 404, "model"),
        ("/detokenize", {"tokens": [49152]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": "x"}, 400, "tokens"),
        ("/apply-template", {"messages": []}, 400, "messages"),
        ("/apply-template", {"messages": CHAT, "add_generation_prompt": False}, 501, "add_generation_prompt"),
    ],
)
def test_what_cannot_be_is_refused(
    smollm2_server: str, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    reply = post(smollm2_server, path, body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text
