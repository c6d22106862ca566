"""The table of what the server does: every path with its types."""

from __future__ import annotations

from fucina.server.endpoint import Endpoint
from fucina.server.ndjson import NDJSON
from fucina.server.routes import (
    chat,
    completions,
    embeddings,
    messages,
    ollama,
    ollama_models,
    page,
    plain,
    responses,
    tokens,
)
from fucina.server.routes.docs import described
from fucina.server.wire import chat_replies, ollama_replies
from fucina.server.wire import plain as plain_replies
from fucina.server.wire.chat import ChatRequest
from fucina.server.wire.completions import CompletionReply, CompletionRequest
from fucina.server.wire.embeddings import EmbeddingReply, EmbeddingRequest
from fucina.server.wire.errors import ANTHROPIC, OLLAMA, OPENAI
from fucina.server.wire.messages import CountReply, CountRequest, MessagesRequest
from fucina.server.wire.messages_reply import MessageReply
from fucina.server.wire.ollama import EmbedRequest, GenerateRequest, OllamaChatRequest, ShowRequest
from fucina.server.wire.responses import ResponsesRequest
from fucina.server.wire.responses_reply import ResponseReply
from fucina.server.wire.tokens import (
    ApplyTemplateReply,
    ApplyTemplateRequest,
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)

_EVENTS = "text/event-stream"
_HELLO = [{"role": "user", "content": "Hello!"}]

_OPENAI = (
    Endpoint(
        path="/v1/chat/completions",
        method="POST",
        summary="Answer a conversation (OpenAI)",
        dialect=OPENAI,
        work=chat.chat,
        body=ChatRequest,
        reply=chat_replies.ChatReply,
        stream=_EVENTS,
        example={"model": "smollm2", "messages": _HELLO, "max_tokens": 64},
        is_answer=True,
    ),
    Endpoint(
        path="/v1/completions",
        method="POST",
        summary="Continue texts (OpenAI)",
        dialect=OPENAI,
        work=completions.complete,
        body=CompletionRequest,
        reply=CompletionReply,
        stream=_EVENTS,
        example={"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 32},
        is_answer=True,
    ),
    Endpoint(
        path="/v1/responses",
        method="POST",
        summary="Answer items (OpenAI)",
        dialect=OPENAI,
        work=responses.responses,
        body=ResponsesRequest,
        reply=ResponseReply,
        stream=_EVENTS,
        example={"model": "smollm2", "input": "Hello!", "max_output_tokens": 64},
        is_answer=True,
    ),
    Endpoint(
        path="/v1/embeddings",
        method="POST",
        summary="Make vectors of texts (OpenAI)",
        dialect=OPENAI,
        work=embeddings.embed,
        body=EmbeddingRequest,
        reply=EmbeddingReply,
        example={"model": "smollm2", "input": ["a red apple", "a green pear"]},
        is_answer=True,
    ),
    Endpoint(
        path="/v1/models",
        method="GET",
        summary="List the model (OpenAI)",
        dialect=OPENAI,
        work=plain.models,
        reply=plain_replies.ModelList,
    ),
    Endpoint(
        path="/v1/models/{model:path}",
        method="GET",
        summary="Tell of a model (OpenAI)",
        dialect=OPENAI,
        work=plain.one_model,
        reply=plain_replies.ModelEntry,
    ),
)

_ANTHROPIC = (
    Endpoint(
        path="/v1/messages",
        method="POST",
        summary="Answer a conversation (Anthropic)",
        dialect=ANTHROPIC,
        work=messages.messages,
        body=MessagesRequest,
        reply=MessageReply,
        stream=_EVENTS,
        example={"model": "smollm2", "messages": _HELLO, "max_tokens": 64},
        is_answer=True,
    ),
    Endpoint(
        path="/v1/messages/count_tokens",
        method="POST",
        summary="Count the tokens of a conversation (Anthropic)",
        dialect=ANTHROPIC,
        work=messages.count_tokens,
        body=CountRequest,
        reply=CountReply,
        example={"model": "smollm2", "messages": _HELLO},
    ),
)

_TOKENS = (
    Endpoint(
        path="/tokenize",
        method="POST",
        summary="Make tokens of a text or a conversation",
        dialect=OPENAI,
        work=tokens.tokenize,
        body=TokenizeRequest,
        reply=TokenizeReply,
        example={"content": "Hello, world", "with_pieces": True},
    ),
    Endpoint(
        path="/detokenize",
        method="POST",
        summary="Make a text of tokens",
        dialect=OPENAI,
        work=tokens.detokenize,
        body=DetokenizeRequest,
        reply=DetokenizeReply,
        example={"tokens": [72, 105]},
    ),
    Endpoint(
        path="/apply-template",
        method="POST",
        summary="Write a conversation out as the model reads it",
        dialect=OPENAI,
        work=tokens.apply_template,
        body=ApplyTemplateRequest,
        reply=ApplyTemplateReply,
        example={"messages": _HELLO},
    ),
)

_OLLAMA = (
    Endpoint(
        path="/api/chat",
        method="POST",
        summary="Answer a conversation (Ollama)",
        dialect=OLLAMA,
        work=ollama.chat,
        body=OllamaChatRequest,
        reply=ollama_replies.OllamaChatReply,
        stream=NDJSON,
        example={"model": "smollm2", "messages": _HELLO, "stream": False, "options": {"num_predict": 64}},
        is_answer=True,
    ),
    Endpoint(
        path="/api/generate",
        method="POST",
        summary="Answer a text (Ollama)",
        dialect=OLLAMA,
        work=ollama.generate,
        body=GenerateRequest,
        reply=ollama_replies.GenerateReply,
        stream=NDJSON,
        example={"model": "smollm2", "prompt": "Why is the sky blue?", "options": {"num_predict": 64}},
        is_answer=True,
    ),
    Endpoint(
        path="/api/embed",
        method="POST",
        summary="Make vectors of texts (Ollama)",
        dialect=OLLAMA,
        work=ollama_models.embed,
        body=EmbedRequest,
        reply=ollama_replies.EmbedReply,
        example={"model": "smollm2", "input": "a red apple"},
        is_answer=True,
    ),
    Endpoint(
        path="/api/show",
        method="POST",
        summary="Tell of a model (Ollama)",
        dialect=OLLAMA,
        work=ollama_models.show,
        body=ShowRequest,
        reply=ollama_replies.ShowReply,
        example={"model": "smollm2"},
    ),
    Endpoint(
        path="/api/tags",
        method="GET",
        summary="List the model (Ollama)",
        dialect=OLLAMA,
        work=ollama_models.tags,
        reply=ollama_replies.TagsReply,
    ),
    Endpoint(
        path="/api/ps",
        method="GET",
        summary="List the model, which is loaded (Ollama)",
        dialect=OLLAMA,
        work=ollama_models.running,
        reply=ollama_replies.PsReply,
    ),
    Endpoint(
        path="/api/version",
        method="GET",
        summary="Tell the version (Ollama)",
        dialect=OLLAMA,
        work=ollama_models.version,
        reply=ollama_replies.VersionReply,
        needs_model=False,
    ),
)

_OPERATION = (
    Endpoint(
        path="/health",
        method="GET",
        summary="Whether answers can be had",
        dialect=OPENAI,
        work=plain.health,
        reply=plain_replies.HealthReply,
        is_open=True,
    ),
    Endpoint(
        path="/live",
        method="GET",
        summary="Whether it runs",
        dialect=OPENAI,
        work=plain.alive,
        reply=plain_replies.LiveReply,
        is_open=True,
        needs_model=False,
    ),
    Endpoint(
        path="/metrics",
        method="GET",
        summary="Numbers for Prometheus",
        dialect=OPENAI,
        work=plain.metrics,
        media_type="text/plain",
        needs_model=False,
    ),
)

_API = (*_OPENAI, *_ANTHROPIC, *_TOKENS, *_OLLAMA, *_OPERATION)

#: The paths of the interface, and those that describe them.
DESCRIBED = (*_API, *described(_API))

#: Every path: the chat page's, too.
ENDPOINTS = (*DESCRIBED, *page.ENDPOINTS)
