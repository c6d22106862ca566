"""Two processes that time the same passes in turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from work import Rows

HERE = Path(__file__).parent
SIDES = ("fucina", "llama_cpp")

#: A turn of a short pass is a run of passes of about this time, after one that is not counted.
TURN_S = 0.1
MOST_PASSES_IN_A_TURN = 8
#: The other side's threads stop spinning in this time.
PAUSE_S = 0.01


class Peer:
    """A process that times passes on request."""

    def __init__(self, command: list[str], model: Path, threads: int, context: int, sequences: int) -> None:
        """`command`: an interpreter, one of the scripts beside this file, and options of its own."""
        self.command, self.threads = command, threads
        options = ["--threads", str(threads), "--context", str(context), "--sequences", str(sequences)]
        python, script, *own = command
        self.process = subprocess.Popen(
            [python, str(HERE / script), str(model), *options, *own],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.info = self._answer()

    def times(self, spans: list[Rows], passes: int = 1) -> list[float]:
        """Seconds of each of several equal passes."""
        return list(self._ask(spans=spans, passes=passes, choices=False)["seconds"])

    def choices(self, spans: list[Rows]) -> list[int]:
        """The likeliest id of every row with logits."""
        return list(self._ask(spans=spans, passes=1, choices=True)["choices"])

    def stretch(self, n_positions: int) -> None:
        """Give sequence 0 that many positions, copies of its first 512."""
        self._ask(stretch=n_positions)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _ask(self, **request: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.command} ended with status {self.process.wait()}")
        return dict(json.loads(line))


def measure(peers: dict[str, Peer], cases: dict[str, list[Rows]], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every case on both sides: {case: {side: [...]}}.

    Each of `repeats` rounds goes through all cases, so that drift of the machine touches all alike, and measures one
    side right after the other, in alternating order.
    """
    passes = {(case, side): passes_in_turn(peers[side], spans) for case, spans in cases.items() for side in SIDES}
    times: dict[str, dict[str, list[float]]] = {case: {side: [] for side in SIDES} for case in cases}
    for turn in range(repeats):
        for case, spans in cases.items():
            for side in SIDES if turn % 2 else SIDES[::-1]:
                time.sleep(PAUSE_S)
                n = passes[case, side]
                seconds = peers[side].times(spans, n)
                times[case][side] += seconds[1:] if n > 1 else seconds
    return times


def passes_in_turn(peer: Peer, spans: list[Rows]) -> int:
    """How many passes make a turn: one where it is long, else one that warms up and some that count."""
    (seconds,) = peer.times(spans)
    counted = min(MOST_PASSES_IN_A_TURN, int(TURN_S / seconds))
    return 1 + counted if counted else 1


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, best, and spread: the interquartile range over the median."""
    median = statistics.median(seconds)
    quarters = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [median] * 3
    spread = (quarters[2] - quarters[0]) / median
    return {"median_s": median, "best_s": min(seconds), "spread": spread, "passes": len(seconds)}
