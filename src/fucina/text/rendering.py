"""Running templates in a process of their own, which may run out of memory, time or stack without harm to this one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from fucina.core.worker import Worker, WorkerDied
from fucina.errors import TemplateError

_MAX_FRAME_BYTES = 1 << 31


class Renderer:
    """Renders templates in a worker process, started when first needed and again whenever a template ended it.

    Any number of threads may call; they take turns.
    """

    def __init__(self) -> None:
        self._worker = Worker(Path(__file__).with_name("render_worker.py"), "minijinja")

    def render(self, source: str, context: Mapping[str, object]) -> str:
        """Render a template with plain values (as JSON has them). Raises TemplateError."""
        try:
            request = json.dumps({"source": source, "context": context}, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateError(f"the messages hold a value that a chat template cannot take: {error}") from error
        if len(request) >= _MAX_FRAME_BYTES:
            raise TemplateError("the messages are too long for a chat template")
        try:
            answer = self._worker.ask(request)
        except WorkerDied as error:
            raise TemplateError(f"the chat template was stopped: {error}") from error
        return _text_of(json.loads(answer))

    def close(self) -> None:
        """End the worker; the next `render` starts another."""
        self._worker.close()


@functools.cache
def shared_renderer() -> Renderer:
    """The renderer of this process: templates of all models take turns in one worker."""
    return Renderer()


def _text_of(answer: Mapping[str, object]) -> str:
    if "text" in answer:
        return str(answer["text"])
    if "refusal" in answer:
        raise TemplateError(str(answer["refusal"]))
    line = f" (line {answer['line']})" if answer.get("line") else ""
    raise TemplateError(f"the chat template failed: {answer['error']}{line}")
