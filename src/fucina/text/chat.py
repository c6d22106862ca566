"""A conversation to token ids: the template renders it, the tokenizer encodes it, and content stays text."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.text.template import ChatTemplate, Message
from fucina.text.tokenizer import Tokenizer


def chat_ids(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[object] | None = None,
    **variables: object,
) -> list[int]:
    """The prompt ids for `messages`. Raises TemplateError, and ConfigError for a lone surrogate."""
    prompt = template.render_guarded(
        messages, tokenizer=tokenizer, add_generation_prompt=add_generation_prompt, tools=tools, **variables
    )
    return tokenizer.encode_guarded(prompt)
