"""What reuse saves: turns of a long chat, a second one with the same system message, and many in little memory.

Usage: python benchmarks/reuse.py MODEL [--threads 2] [--no-record]

chat         twenty turns of one conversation: tokens read and seconds to the first token of each
shared       a second conversation with the same system message of 1,800 tokens: seconds to its first token, and to
             that of a first one; blocks of memory that both take together
interleaved  eight conversations in turns in the memory of three, blocks that do not fit going to a folder: tokens
             read again behind the first turn, beside the same without the folder
Prints one JSON line, last, and appends it to benchmarks/records/reuse.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from roof import machine

import fucina
from fucina.engine.completion import Completion
from fucina.engine.model import Model
from fucina.engine.scheduler import blocks_for

PARAMS = fucina.SamplingParams(max_tokens=24)
RULES = (
    "You are the guide of a museum. Visitors ask about pictures, rooms and opening hours. Answer in one short "
    "sentence, name the room by its number, never guess, and send people who ask for anything else to the desk. "
)
#: Of each of the interleaved conversations at its end, roughly.
CONVERSATION_TOKENS = 700
QUESTIONS = ["Where are the portraits?", "When do you close?", "Who painted the storm?", "Is there a cloakroom?"]


def main() -> None:
    """Measure all three on one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    with fucina.load(args.model, threads=args.threads) as model:
        result: dict[str, Any] = {"chat": chat(model), "shared": shared(model)}
    result["interleaved"] = interleaved(args.model, args.threads)
    about = {"date": datetime.date.today().isoformat(), "machine": machine(), "threads": args.threads}
    line = json.dumps(about | {"model": Path(args.model).name} | result, sort_keys=True)
    if not args.no_record:
        with (Path(__file__).parent / "records" / "reuse.jsonl").open("a") as file:
            file.write(line + "\n")
    print(line)


def chat(model: Model) -> list[dict[str, float]]:
    """Twenty turns."""
    turns = []
    with model.conversation(RULES) as talk:
        for turn in range(20):
            answer = talk.send(QUESTIONS[turn % len(QUESTIONS)], PARAMS)
            usage = answer.usage
            turns.append(
                {
                    "prompt": usage.prompt_tokens,
                    "read": usage.prompt_tokens - usage.cached_tokens,
                    "first_token_s": first_token_s(answer),
                }
            )
    last = turns[-1]
    print(f"chat: turn 20 has {last['prompt']} tokens, {last['read']} read, first after {last['first_token_s']:.3f} s")
    return turns


def shared(model: Model) -> dict[str, Any]:
    """Two conversations with one long system message, five times."""
    n_tokens = len(model.tokenizer.encode(RULES))
    rounds = []
    for number in range(5):
        model.forget_prefixes()
        system = f"House {number}. " + RULES * -(-1800 // n_tokens)
        first, second = model.conversation(system), model.conversation(system)
        cold, n_cold = first.send(QUESTIONS[0], PARAMS), model._engine.prefixes.n_blocks
        warm, n_warm = second.send(QUESTIONS[1], PARAMS), model._engine.prefixes.n_blocks
        again = first.send(QUESTIONS[2], PARAMS)
        rounds.append((first_token_s(cold), first_token_s(warm)))
    told = {
        "prompt": cold.usage.prompt_tokens,
        "cold_s": statistics.median(a for a, _ in rounds),
        "warm_s": statistics.median(b for _, b in rounds),
        "speedup": statistics.median(a / b for a, b in rounds),
        "blocks_of_one": n_cold,
        "blocks_of_both": n_warm,
        "first_read_again": again.usage.prompt_tokens - again.usage.cached_tokens,
    }
    print(
        f"shared: first token after {told['cold_s']:.3f} s, then {told['warm_s']:.3f} s ({told['speedup']:.1f} times)"
    )
    print(f"        {n_cold} blocks for one, {n_warm} for both")
    return told


def interleaved(path: str, threads: int) -> dict[str, Any]:
    """Eight conversations in turns, in the memory of three."""
    with fucina.load(path, threads=threads) as model:
        n_bytes = 3 * blocks_for(CONVERSATION_TOKENS) * model._engine.prefixes._pool.geometry.block_bytes
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (("memory", {}), ("folder", {"kv_cache_dir": folder})):
            with fucina.load(path, threads=threads, kv_memory=n_bytes, **options) as model:  # type: ignore[arg-type]
                talks = [model.conversation(f"House {number}. {RULES * 8}") for number in range(8)]
                answers = [[talk.send(question, PARAMS) for talk in talks] for question in QUESTIONS]
            later = [answer for turn in answers[1:] for answer in turn]
            told[name] = {
                "read": statistics.median(one.usage.prompt_tokens - one.usage.cached_tokens for one in later),
                "prompt": statistics.median(one.usage.prompt_tokens for one in later),
                "first_token_s": statistics.median(map(first_token_s, later)),
                "evicted": sum(one.usage.cache_loss == "evicted" for one in later),
            }
            print(f"interleaved, {name}: {told[name]}")
    return told


def first_token_s(answer: Completion) -> float:
    """From the request to its first token."""
    return answer.timings.queue_s + answer.timings.prefill_s


if __name__ == "__main__":
    main()
