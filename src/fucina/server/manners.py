"""How one model calls tools and thinks: found out once, from its chat template and its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fucina.engine.model import Model
from fucina.engine.speech import ModelSpeech
from fucina.server.reasoning import ThinkingSwitches
from fucina.server.tools.formats import CallFormat, call_format, hidden_markers
from fucina.text.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Manners:
    """How a model is told of tools and calls them, tokens that stand for a call and say nothing, and its switches."""

    format: CallFormat
    hidden: Mapping[int, str]
    switches: ThinkingSwitches


def manners_of(model: Model) -> Manners:
    """Find them out, by having the template write a few probes."""
    speech = model.speech
    template = speech.template if isinstance(speech, ModelSpeech) else ChatTemplate(None)
    return Manners(call_format(template), hidden_markers(model.tokenizer), ThinkingSwitches(template))
