"""Chat messages to a prompt, by the template that the model file carries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Protocol

from fucina.errors import BadHeader, TemplateError
from fucina.text.markers import Markers
from fucina.text.provenance import Guard, GuardedText
from fucina.text.rendering import Renderer, shared_renderer
from fucina.text.vocabulary import Vocabulary

_KEY = "tokenizer.chat_template"
_WITH_TOOLS = "tool_use"
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_WALKS_CONTENT = re.compile(r"\bin\s+\w+(?:\.content|\[['\"]content['\"]\])")
_PROBE = "Fucina probes this template"

Message = Mapping[str, object]


class MarkerSource(Protocol):
    """What a template asks of a tokenizer."""

    @property
    def markers(self) -> Markers:
        """The strings that only a template turns into tokens."""

    @property
    def user_defined_markers(self) -> frozenset[str]:
        """The ones among them that are user-defined, not control tokens."""


class ChatTemplate:
    """The chat template of one model, or the knowledge that it has none."""

    def __init__(
        self,
        source: str | None,
        *,
        with_tools: str | None = None,
        variables: Mapping[str, str] | None = None,
        renderer: Renderer | None = None,
    ) -> None:
        """`with_tools`: another template for calls with tools; `variables`: such as bos_token; trusted, unlike text."""
        self._source = None if source is None else _without_generation_tags(source)
        self._with_tools = None if with_tools is None else _without_generation_tags(with_tools)
        self._variables = dict(variables or {})
        self._renderer = renderer or shared_renderer()

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, object], vocabulary: Vocabulary, *, path: str | PathLike[str] = "metadata"
    ) -> ChatTemplate:
        """Take the template in `metadata`, if there is one; `path` is only named in errors. Raises BadHeader."""
        sources = {key: metadata.get(key) for key in (_KEY, f"{_KEY}.{_WITH_TOOLS}")}
        for key, value in sources.items():
            if value is not None and not isinstance(value, str):
                raise BadHeader(path, f"'{key}' is not a string")
        named = {
            "bos_token": vocabulary.bos_id,
            "eos_token": vocabulary.eos_id,
            "unk_token": vocabulary.unknown_id,
            "pad_token": vocabulary.padding_id,
        }
        variables = {name: vocabulary.pieces.text(i) for name, i in named.items() if i is not None}
        source, with_tools = (value if isinstance(value, str) else None for value in sources.values())
        return cls(source, with_tools=with_tools, variables=variables)

    @property
    def exists(self) -> bool:
        """Whether the model can chat."""
        return self._source is not None

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[object] | None = None,
        **variables: object,
    ) -> str:
        """The prompt for `messages`, as text. To make ids of it use `render_guarded`, so that content stays text.

        Raises TemplateError: no template, or the template failed or refused the messages, with its own message.
        """
        return self._render(self._fitting(messages), add_generation_prompt, tools, variables)

    def render_guarded(
        self,
        messages: Sequence[Message],
        *,
        tokenizer: MarkerSource,
        add_generation_prompt: bool = True,
        tools: Sequence[object] | None = None,
        **variables: object,
    ) -> GuardedText:
        """The prompt for `messages`, with what they say kept apart from the markers that the template writes.

        Raises TemplateError.
        """
        fitting = self._fitting(messages)
        written = [self._source, self._with_tools, fitting, tools, variables]
        guard = Guard(tokenizer.markers, self._looked_for(tokenizer.user_defined_markers), written)
        text = self._render(
            [guard.message(message) for message in fitting],
            add_generation_prompt,
            None if tools is None else guard.tools(tools),
            {name: guard.variable(value) for name, value in variables.items()},
        )
        return GuardedText(text, guard.originals)

    def _looked_for(self, markers: frozenset[str]) -> frozenset[str]:
        """The ones of `markers` that the template looks for in text, instead of only writing them."""
        sources = f"{self._source}\n{self._with_tools}"
        looks = r"""['"]{}['"]\s*(?:\)|,|==|in\b|not\b)"""
        return frozenset(marker for marker in markers if re.search(looks.format(re.escape(marker)), sources))

    def _render(
        self, messages: Sequence[Message], add_generation_prompt: bool, tools: object, variables: Mapping[str, object]
    ) -> str:
        source = self._with_tools if tools and self._with_tools is not None else self._source
        if source is None:
            raise TemplateError(
                "this model has no chat template (a base model has none): use raw completion "
                "(`fucina run --raw`), or name a template"
            )
        context = {
            **self._variables,
            **variables,
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
            "tools": tools or None,
        }
        return self._renderer.render(source, context)

    def _fitting(self, messages: Sequence[Message]) -> list[Message]:
        """Messages with their content in the form that this template takes."""
        if not all(isinstance(message, Mapping) for message in messages):
            raise TemplateError("each message must be a mapping with a role and content")
        form = _as_parts if self._takes_parts else _as_string
        return [
            {**message, "content": form(message["content"])} if "content" in message else message
            for message in messages
        ]

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether content must be a list of parts, since the template walks over it and drops a string."""
        if not any(_WALKS_CONTENT.search(source) for source in (self._source, self._with_tools) if source):
            return False
        return not self._shows(_PROBE) and self._shows([{"type": "text", "text": _PROBE}])

    def _shows(self, content: object) -> bool:
        try:
            return _PROBE in self._render([{"role": "user", "content": content}], True, None, {})
        except TemplateError:
            return False


def _without_generation_tags(source: str) -> str:
    """The template with training's `generation` blocks as plain ones, which trim the space around them all the same."""
    return _GENERATION.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", source)


def _as_parts(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _as_string(content: object) -> object:
    if not isinstance(content, list | tuple):
        return content
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise TemplateError("this model's chat template takes text only, but a message has a part without text")
        texts.append(text)
    return "\n".join(texts)
