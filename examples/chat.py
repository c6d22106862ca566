"""A conversation: each turn sees the ones before, and only its own text is computed."""

import fucina
from fucina import SamplingParams

params = SamplingParams(max_tokens=40, temperature=0.7, top_p=0.9, seed=11)

with fucina.load("smollm2") as model, model.conversation(system="You answer in one short sentence.") as talk:
    for question in ("What is gravity?", "Who described it first?", "Say that in simpler words."):
        answer = talk.send(question, params)
        print(f"> {question}\n{answer.text}")
        print(f"  ({answer.usage.prompt_tokens} prompt tokens, {answer.usage.cached_tokens} of them remembered)\n")
