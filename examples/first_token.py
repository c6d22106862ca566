"""Load a model, ask it something, print the answer as it is made."""

import fucina
from fucina import FinishEvent, SamplingParams

with fucina.load("smollm2") as model:
    for event in model.stream_chat("Name three primary colors.", SamplingParams(max_tokens=60)):
        print(event.text, end="", flush=True)
        if isinstance(event, FinishEvent):
            print(f"\n\n{event.usage.completion_tokens} tokens, {event.timings.decode_tok_per_s:.1f} tok/s")
