"""A model file's own words: its tokenizer and its chat template, as the engine wants them."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.engine.wording import Message, TextStream
from fucina.text.chat import chat_ids
from fucina.text.detokenizer import Detokenizer
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer


class ModelSpeech:
    """Speech by a model's tokenizer and chat template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer, self.template = tokenizer, template
        self.vocab_size, self.eog_ids = tokenizer.vocab_size, tokenizer.eog_ids

    def text_stream(self) -> TextStream:
        """Start the text of one answer; it continues its prompt."""
        return Detokenizer(self.tokenizer)

    def prompt_ids(self, text: str) -> list[int]:
        """Give the tokens of a raw prompt, with the model's begin token where it wants one. Raises ConfigError."""
        return self.tokenizer.prompt_ids(text)

    def whole_text_ids(self, text: str) -> list[int]:
        """Give those of a text that nothing follows: with the model's end token, too. Raises ConfigError."""
        return self.tokenizer.whole_text_ids(text)

    def chat_ids(
        self, messages: Sequence[Message], *, tools: Sequence[object] | None = None, **variables: object
    ) -> list[int]:
        """Give the tokens that ask for an answer to these messages; markers in them stay text. Raises TemplateError.

        `tools` and `variables` go to the template, which ignores what it does not know.
        """
        return chat_ids(self.tokenizer, self.template, messages, add_generation_prompt=True, tools=tools, **variables)

    def chat_text(
        self, messages: Sequence[Message], *, tools: Sequence[object] | None = None, **variables: object
    ) -> str:
        """Give the same as text. Raises TemplateError."""
        return self.template.render(messages, add_generation_prompt=True, tools=tools, **variables)
