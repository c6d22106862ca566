"""Measure how much llama.cpp's own figures move with its schedule: what no other engine can be asked to agree with.

A model whose activations are rounded to int8 amplifies the last bit of a float: another batch size or flash attention
moves llama.cpp's logits by a tenth on average, and by more than one now and then. This runs the prompts and answers of
greedy-NAME.json (forced, not chosen) through seven schedules and stores, for every step, by how much the golden token
leads the best other one in each; and the mean negative log-likelihood of the text in each of three.

Run it where llama-cpp-python (the version named in the golden files) is installed:

    python tests/golden/make_peer_margins.py NAME MODEL.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import Llama

HERE = Path(__file__).parent

#: Name -> (flash attention, rows a pass, whether the answer goes token by token). The first made the golden files.
SCHEDULES = {
    "golden": (False, 512, True),
    "whole": (False, 512, False),
    "rows of 8": (False, 8, False),
    "rows of 1": (False, 1, False),
    "flash": (True, 512, True),
    "flash, whole": (True, 512, False),
    "flash, rows of 1": (True, 1, False),
}
TEXT_SCHEDULES = ("golden", "rows of 8", "rows of 1", "flash, whole")


def main(name: str, model_path: str) -> None:
    """Write peer-margins-NAME.json."""
    golden = json.loads((HERE / f"greedy-{name}.json").read_text())
    margins, nll = {}, {}
    for schedule, (flash, rows, stepwise) in SCHEDULES.items():
        model = Llama(
            model_path,
            n_ctx=2048,
            logits_all=True,
            n_threads=2,
            flash_attn=flash,
            n_batch=rows,
            n_ubatch=rows,
            verbose=False,
        )
        margins[schedule] = [case_margins(model, case, stepwise) for case in golden["cases"]]
        if schedule in TEXT_SCHEDULES:
            nll[schedule] = text_nll(model, golden["perplexity"])
        model.close()
        print(f"{name}, {schedule}: {nll.get(schedule)}", flush=True)
    result = {"made_with": golden["made_with"], "margins": margins, "mean_nll": nll}
    (HERE / f"peer-margins-{name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


def case_margins(model: Llama, case: dict[str, Any], stepwise: bool) -> list[float]:
    """For every step: logit of the golden token minus the best other logit."""
    n_prompt = len(case["prompt_ids"])
    ids = [*case["prompt_ids"], *(step["id"] for step in case["steps"])]
    model.reset()
    for part in [ids[:n_prompt], *([i] for i in ids[n_prompt:-1])] if stepwise else [ids[:-1]]:
        model.eval(part)
    leads = []
    for logits, token in zip(np.array(model.scores[n_prompt - 1 : len(ids) - 1]), ids[n_prompt:], strict=True):
        leads.append(round(float(logits[token] - np.delete(logits, token).max()), 4))
    return leads


def text_nll(model: Llama, golden: dict[str, Any]) -> float:
    """Mean over tokens 1 .. n - 1 of the text, in one window."""
    text = (HERE / golden["text_file"]).read_bytes()
    ids = model.tokenize(text, add_bos=golden["bos"])[: golden["tokens"]]
    model.reset()
    model.eval(ids)
    total = 0.0
    for position, token in enumerate(ids[1:]):
        logits = np.array(model.scores[position], np.float64)
        total += logits.max() + np.log(np.exp(logits - logits.max()).sum()) - logits[token]
    return total / (len(ids) - 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
