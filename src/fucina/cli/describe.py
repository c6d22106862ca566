"""`fucina inspect`: what a GGUF file holds and would need, or what this machine offers."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

from fucina.cli import options, report, terminal
from fucina.cli.progress import find_model
from fucina.core.units import format_bytes
from fucina.errors import ConfigError, UnsupportedModel
from fucina.models.loader import memory_needed
from fucina.models.streaming import expert_history
from fucina.ops.choose import describe_machine
from fucina.storage.gguf import GgufFile, MetadataValue, StringArray, open_gguf

app = typer.Typer(add_completion=False)

_SHOWN_ITEMS = 3
_SHOWN_LETTERS = 100


@app.command()
def command(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A .gguf file or a pulled model's name.", show_default=False)
    ] = None,
    machine: Annotated[bool, typer.Option("--machine", help="Show the CPU, its tiers and what was chosen.")] = False,
    context: options.Context = None,
    kv_format: options.KvFormat = "f16",
    as_json: options.Json = False,
) -> None:
    """Show what a GGUF file holds and how much memory it needs, or what this machine offers.

    Examples:
      fucina inspect smollm2
      fucina inspect model-00001-of-00003.gguf --context 4096
      fucina inspect smollm2 --json | python -m json.tool
      fucina inspect --machine

    Only the front of the file is read. Metadata arrays and long texts are shortened.
    """
    if machine == (file is not None):
        raise ConfigError("fucina inspect", got=file, expected="either a FILE or --machine")
    if file is None:
        facts = describe_machine()
        show = show_machine
    else:
        with open_gguf(find_model(file)) as gguf:
            facts = file_facts(gguf, context, kv_format)
        show = show_file
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        show(facts)


def file_facts(gguf: GgufFile, context: int | None, kv_format: str) -> dict[str, Any]:
    """Everything that is shown, ready for JSON. `refused` says why a sound file would not run, if it would not."""
    formats: dict[str, dict[str, int]] = defaultdict(lambda: {"tensors": 0, "weights": 0, "bytes": 0})
    tensors = []
    for weight in gguf.weights.values():
        tensors.append(
            {"name": weight.name, "format": weight.format.name, "shape": weight.shape, "bytes": weight.data.nbytes}
        )
        of_format = formats[weight.format.name]
        of_format["tensors"] += 1
        of_format["weights"] += math.prod(weight.shape)
        of_format["bytes"] += weight.data.nbytes
    memory, refused = None, None
    try:
        needed = memory_needed(gguf, context, kv_format=kv_format)
        memory = {**asdict(needed), "total_bytes": needed.total_bytes}
        if needed.experts is not None:
            memory["experts"]["total_bytes"] = needed.experts.total_bytes
            history = expert_history(gguf, needed.experts.n_layers, needed.experts.n_experts)
            memory["experts"]["history"] = None if history is None else asdict(history)
    except UnsupportedModel as error:
        refused = str(error)
    return {
        "files": [str(part) for part in gguf.parts],
        "file_bytes": gguf.file_bytes,
        "version": gguf.version,
        "weights": sum(f["weights"] for f in formats.values()),
        "formats": dict(formats),
        "memory": memory,
        "refused": refused,
        "metadata": {key: brief(value) for key, value in gguf.metadata.items()},
        "tensors": tensors,
    }


def brief(value: MetadataValue) -> Any:
    """A metadata value for JSON: an array becomes its length and first items, a float that JSON lacks its name."""
    if isinstance(value, StringArray | np.ndarray):
        first = value[:_SHOWN_ITEMS].tolist() if isinstance(value, np.ndarray) else value[:_SHOWN_ITEMS]
        return {"items": len(value), "first": [brief(item) for item in first]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def show_file(facts: dict[str, Any]) -> None:
    """Print the facts of a file for a person: the summary first, the long lists after it."""
    out = terminal.stdout()
    for file in facts["files"]:
        report.line(out, file)
    report.line(
        out, f"GGUF version {facts['version']}, {format_bytes(facts['file_bytes'])}, {facts['weights']:,} weights"
    )
    report.heading(out, "Formats")
    report.columns(
        out,
        (
            (name, f"{f['tensors']} tensors", f"{f['weights']:,} weights", format_bytes(f["bytes"]))
            for name, f in facts["formats"].items()
        ),
    )
    report.heading(out, "Memory needed")
    if facts["memory"] is None:
        report.line(out, f"  would not run: {facts['refused']}")
    else:
        report.columns(out, memory_rows(facts["memory"]))
    report.heading(out, "Metadata")
    report.columns(out, ((key, shortened(value)) for key, value in facts["metadata"].items()))
    report.heading(out, "Tensors")
    report.columns(
        out,
        (
            (t["name"], t["format"], " x ".join(map(str, t["shape"])), format_bytes(t["bytes"]))
            for t in facts["tensors"]
        ),
    )


def memory_rows(memory: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of the memory table."""
    return [
        ("weights", format_bytes(memory["weights_bytes"])),
        *(expert_rows(memory["experts"]) if memory["experts"] else ()),
        ("keys and values", f"{format_bytes(memory['kv_bytes'])} for the whole context, taken as it fills"),
        ("", f"{format_bytes(memory['kv_bytes_per_position'])} a position"),
        ("workspace", format_bytes(memory["workspace_bytes"])),
        ("total", format_bytes(memory["total_bytes"])),
    ]


def expert_rows(experts: dict[str, Any]) -> list[tuple[str, str]]:
    """What of the weights are routed experts, and how many of them a token uses."""
    used = f"{experts['n_layers']} layers with {experts['n_experts']:,}, of which a token uses {experts['n_used']}"
    shared = f" beside a shared one, {experts['d_shared']:,} wide" if experts["d_shared"] else ""
    one = f"{format_bytes(experts['expert_bytes'])} each, {experts['d_expert']:,} wide"
    return [
        ("of them experts", f"{format_bytes(experts['total_bytes'])}, {one}"),
        ("", used + shared),
        *(history_rows(experts["history"], experts["expert_bytes"]) if experts["history"] else ()),
    ]


def history_rows(history: dict[str, Any], expert_bytes: int) -> list[tuple[str, str]]:
    """What streaming runs have learned of the experts."""
    pins = "enough" if history["may_pin"] else "too few"
    half = f"the first {history['half_by']:,} of them ({format_bytes(history['half_by'] * expert_bytes)})"
    return [
        ("experts used", f"{history['used_experts']:,} of {history['experts']:,}, half of all uses by {half}"),
        ("", f"{history['uses']:,} uses so far, {pins} to pin experts by"),
    ]


def shortened(value: Any) -> str:
    """A metadata value on one line."""
    if isinstance(value, dict):
        more = ", ..." if value["items"] > _SHOWN_ITEMS else ""
        return f"{value['items']:,} items: {', '.join(map(repr, value['first']))}{more}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}... ({len(text):,} characters)"


def show_machine(facts: dict[str, Any]) -> None:
    """Print what describe_machine found, one line a fact."""
    report.columns(terminal.stdout(), (_machine_row(name, value) for name, value in facts.items()))


def _machine_row(name: str, value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        value = ", ".join(key for key, runs in value.items() if runs)
    if name.endswith("_bytes") and value is not None:
        name, value = name.removesuffix("_bytes"), format_bytes(value)
    return name.replace("_", " "), "none" if value is None else str(value)
