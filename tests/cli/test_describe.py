"""`fucina inspect` on tiny files: the numbers must be the ones that were written."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fucina.core.formats import Q4_K, Q8_0
from fucina.models.fingerprint import model_fingerprint
from fucina.storage.experts.usage import UsageFile
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import tiny_model


def test_facts_are_those_of_the_file(invoke, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", format=Q4_K, embedding_format=Q8_0)
    facts = json.loads(invoke("inspect", path, "--json").stdout)
    assert facts["files"] == [str(path)]
    assert facts["file_bytes"] == path.stat().st_size
    assert facts["refused"] is None
    tensors = {t["name"]: t for t in facts["tensors"]}
    assert tensors["blk.1.ffn_down.weight"] == {
        "name": "blk.1.ffn_down.weight",
        "format": "Q4_K",
        "shape": [256, 512],
        "bytes": 256 * 512 // 256 * 144,
    }
    assert facts["formats"]["Q8_0"]["tensors"] == 2
    assert facts["weights"] == sum(math.prod(t["shape"]) for t in facts["tensors"])
    # two layers, K and V, two heads of 64 half floats
    assert facts["memory"]["kv_bytes_per_position"] == 2 * 2 * 2 * 64 * 2
    assert facts["memory"]["weights_bytes"] == sum(t["bytes"] for t in facts["tensors"])
    assert facts["metadata"]["general.name"] == "tiny llama"
    assert facts["metadata"]["tokenizer.ggml.tokens"]["items"] == tensors["token_embd.weight"]["shape"][0]


def test_experts_are_told_apart_from_the_other_weights(invoke, tmp_path: Path, tiny_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "qwen2moe", format=Q4_K, n_experts=16, n_used=2, d_shared=512)
    facts = json.loads(invoke("inspect", path, "--json").stdout)
    stacked = [t for t in facts["tensors"] if "_exps." in t["name"]]
    assert len(stacked) == 6
    assert facts["memory"]["experts"] == {
        "n_layers": 2,
        "n_experts": 16,
        "n_used": 2,
        "d_expert": 256,
        "d_shared": 512,
        "expert_bytes": 3 * 256 * 144,
        "total_bytes": sum(t["bytes"] for t in stacked),
        "history": None,
    }
    shown = invoke("inspect", path).stdout
    assert "2 layers with 16, of which a token uses 2 beside a shared one, 512 wide" in shown
    assert "108.0 KiB each, 256 wide" in shown
    assert json.loads(invoke("inspect", tiny_path, "--json").stdout)["memory"]["experts"] is None


def test_what_runs_have_learned_of_experts_is_shown(invoke, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "qwen3moe", format=Q4_K, n_experts=16, n_used=2)
    counts = [np.array([900, 50, *[0] * 14], np.uint64), np.array([*[0] * 12, 40, 30, 20, 10], np.uint64)]
    with open_gguf(path) as gguf:
        file = UsageFile([path.with_name("m.gguf.experts")], model_fingerprint(gguf, "experts"), [16, 16])
    file.add(counts)
    facts = json.loads(invoke("inspect", path, "--json").stdout)["memory"]["experts"]
    assert facts["history"] == {"uses": 1050, "experts": 32, "used_experts": 6, "half_by": 1, "may_pin": False}
    shown = invoke("inspect", path).stdout
    assert "6 of 32, half of all uses by the first 1 of them (108.0 KiB)" in shown
    assert "1,050 uses so far, too few to pin experts by" in shown
    file.add([n * np.uint64(10) for n in counts[::-1]])  # the layers changed places
    facts = json.loads(invoke("inspect", path, "--json").stdout)["memory"]["experts"]
    assert facts["history"] == {"uses": 11550, "experts": 32, "used_experts": 12, "half_by": 1, "may_pin": True}


def test_context_and_kv_format_change_the_memory(invoke, tiny_path: Path) -> None:
    def kv_bytes(*words: str) -> int:
        return json.loads(invoke("inspect", tiny_path, "--json", *words).stdout)["memory"]["kv_bytes"]

    assert kv_bytes("--context", "64") * 8 == kv_bytes()
    assert kv_bytes("--kv-format", "q8_0") < kv_bytes()


def test_lists_are_one_line_an_entry_also_in_a_pipe(invoke, tiny_path: Path) -> None:
    lines = invoke("inspect", tiny_path).stdout.splitlines()
    assert sum(line.startswith("  blk.0.") for line in lines) == 9
    assert any(line.split() == ["blk.0.ffn_up.weight", "F32", "512", "x", "256", "512.0", "KiB"] for line in lines)
    assert any("tokenizer.chat_template" in line and "characters)" in line for line in lines)


def test_a_hostile_name_cannot_drive_the_terminal(invoke, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", metadata={"general.name": "\x1b]0;owned\x07\x9b2J"})
    shown = invoke("inspect", path).stdout
    assert "\\x1b]0;owned\\x07\\x9b2J" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}


def test_numbers_that_json_lacks_become_words(invoke, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", metadata={"made.up": math.inf})
    text = invoke("inspect", path, "--json").stdout
    assert json.loads(text, parse_constant=pytest.fail)["metadata"]["made.up"] == "inf"


def test_a_family_that_does_not_run_is_still_shown(invoke, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", metadata={"general.architecture": "mystery"})
    result = invoke("inspect", path)
    assert result.exit_code == 0
    assert "would not run" in result.stdout
    assert "mystery" in result.stdout


def test_machine(invoke) -> None:
    facts = json.loads(invoke("inspect", "--machine", "--json").stdout)
    assert facts["threads"] >= 1
    shown = invoke("inspect", "--machine").stdout
    assert len(shown.splitlines()) == len(facts)


@pytest.mark.parametrize("words", [(), ("file", "--machine")])
def test_one_of_file_and_machine(invoke, words: tuple[str, ...]) -> None:
    result = invoke("inspect", *words)
    assert result.exit_code == 2
    assert "either a FILE or --machine" in result.stderr
