"""Ask a server through Ollama's own client (`pip install ollama`) all that the server has of its interface.

Usage: ollama_client.py ADDRESS MODEL
"""

from __future__ import annotations

import argparse
import json

import ollama


def main() -> None:
    """Run every check; an assertion tells what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("model")
    args = parser.parse_args()
    client, model = ollama.Client(host=args.address), args.model
    check_models(client, model)
    check_answers(client, model)
    check_forms(client, model)
    check_vectors(client, model)
    check_errors(client, model)
    print("all of Ollama's client that is supported works")


def check_models(client: ollama.Client, model: str) -> None:
    """List, ps and show."""
    assert model in [one.model for one in client.list().models if one.model] or f"{model}:latest" in [
        one.model for one in client.list().models
    ]
    assert client.ps().models[0].context_length
    shown = client.show(model)
    assert shown.details is not None and shown.details.family and shown.modelinfo
    assert "completion" in (shown.capabilities or [])


def check_answers(client: ollama.Client, model: str) -> None:
    """Chat and generate, whole and streamed, say the same."""
    messages = [{"role": "user", "content": "Name three primary colors."}]
    options = ollama.Options(temperature=0, num_predict=24, num_ctx=2048, stop=["\n\n\n"])
    whole = client.chat(model, messages, options=options)
    pieces = list(client.chat(model, messages, options=options, stream=True, keep_alive="5m"))
    assert whole.message.content and whole.message.content == "".join(one.message.content or "" for one in pieces)
    assert pieces[-1].done and whole.eval_count == pieces[-1].eval_count and whole.total_duration
    text = client.generate(model, "Once upon a time", options=options, raw=True)
    streamed = client.generate(model, "Once upon a time", options=options, raw=True, stream=True)
    assert text.response and text.response == "".join(one.response or "" for one in streamed)
    told = client.chat(model, messages, options=options, logprobs=True, top_logprobs=2)
    assert told.logprobs and told.logprobs[0].top_logprobs and len(told.logprobs[0].top_logprobs) == 2


def check_forms(client: ollama.Client, model: str) -> None:
    """A schema is kept."""
    schema = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]}
    schema["additionalProperties"] = False
    reply = client.chat(model, [{"role": "user", "content": "A color, as JSON."}], format=schema)
    assert json.loads(reply.message.content or "")["color"] in ("red", "blue")


def check_vectors(client: ollama.Client, model: str) -> None:
    """Vectors of one text and of several."""
    many = client.embed(model, ["a red apple", "a green pear"])
    one = client.embed(model, "a red apple")
    assert list(one.embeddings[0]) == list(many.embeddings[0]) and len(many.embeddings) == 2


def check_errors(client: ollama.Client, model: str) -> None:
    """Errors are the client's own."""
    for wrong, status in (
        (lambda: client.chat("gpt-9", [{"role": "user", "content": "x"}]), 404),
        (lambda: client.generate(model, "x", options={"mirostat": 2}), 501),
        (lambda: list(client.generate(model, "x", options={"num_ctx": 10**8}, stream=True)), 400),
    ):
        try:
            wrong()
        except ollama.ResponseError as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"no error, but {status} was due")


if __name__ == "__main__":
    main()
