"""How one model calls tools and thinks: found out once, from its chat template and its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fucina.engine.model import Model
from fucina.engine.speech import ModelSpeech
from fucina.engine.wording import Message
from fucina.server.reasoning import ThinkingSwitches
from fucina.server.tools.definition import Tool
from fucina.server.tools.formats import CallFormat, call_format, hidden_markers
from fucina.text.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Manners:
    """How a model is told of tools and calls them, tokens that stand for a call and say nothing, and its switches."""

    format: CallFormat
    hidden: Mapping[int, str]
    switches: ThinkingSwitches

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        effort: str | None = None,
        thinking: bool | None = None,
    ) -> tuple[list[Message], dict[str, Any]]:
        """Give what `Speech.chat_ids` takes: messages, and what else the template is told. Raises ConfigError."""
        written, described = self.format.messages(messages, tools)
        switches = self.switches.variables(effort=effort, enable_thinking=thinking)
        return written, {"tools": described, **switches}


def manners_of(model: Model) -> Manners:
    """Find them out, by having the template write a few probes."""
    speech = model.speech
    template = speech.template if isinstance(speech, ModelSpeech) else ChatTemplate(None)
    return Manners(call_format(template), hidden_markers(model.tokenizer), ThinkingSwitches(template))
