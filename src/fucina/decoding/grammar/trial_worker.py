"""The program that tries grammars: a process of its own, with little memory, little time and a small stack.

A grammar comes from a request, so it may be hostile. The engine for grammars limits much of what one can cost, but not
everything (long chains of rules overflow its stack, large schemas take it minutes), so the kernel watches the rest.
Started by `fucina.decoding.grammar.trial`; speaks JSON in frames of a four-byte little-endian length over its standard
streams. It imports nothing of fucina, and starts without the site packages.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # where llguidance lies

import llguidance

_MEMORY_BYTES, _CPU_S, _STACK_BYTES, _STEPS = 256 << 20, 0.8, 1 << 20, 8


class _Bytes:
    """A vocabulary of 256 bytes and an end."""

    bos_token_id, eos_token_id = None, 256

    def __init__(self) -> None:
        self.tokens = [*(bytes([byte]) for byte in range(256)), b"\xff<end>"]
        self.special_token_ids = [256]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def tried(trie: llguidance.LLTokenizer, grammar: str, limits: dict[str, object]) -> dict[str, str]:
    """Compile a grammar and take some steps in it; give what went wrong, and whether that was while compiling."""
    state = llguidance.LLMatcher(trie, grammar, log_level=0, limits=llguidance.LLParserLimits(**limits))  # type: ignore[arg-type]
    if state.is_error():
        return {"stage": "compile", "error": state.get_error()}
    for _ in range(_STEPS):
        mask = int.from_bytes(state.compute_bitmask(), "little")
        state.compute_ff_tokens()
        if state.is_error():
            return {"stage": "step", "error": state.get_error()}
        mask &= (1 << 256) - 1
        if not mask or not state.consume_token((mask & -mask).bit_length() - 1):
            break
        state = state.deep_copy()
    return {"stage": "step", "error": state.get_error()} if state.is_error() else {}


def _on_small_stack(request: dict[str, object], trie: llguidance.LLTokenizer) -> dict[str, str]:
    answers: list[dict[str, str]] = []
    grammar, limits = request["grammar"], request["limits"]
    assert isinstance(grammar, str) and isinstance(limits, dict)
    thread = threading.Thread(target=lambda: answers.append(tried(trie, grammar, limits)))
    thread.start()
    thread.join()
    return answers[0] if answers else {"stage": "compile", "error": "it needs too much memory"}


def _limit_memory() -> None:
    try:
        used = resource.getpagesize() * int(Path("/proc/self/statm").read_bytes().split()[0])
    except OSError:  # not Linux
        used = 1 << 30
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _read_frame(stream: BinaryIO) -> bytes:
    """The next frame, empty at the end of the stream."""
    return stream.read(int.from_bytes(stream.read(4), "little"))


def main() -> None:
    """Answer requests until the other side is gone."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    threading.stack_size(_STACK_BYTES)
    trie = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), n_vocab=257, eos_token=[256], slices=[])
    while frame := _read_frame(requests):
        _limit_memory()
        signal.setitimer(signal.ITIMER_PROF, _CPU_S)
        started = time.process_time()
        found = _on_small_stack(json.loads(frame), trie)
        answer = json.dumps({**found, "cpu_s": time.process_time() - started}).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(answer).to_bytes(4, "little") + answer)
        answers.flush()


if __name__ == "__main__":
    main()
