"""Several prompts in one batch: each gets exactly the tokens it would get alone."""

import fucina
from fucina import SamplingParams

prompts = ["Water boils at", "Once upon a time", "The three primary colors are", "A short poem about rain:"]
params = SamplingParams(max_tokens=16)

with fucina.load("smollm2") as model:
    together = model.generate_batch(prompts, params)
    for prompt, completion in zip(prompts, together, strict=True):
        print(f"{prompt}{completion.text!r}")
        assert completion.ids == model.generate(prompt, params).ids
print("each one equals the run alone")
