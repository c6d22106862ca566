"""An answer that quotes a document: name the document, and drafts come from it. The same text, in fewer passes."""

import fucina
from fucina import Completion, SamplingParams

QUESTION = "Why is the sky blue?"


def tell(title: str, answer: Completion) -> None:
    """Print what came of drafts, source by source."""
    stats = answer.speculation
    assert stats is not None
    print(f"{title}: {answer.usage.completion_tokens} tokens, {stats.accepted} of {stats.drafted} drafts were right")
    for source in stats.sources:
        print(f"  {source.name}: {source.accepted} of {source.drafted}{', muted' if source.is_muted else ''}")
    print(f"  gate {stats.gate}, {stats.verify_steps} verifies, {stats.fallback_steps + stats.off_steps} plain steps")


params = SamplingParams(max_tokens=80)

with fucina.load("smollm2") as model:
    first = model.chat(QUESTION, params)
    print(first.text, "\n")
    tell("without a reference", first)

    # a handbook of questions and answers, of which this one is asked again
    handbook = f"Questions and answers\n\n{QUESTION}\n\n{first.text}\n\nWhy do leaves fall?\n\n..."
    again = model.chat(QUESTION, params, references=[handbook])
    tell("with the handbook as a reference", again)
    assert again.ids == first.ids
