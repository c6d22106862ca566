"""`fucina bench`: how fast a model reads a prompt and writes an answer here, beside what the memory allows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fucina
from fucina.cli import answer, options, report, terminal
from fucina.cli.groups import Computing, Experts, grouped
from fucina.cli.opening import load_options
from fucina.cli.progress import find_model
from fucina.core.randomness import uniform
from fucina.core.units import format_bytes
from fucina.decoding.params import SamplingParams
from fucina.errors import ConfigError
from fucina.ops.choose import describe_machine, measure_read_bandwidth
from fucina.storage.gguf import StringArray, open_gguf

if TYPE_CHECKING:
    from fucina.engine.model import Model

app = typer.Typer(add_completion=False)

_PREFILL_SIZES = [16, 128, 512]
_DECODED, _REPEATS = 64, 3
_DECODE_PROMPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBytes:
    """What decoding must read for one token: every matrix once; of an embedding that is no head, one row."""

    file_bytes: int
    read_per_token_bytes: int
    vocab: int


@app.command()
@grouped
def command(
    model: options.Model,
    *,
    prefill: Annotated[
        list[int] | None,
        typer.Option(
            "--prefill", metavar="N", min=1, help="Prompt tokens to time; may be repeated. Without it: 16, 128 and 512."
        ),
    ] = None,
    decode: Annotated[int | None, typer.Option("--decode", metavar="N", min=2, help="Tokens to write: 64.")] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", metavar="N", min=1, help="Runs of each, of which the median is shown: 3.")
    ] = None,
    spec_cost: Annotated[
        bool,
        typer.Option(
            "--spec-cost", help="Measure what verifying drafts costs here instead, and keep it for speculation."
        ),
    ] = False,
    computing: Computing,
    experts: Experts,
) -> None:
    """Measure prefill and decode, and the share of the memory roof that decode reaches.

    Examples:
      fucina bench smollm2
      fucina bench smollm2 --prefill 512 --decode 128 --threads 1
      fucina bench smollm2 | tail -n 1 | python -m json.tool
      fucina bench smollm2 --spec-cost

    The roof is the speed at which this machine reads memory, measured first, divided by the bytes of
    weights that one token needs. The last line of the output is one JSON object.
    --spec-cost shows, for so many drafts, the cost of a pass and the share that must be right for a gain.
    """
    if spec_cost and (prefill or decode or repeat):
        raise ConfigError(
            "--spec-cost", got="sizes of the other benchmark", expected="no --prefill, --decode, --repeat"
        )
    path = find_model(model)
    asked = load_options(computing, experts)
    if spec_cost:
        show_costs(path, asked)
        return
    measure(path, asked, prefill or _PREFILL_SIZES, decode or _DECODED, repeat or _REPEATS)


def measure(path: Path, asked: dict[str, Any], prefill: list[int], decode: int, repeat: int) -> None:
    """Time prompts and answers, show the rates, and print all that was measured as one JSON object."""
    sizes = model_bytes(path)
    roof = measure_read_bandwidth(threads=asked["threads"])
    loaded = fucina.load(path, speculation=False, **asked)
    run = Bench(loaded, sizes.vocab, repeat)
    prefill_rates = {n: run.prefill_tok_per_s(n) for n in prefill}
    decode_rate = run.decode_tok_per_s(decode)
    roof_share = None if roof is None else decode_rate * sizes.read_per_token_bytes / roof
    show(prefill_rates, decode_rate, roof, roof_share, sizes)
    for line in answer.expert_lines(loaded):
        terminal.note(line)
    record = {
        **conditions(path, asked),
        **asdict(sizes),
        "repeat": repeat,
        "prefill_tok_per_s": prefill_rates,
        "decode_tokens": decode,
        "decode_tok_per_s": decode_rate,
        "roof_bytes_per_s": roof,
        "roof_share": roof_share,
        "experts": answer.experts_object(loaded.experts),
        "experts_left_out": answer.left_out_object(loaded.experts_left_out),
    }
    print(json.dumps(record), flush=True)


def show_costs(path: Path, asked: dict[str, Any]) -> None:
    """Measure what passes of several rows cost, and what share of drafts must be right for them to pay."""
    points = fucina.load(path, **asked).drafts.measure_costs()
    greatest = points[-1][1]
    columns = [("drafts", "cost in plain steps", "pays from", "")]
    for rows, cost in points[1:]:
        columns.append(
            (str(rows - 1), f"{cost:.2f}", f"{max(cost - 1, 0) / (rows - 1):.0%}", report.bar(cost / greatest))
        )
    report.columns(terminal.stdout(), columns)
    print(json.dumps(conditions(path, asked) | {"rows_and_costs": points}), flush=True)


def conditions(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What was measured, where and how."""
    return {"fucina": fucina.__version__, "model": path.name, "machine": describe_machine(), "asked": asked}


def model_bytes(path: Path) -> ModelBytes:
    """The sizes that turn bytes per second into tokens per second."""
    with open_gguf(path) as gguf:
        weights = gguf.weights
        total = sum(weight.data.nbytes for weight in weights.values())
        embedding = weights["token_embd.weight"]
        if "output.weight" in weights:
            total -= embedding.data.nbytes - embedding.format.row_bytes(embedding.d_in)
        tokens = gguf.metadata["tokenizer.ggml.tokens"]
        vocab = min(embedding.d_out, len(tokens)) if isinstance(tokens, StringArray) else embedding.d_out
        return ModelBytes(file_bytes=gguf.file_bytes, read_per_token_bytes=total, vocab=vocab)


class Bench:
    """Timed runs of one model; each is run `repeat` times on other tokens and the median counts."""

    def __init__(self, model: Model, vocab: int, repeat: int) -> None:
        self._model, self._vocab, self._repeat = model, vocab, repeat

    def prefill_tok_per_s(self, n_tokens: int) -> float:
        """Prompt tokens per second for a prompt of that length."""
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        return median(
            self._model.generate(self._prompt(n_tokens, run), params).timings.prefill_tok_per_s
            for run in range(self._repeat)
        )

    def decode_tok_per_s(self, n_tokens: int) -> float:
        """Tokens per second while writing that many after a short prompt."""
        params = SamplingParams(max_tokens=n_tokens, ignore_eos=True)
        return median(
            self._model.generate(self._prompt(_DECODE_PROMPT, run), params).timings.decode_tok_per_s
            for run in range(self._repeat)
        )

    def _prompt(self, n_tokens: int, run: int) -> list[int]:
        """Random tokens, the same ones each time: speed does not depend on what they say."""
        stream = run << 32 | n_tokens  # no two prompts may begin alike: what was read is not read again
        return [int(uniform(stream, position) * self._vocab) for position in range(n_tokens)]


def show(
    prefill: dict[int, float], decode: float, roof: float | None, roof_share: float | None, sizes: ModelBytes
) -> None:
    """The table for people."""
    out = terminal.stdout()
    fastest = max([decode, *prefill.values()])
    rows = [(f"prefill {n}", f"{rate:.1f} tok/s", report.bar(rate / fastest)) for n, rate in prefill.items()]
    rows.append(("decode", f"{decode:.1f} tok/s", report.bar(decode / fastest)))
    if roof is not None and roof_share is not None:
        rows.append(("memory roof", f"{roof / sizes.read_per_token_bytes:.1f} tok/s", f"{format_bytes(roof)}/s read"))
        rows.append(("share of roof", f"{roof_share:.0%}", report.bar(roof_share)))
    report.columns(out, rows)
