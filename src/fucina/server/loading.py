"""From a model's name to one that answers, beside an event loop that answers already."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

from fucina.engine.model import Model
from fucina.models.fingerprint import model_fingerprint
from fucina.server.manners import manners_of
from fucina.server.state import Loaded, ModelFacts
from fucina.storage.gguf import open_gguf


def loaded_model(open_model: Callable[[], Model], path: Path, names: tuple[str, ...]) -> Loaded:
    """Load, and build what the first requests would wait for. Raises what loading raises."""
    facts = file_facts(path)
    model = open_model()
    model.constraints.prepare()
    return Loaded(names, path, model, model.service(), facts, manners_of(model))


def file_facts(path: Path) -> ModelFacts:
    """What a file says of itself. Raises ModelFileError."""
    gguf = open_gguf(path)
    formats = [weight.format.name for weight in gguf.weights.values()]
    template = gguf.metadata.get("tokenizer.chat_template")
    return ModelFacts(
        family=str(gguf.metadata.get("general.architecture", "")),
        n_parameters=sum(prod(weight.shape) for weight in gguf.weights.values()),
        format=max(set(formats), key=formats.count) if formats else "",
        template=template if isinstance(template, str) else None,
        n_bytes=path.stat().st_size,
        digest=model_fingerprint(gguf, "native").hex(),
    )
