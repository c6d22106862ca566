"""Decoding a mixture that fits into memory: its experts read on demand into half of what they take, beside all at hand.

    python benchmarks/make_moe.py fits.gguf --layers 7
    python benchmarks/moe_resident.py fits.gguf --rounds 5

Three models of the same file write the same tokens, one token each in turns: all experts in memory; half, knowing
nothing (`cold`); half, with what an answer of `--tokens` tokens taught (`learned`). The page cache has the file. Ratios
are resident over streamed, medians over the tokens of a round; `fetch` is the share of a token's time that went into
fetching experts from the page cache. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from moe_streaming import PROMPT
from roof import machine

import fucina
from fucina.engine.events import TokenEvent
from fucina.engine.model import Model
from fucina.storage.experts.stats import ExpertStats
from fucina.storage.gguf import open_gguf

#: Tokens of every round before those that are timed: experts come to where they stay.
_WARM = 100


def main() -> None:
    """Run all rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--tokens", type=int, default=500, help=f"of which the first {_WARM} are not timed")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    weights = open_gguf(given.path).weights.values()
    half = sum(weight.data.nbytes for weight in weights if len(weight.shape) == 3) // 2
    kinds: dict[str, dict[str, object]] = {
        "resident": {"moe_stream": False},
        "cold": {"moe_cache": half, "moe_learn": False},
        "learned": {"moe_cache": half},
    }
    teach(given.path, given.tokens, kinds["learned"])
    rounds = [in_turns(given.path, given.tokens, kinds) for _ in range(given.rounds)]
    for each in rounds:
        print(each)
    print(json.dumps({"machine": machine(), "cache_bytes": half, "rounds": rounds}))


def load(path: Path, options: dict[str, object]) -> Model:
    """With room for one sequence, and no drafts."""
    return fucina.load(path, speculation=False, context=2048, kv_memory="256M", **options)  # type: ignore[arg-type]


def teach(path: Path, tokens: int, options: dict[str, object]) -> None:
    """Write another answer, and keep which experts it used; what was kept before is forgotten."""
    path.with_name(f"{path.name}.experts").unlink(missing_ok=True)
    with load(path, options) as model:
        model.generate(PROMPT[::-1], fucina.SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, seed=2))


def in_turns(path: Path, tokens: int, kinds: dict[str, dict[str, object]]) -> dict[str, object]:
    """What all kinds took for the same tokens."""
    models = {name: load(path, options) for name, options in kinds.items()}
    params = fucina.SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, seed=1)
    answers = {name: model.stream(PROMPT, params) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    ids: dict[str, list[int]] = {name: [] for name in kinds}
    before: dict[str, ExpertStats | None] = {}
    for step in range(tokens):
        if step == _WARM:
            before = {name: model.experts for name, model in models.items()}
        for name in sorted(kinds, reverse=bool(step % 2)):
            began = time.perf_counter()
            event = next(answers[name])
            seconds[name].append(time.perf_counter() - began)
            assert isinstance(event, TokenEvent)
            ids[name].append(event.token)
    if any(each != ids["resident"] for each in ids.values()):
        raise SystemExit("streamed experts wrote other tokens")
    plain = seconds["resident"][_WARM:]
    found: dict[str, object] = {"resident_ms": 1e3 * statistics.median(plain)}
    for name in list(kinds)[1:]:
        mine, was, now = seconds[name][_WARM:], before[name], models[name].experts
        assert was is not None
        assert now is not None
        hits = now.cache_hits + now.pinned_hits - was.cache_hits - was.pinned_hits
        found[name] = {
            "ratio": statistics.median(a / b for a, b in zip(plain, mine, strict=True)),
            "hit_rate": hits / (hits + now.misses - was.misses),
            "mb_per_token": (now.bytes_read - was.bytes_read) / 1e6 / len(mine),
            "fetch": (now.wait_s - was.wait_s) / sum(mine),
        }
    for name, model in models.items():
        list(answers[name])  # the end
        model.close()
    return found


if __name__ == "__main__":
    main()
