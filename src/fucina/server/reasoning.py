"""What a model thinks, apart from what it answers; and the switches of chat templates that make it think or not."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from fucina.decoding.grammar.processor import Thinking
from fucina.engine.wording import Codec
from fucina.errors import ConfigError, TemplateError
from fucina.text.template import ChatTemplate

#: What clients may say of how much a model should think.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TEMPLATE_EFFORTS = ("low", "medium", "high")


class Split(NamedTuple):
    """What became certain with a token: more of the thoughts, more of the answer.

    `is_thought`: the token itself belongs to the thoughts, or is a marker around them.
    """

    reasoning: str
    answer: str
    is_thought: bool


class ReasoningSplitter:
    """Splits one answer into thoughts and what follows them. Markers, and line ends beside them, are in neither.

    Tokens decide, not what is spelled: a marker's text that is no marker's token stays text.
    """

    def __init__(self, thinking: Thinking | None, tokenizer: Codec) -> None:
        """`thinking`: how the answer may begin, as `Constraints.thinking` tells of its prompt."""
        self._thinking, self._tokenizer = thinking, tokenizer
        self._is_thinking = thinking is not None and thinking.is_open  # as the tokens have it
        self._in_thoughts = self._trims = self._is_thinking  # as the text has it, which may be behind
        self._is_plain = thinking is None  # nothing to split any more
        self._awaited: list[str] = []  # markers whose tokens have come, as they are spelled in text to come
        self._held = ""
        #: Tokens of thoughts so far, markers included.
        self.n_tokens = 0

    def feed(self, token: int, text: str) -> Split:
        """Take the next token and the text that became certain with it."""
        thinking = self._thinking
        if self._is_plain or thinking is None:
            return Split("", text, False)
        is_thought = self._is_thinking
        if not is_thought and token == thinking.open_id and not self.n_tokens and not self._awaited:
            is_thought = self._is_thinking = True
            self._awaited.append(self._tokenizer.decode([token]))
        elif is_thought and token == thinking.close_id:
            self._is_thinking = False
            self._awaited.append(self._tokenizer.decode([token]))
        elif not is_thought and not self.n_tokens:  # it answers at once
            self._is_plain = True
            return Split("", text, False)
        self.n_tokens += is_thought
        return Split(*self._split(text), is_thought)

    def flush(self, text: str = "") -> Split:
        """Give what was held back, and the text that came with the end."""
        if self._is_plain:
            return Split("", text, False)
        reasoning, answer = self._split(text)
        held, self._held = self._held, ""
        return Split(reasoning + held, answer, False) if self._in_thoughts else Split(reasoning, answer + held, False)

    def _split(self, text: str) -> tuple[str, str]:
        self._held += text
        reasoning = answer = ""
        while self._awaited:
            before, marker, behind = _parted(self._held, self._awaited[0])
            if marker is None:
                return reasoning, answer
            if self._in_thoughts:
                reasoning += (before.lstrip("\n") if self._trims else before).rstrip("\n")
            else:
                answer += before
            self._held, self._trims, self._in_thoughts = behind, True, not self._in_thoughts
            del self._awaited[0]
        if self._trims:
            self._held = self._held.lstrip("\n")
            self._trims = not self._held
        n_certain = len(self._held.rstrip("\n")) if self._in_thoughts else len(self._held)
        certain, self._held = self._held[:n_certain], self._held[n_certain:]
        if self._in_thoughts:
            return reasoning + certain, answer
        self._is_plain = not (self._is_thinking or self._trims)
        return reasoning, answer + certain


def _parted(text: str, marker: str) -> tuple[str, str | None, str]:
    """What is before a marker and behind it; None where its text is to come. A control token's is in no text."""
    if not marker:
        return text, marker, ""
    before, found, behind = text.partition(marker)
    return before, found or None, behind


class ThinkingSwitches:
    """The variables by which a chat template makes its model think or not: those that change what it writes."""

    def __init__(self, template: ChatTemplate) -> None:
        """Nothing is rendered before a request asks for a switch."""
        self._template = template

    def variables(self, *, effort: str | None = None, enable_thinking: bool | None = None) -> dict[str, object]:
        """Give the variables for what a request asks for: reasoning_effort, enable_thinking, or none of them.

        The effort medium is what a model does by itself. none and minimal turn thinking off, and high turns it on,
        where the template only knows on and off. Raises ConfigError for what it cannot do.
        """
        if effort is not None and effort not in EFFORTS:
            raise ConfigError("reasoning_effort", got=effort, expected=f"one of {', '.join(EFFORTS)}")
        if enable_thinking is not None and not isinstance(enable_thinking, bool):
            raise ConfigError("enable_thinking", got=enable_thinking, expected="true or false")
        found: dict[str, object] = {}
        if effort is not None and effort in _TEMPLATE_EFFORTS and self._has_effort:
            found["reasoning_effort"] = effort
        elif effort is not None and effort != "medium":
            found |= self._switched(effort)
        if enable_thinking is None:
            return found
        if self._switch is None:
            expected = "nothing: this model's chat template has no such switch"
            raise ConfigError("enable_thinking", got=enable_thinking, expected=expected)
        if found.get(self._switch, enable_thinking) != enable_thinking:
            raise ConfigError("reasoning_effort", got=effort, expected="what enable_thinking says too, or nothing")
        return {**found, self._switch: enable_thinking}

    def _switched(self, effort: str) -> dict[str, object]:
        wanted = {"none": False, "minimal": False, "high": True}.get(effort)
        if self._switch is not None and wanted is not None:
            return {self._switch: wanted}
        levels = [*(_TEMPLATE_EFFORTS if self._has_effort else ("medium",))]
        levels += ["none", "minimal", "high"] if self._switch is not None else []
        expected = f"what this model's chat template can ask for: {', '.join(dict.fromkeys(levels))}"
        raise ConfigError("reasoning_effort", got=effort, expected=expected)

    @cached_property
    def _has_effort(self) -> bool:
        return self._changes("reasoning_effort", "low", "high")

    @cached_property
    def _switch(self) -> str | None:
        """The variable that turns thinking on and off."""
        return next((name for name in ("enable_thinking", "thinking") if self._changes(name, False, True)), None)

    def _changes(self, variable: str, one: Any, other: Any) -> bool:
        try:
            first, second = (self._template.render(_PROBE, **{variable: value}) for value in (one, other))
        except TemplateError:
            return False
        return first != second


_PROBE = [{"role": "user", "content": "."}]
