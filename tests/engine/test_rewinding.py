"""Drafts need a cache that can be cut back: a family without one refuses them by name, and answers without them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fucina
from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine
from fucina.engine.model import Model
from fucina.engine.pass_costs import PassCosts
from fucina.engine.request import Request
from fucina.engine.speculation import Speculation
from fucina.engine.speculator import Speculator
from fucina.errors import CannotRewind, ConfigError
from fucina.models import registry
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel, follow
from fucina.testing.tiny_gguf import tiny_model

TEXT = list(b"a rose is a rose is a rose")


class Silent:
    """A source that never has a draft."""

    def suggest(self, *_: object) -> Sequence[int]:
        return ()

    def observe(self, *_: object) -> None:
        pass


def test_a_file_of_such_a_family_is_loaded_without_speculation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path / "home"))
    path = tiny_model(tmp_path / "model.gguf", "llama", n_layers=1)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with fucina.load(path) as model:
        expected = model.generate("ab ab ab ab", params).ids
    describe = registry.FAMILIES["llama"]
    recurrent: Callable[..., Any] = lambda *file: replace(describe(*file), can_rewind=False)  # noqa: E731
    monkeypatch.setattr(registry, "FAMILIES", {"llama": recurrent})
    for speculation in (True, fucina.SpeculationOptions(max_draft=2)):
        with pytest.raises(CannotRewind, match=r"^speculation: .*family 'llama'.*speculation=False \(--no-spec\)$"):
            fucina.load(path, speculation=speculation)
    with fucina.load(path, speculation=False) as model:
        answer = model.generate("ab ab ab ab", params)
        with pytest.raises(ConfigError, match=r"^speculation: .*without it"):
            model.drafts.measure_costs()
    assert (answer.ids, answer.speculation) == (expected, None)


def test_a_model_and_an_engine_refuse_drafts_for_it() -> None:
    lm = ScriptedModel(script=follow(TEXT), can_rewind=False)
    with pytest.raises(CannotRewind, match=r"^speculation: .*family 'scripted'"):
        Model(lm, ByteTokenizer(), speculation=Speculation(lm.vocab, PassCosts(lm)))
    engine = Engine(lm, ByteTokenizer())
    params = SamplingParams(max_tokens=10)
    for drafts in ({"draft_source": Silent()}, {"speculator": Speculator(Silent())}):
        with pytest.raises(CannotRewind, match=r"^draft_source: .*family 'scripted'") as refused:
            engine.submit(Request(prompt_ids=TEXT[:6], params=params, **drafts))  # type: ignore[arg-type]
        assert refused.value.family == "scripted"
    assert engine.is_idle
    assert lm.n_forwards == engine.counters.requests == 0
    engine.submit(Request(prompt_ids=TEXT[:6], params=params))
    *events, _ = engine.run()
    assert [event.token for event in events] == TEXT[6:16]  # type: ignore[union-attr]
