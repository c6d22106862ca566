"""How surprised is a model by a text? Perplexity from the logits, which are the same bits for every chunk size."""

import numpy as np

import fucina

TEXT = "The sea is everything. It covers seven tenths of the terrestrial globe. Its breath is pure and healthy."

with fucina.load("smollm2") as model:
    ids = model.tokenizer.encode(TEXT)
    logits = model.logits(ids)  # (len(ids), vocab): row i is what the model expects after ids[i]
    assert np.array_equal(logits, model.logits(ids, chunk=7))

rows = logits[:-1].astype(np.float64)
rows -= rows.max(axis=1, keepdims=True)
logprobs = rows[np.arange(len(rows)), ids[1:]] - np.log(np.exp(rows).sum(axis=1))
for token, logprob in zip(ids[1:], logprobs, strict=True):
    print(f"{model.tokenizer.decode([token])!r:>15} {logprob:8.3f}")
print(f"perplexity {np.exp(-logprobs.mean()):.2f} over {len(ids)} tokens")
