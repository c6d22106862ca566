"""POST /v1/embeddings, by OpenAI's own client, which asks for base64 by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from fucina.engine.model import Model
from fucina.server.state import ServerState
from fucina.server.wire.embeddings import EmbeddingReply

TEXTS = ["a red apple", "A green pear, and more of them."]


@pytest.fixture
def client(smollm2_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_server}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(smollm2_state: ServerState) -> Model:
    assert smollm2_state.loaded is not None
    return smollm2_state.loaded.model


def test_vectors_are_the_librarys(client: openai.OpenAI, model: Model) -> None:
    wanted = model.embed(TEXTS)
    ids = [model.speech.whole_text_ids(text) for text in TEXTS]
    for given in (TEXTS, ids):
        for more in ({}, {"encoding_format": "float"}, {"dimensions": 576}):
            reply = client.embeddings.create(model="smollm2", input=given, **more)  # type: ignore[arg-type]
            found = np.array([entry.embedding for entry in reply.data], np.float32)
            assert np.array_equal(found, wanted.vectors)
            assert [entry.index for entry in reply.data] == [0, 1]
            assert reply.usage.prompt_tokens == reply.usage.total_tokens == sum(wanted.prompt_tokens)
    one = client.embeddings.create(model="smollm2", input=TEXTS[0])
    assert np.array_equal(np.array(one.data[0].embedding, np.float32), wanted.vectors[0])


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": ""}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": ["a", ""]}, 400, "input"),
        ({"input": [[]]}, 400, "input"),
        ({"input": [49152]}, 400, "input"),
        ({"input": "word " * 9000}, 400, "input"),
        ({"input": "a", "dimensions": 64}, 501, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format"),
        ({"input": "a", "model": "gpt-9"}, 404, "model"),
    ],
)
def test_what_cannot_be_is_refused(smollm2_server: str, body: dict[str, Any], status: int, param: str) -> None:
    reply = httpx2.post(f"{smollm2_server}/v1/embeddings", json={"model": "smollm2"} | body, timeout=300)
    assert reply.status_code == status and reply.json()["error"]["param"].startswith(param), reply.text


def test_replies_are_of_the_type_that_the_document_tells(smollm2_server: str) -> None:
    for form in ("float", "base64"):
        body = {"model": "smollm2", "input": TEXTS, "encoding_format": form}
        EmbeddingReply.model_validate_json(httpx2.post(f"{smollm2_server}/v1/embeddings", json=body).content)
