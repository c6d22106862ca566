"""What passes of several rows cost on this machine with this model: measured once, then remembered in a small file."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from time import perf_counter

from fucina.decoding.speculation.costs import CostTable
from fucina.errors import ConfigError
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence

#: Rows of the measured passes: one plain step, and verifies of 1 to 16 drafts. Where kernels begin another block of
#: rows the price jumps, so few rows are measured one by one.
MEASURED_ROWS = (1, 2, 3, 4, 5, 6, 7, 9, 13, 17)
# Rounds over all of them, fewer if the time is up: a large model would take seconds, and differs less from run to run.
_ROUNDS, _ENOUGH_S = 8, 0.5
# Multiples of it, less their whole parts, are spread evenly, however many there are (Weyl, 1916).
_GOLDEN = 0.6180339887498949
#: The rows of passes of a model that reads experts: as many as there is time for, and at least the first of these.
STREAMED_ROWS, _FEWEST_SIZES = (2, 3, 5, 9, 17), 2
# A file holds a few hundred bytes; whatever is longer is not ours.
_LONGEST_FILE = 1 << 16


class PassCosts:
    """The cost table of one model on this machine. `file` keeps it; None: it is measured anew in every process.

    `streamed`: the model reads experts when a pass needs them.
    """

    def __init__(self, model: CausalLM, file: Path | None = None, *, streamed: bool = False) -> None:
        self._model, self._file, self._streamed = model, file, streamed
        self._table: CostTable | None = None

    def table(self) -> CostTable:
        """The table: known, read from the file, or measured now. Raises KvPoolFull and what a forward pass raises."""
        if self._table is None:
            self._table = self._read() or self.measure()
        return self._table

    def measure(self) -> CostTable:
        """Measure and keep the table, whatever was known. The model must not compute for anybody else meanwhile.

        One for which there was no time, because most experts had still to be read, is not for the next process.
        """
        if self._streamed:
            self._table, is_whole = measure_streamed_costs(self._model)
        else:
            self._table, is_whole = measure_costs(self._model), True
        if self._file is not None and is_whole:
            _write(self._file, {"rows_and_costs": self._table.points})
        return self._table

    def _read(self) -> CostTable | None:
        """The file's table; None if there is none, or what it says cannot be."""
        if self._file is None:
            return None
        try:
            with self._file.open("rb") as file:
                stored = json.loads(file.read(_LONGEST_FILE))
            return CostTable([(int(rows), float(cost)) for rows, cost in stored["rows_and_costs"]])
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError, ConfigError):
            return None


def measure_costs(model: CausalLM) -> CostTable:
    """Time passes of MEASURED_ROWS rows of one sequence. Raises KvPoolFull and what a forward pass raises.

    Each is compared with a plain step right before it, so that a machine that is slow for a while is slow for both.
    """
    sizes = [n for n in MEASURED_ROWS if 1 < n <= model.max_rows]
    ratios: dict[int, list[float]] = {n: [] for n in sizes}
    kv = KvSequence(model.kv_pool)

    def seconds(n_rows: int) -> float:
        before = perf_counter()
        model.forward(Batch((Span(range(n_rows), 0, kv.blocks, n_rows),)))
        return perf_counter() - before

    try:
        kv.reserve(max(MEASURED_ROWS))
        for n in (1, *sizes):  # warms up
            seconds(n)
        began = perf_counter()
        for _ in range(_ROUNDS):
            for n in sizes:
                plain = seconds(1)
                ratios[n].append(seconds(n) / plain)
            if perf_counter() - began > _ENOUGH_S:
                break
    finally:
        kv.close()
    return _ascending([(1, 1.0), *((n, median(taken)) for n, taken in ratios.items())])


def measure_streamed_costs(model: CausalLM) -> tuple[CostTable, bool]:
    """Time passes of a model that reads experts when it needs them. Raises what `measure_costs` raises.

    No two passes have the same tokens, so that plain steps read about as much as those of an answer do: of one token
    everything would be there. A pass may take a second where all must be read, and then there is only time for few of
    them: False besides the table, in which every row costs the same.
    """
    kv, n_tokens = KvSequence(model.kv_pool), 0
    plain: list[float] = []
    taken: dict[int, list[float]] = {}

    def seconds(n_rows: int) -> float:
        nonlocal n_tokens
        tokens = [int((n_tokens + i) * _GOLDEN % 1.0 * model.vocab) for i in range(n_rows)]
        n_tokens += n_rows
        batch = Batch((Span(tokens, 0, kv.blocks, n_rows),))
        before = perf_counter()
        model.forward(batch)
        return perf_counter() - before

    sizes = [n for n in STREAMED_ROWS if n <= model.max_rows]
    try:
        kv.reserve(max(STREAMED_ROWS))
        seconds(1)  # warms up
        began = perf_counter()
        for n in sizes * _ROUNDS:
            if len(taken) >= _FEWEST_SIZES and perf_counter() - began > _ENOUGH_S:
                break
            plain.append(seconds(1))
            taken.setdefault(n, []).append(seconds(n))
    finally:
        kv.close()
    if taken.keys() == set(sizes):
        return _ascending([(1, 1.0), *((n, median(times) / median(plain)) for n, times in taken.items())]), True
    n_more = sum((n - 1) * len(times) for n, times in taken.items())
    row_price = (sum(map(sum, taken.values())) / sum(plain) - 1.0) * len(plain) / n_more
    return CostTable([(1, 1.0), (sizes[-1], 1.0 + (sizes[-1] - 1) * max(row_price, 0.0))]), False


def _ascending(costs: list[tuple[int, float]]) -> CostTable:
    """The table of these; where fewer rows seem to cost more, the clock was disturbed."""
    return CostTable([(n, min(cost for _, cost in costs[index:])) for index, (n, _) in enumerate(costs)])


def _write(file: Path, content: dict[str, object]) -> None:
    """Replace the file in one step. A disk that is full or read-only only means measuring again next time."""
    fresh: Path | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, prefix=file.name, delete=False) as opened:
            fresh = Path(opened.name)
            json.dump(content, opened)
        fresh.replace(file)
    except OSError:
        if fresh is not None:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
