"""`fucina run`: text on stdout, statistics on stderr, one object with --json, the same ids on every schedule."""

from __future__ import annotations

import json
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fucina
from fucina import SamplingParams
from fucina.core.nativelib import Absent
from fucina.ops import choose


def ask(invoke, *words: object, **options: object) -> dict[str, Any]:
    result = invoke("run", *words, "--json", **options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def test_text_on_stdout_and_statistics_on_stderr(fucina_process, tiny_path: Path) -> None:
    result = fucina_process("run", tiny_path, "-p", "hello", "-n", "8")
    assert result.returncode == 0
    with fucina.load(tiny_path) as model:
        expected = model.chat("hello", SamplingParams(max_tokens=8))
    assert result.stdout.decode() == expected.text + "\n"
    assert f"{expected.usage.prompt_tokens} prompt tokens" in result.stderr.decode()
    assert f"{expected.usage.completion_tokens} tokens" in result.stderr.decode()
    told = result.stderr.decode().splitlines()
    assert [line.split()[0] for line in told[1:]] in (["spec:"], ["spec:", "spec"])
    assert b"\x1b" not in result.stdout + result.stderr


def test_object_holds_the_completion_to_the_last_bit(invoke, tiny_path: Path) -> None:
    answer = ask(invoke, tiny_path, "-p", "hello", "-n", 6, "--logprobs", 3)
    with fucina.load(tiny_path) as model:
        expected = model.chat("hello", SamplingParams(max_tokens=6, logprobs=3))
    assert answer["model"] == str(tiny_path)
    assert answer["prompt_ids"] == expected.prompt_ids
    assert answer["ids"] == expected.ids
    assert answer["text"] == expected.text
    assert answer["finish_reason"] == expected.finish_reason
    assert answer["usage"] == {
        "prompt_tokens": len(expected.prompt_ids),
        "completion_tokens": len(expected.ids),
        "cached_tokens": 0,
        "cache_loss": None,
    }
    assert answer["logprobs"] == [
        {"id": entry.token, "logprob": entry.logprob, "top": [list(pair) for pair in entry.top]}
        for entry in expected.logprobs or []
    ]
    assert all(len(entry["top"]) == 3 for entry in answer["logprobs"])
    assert answer["timings"]["prefill_tokens"] == len(expected.prompt_ids)


def test_raw_continues_the_text_itself(invoke, tiny_path: Path) -> None:
    with fucina.load(tiny_path) as model:
        plain = model.tokenizer.encode("hello")
    assert ask(invoke, tiny_path, "-p", "hello", "-n", 1, "--raw")["prompt_ids"] == plain
    assert ask(invoke, tiny_path, "-p", "hello", "-n", 1)["prompt_ids"] != plain


def test_system_message_becomes_part_of_the_prompt(invoke, tiny_path: Path) -> None:
    without = ask(invoke, tiny_path, "-p", "hello", "-n", 1)["prompt_ids"]
    assert len(ask(invoke, tiny_path, "-p", "hello", "-n", 1, "--system", "be kind")["prompt_ids"]) > len(without)
    result = invoke("run", tiny_path, "-p", "hello", "--raw", "--system", "be kind")
    assert result.exit_code == 2
    assert "--system" in result.stderr


def test_piped_text_is_the_prompt(invoke, tiny_path: Path) -> None:
    piped = ask(invoke, tiny_path, "-n", 3, input="grüß dich\n")
    assert piped["prompt_ids"] == ask(invoke, tiny_path, "-p", "grüß dich", "-n", 3)["prompt_ids"]


def test_piped_bytes_that_are_no_text(invoke, tiny_path: Path) -> None:
    result = invoke("run", tiny_path, input=b"ab\xff")
    assert result.exit_code == 2
    assert "UTF-8" in result.stderr
    assert "byte 2" in result.stderr


def test_no_prompt_at_a_terminal_is_a_question_not_a_wait(tiny_path: Path) -> None:
    _, terminal = pty.openpty()
    result = subprocess.run(
        [sys.executable, "-m", "fucina", "run", tiny_path],
        stdin=terminal,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 2
    assert b"--prompt" in result.stderr


def test_a_seed_repeats_a_text_and_a_fresh_one_is_reported(invoke, tiny_path: Path) -> None:
    words = (tiny_path, "-p", "hello", "-n", 12, "--temp", "1.5")
    fresh = ask(invoke, *words)
    assert ask(invoke, *words, "--seed", fresh["seed"])["ids"] == fresh["ids"]
    others = [ask(invoke, *words, "--seed", seed)["ids"] for seed in (1, 2)]
    assert others[0] != others[1]
    result = invoke("run", *words, "--seed", 1)
    assert "seed 1" in result.stderr
    assert "seed" not in invoke("run", tiny_path, "-p", "hello", "-n", 2).stderr


def test_narrowing_options_reach_the_choice(invoke, tiny_path: Path) -> None:
    words = (tiny_path, "-p", "hello", "-n", 12, "--seed", 5)
    greedy = ask(invoke, *words)["ids"]
    assert ask(invoke, *words, "--temp", 2)["ids"] != greedy
    for narrow in (("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1)):
        assert ask(invoke, *words, "--temp", 2, *narrow)["ids"] == greedy
    assert ask(invoke, *words, "--repeat-penalty", 100)["ids"] != greedy


def test_stop_text_ends_the_answer_and_is_not_in_it(invoke, tiny_path: Path) -> None:
    whole = ask(invoke, tiny_path, "-p", "hello", "-n", 40)
    stop = whole["text"][5:8]
    answer = ask(invoke, tiny_path, "-p", "hello", "-n", 40, "--stop", "never said", "--stop", stop)
    assert answer["finish_reason"] == "stop"
    assert answer["stop"] == stop
    assert answer["text"] == whole["text"][: whole["text"].index(stop)]


@pytest.mark.parametrize(
    "schedule",
    [
        ("--prefill-chunk", 1),
        ("--prefill-chunk", 7),
        ("--threads", 1),
        ("--threads", 2),
        ("--tier", "scalar"),
        ("--no-repack",),
    ],
    ids=lambda words: "".join(map(str, words)),
)
def test_schedules_change_nothing(invoke, tiny_path: Path, schedule: tuple[object, ...]) -> None:
    words = (tiny_path, "-p", "hello " * 20, "-n", 8, "--logprobs", 2)
    plain, other = ask(invoke, *words), ask(invoke, *words, *schedule)
    assert other["ids"] == plain["ids"]
    assert other["logprobs"] == plain["logprobs"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--temp", "-1"), "temperature"),
        (("--temp", "nan"), "temperature"),
        (("--top-p", "0"), "top_p"),
        (("--top-k", "0"), "top_k"),
        (("--stop", ""), "stop"),
        (("--logprobs", "100000"), "logprobs"),
        (("--context", "1000000"), "context"),
        (("--tier", "quantum"), "quantum"),
    ],
)
def test_options_that_cannot_be(invoke, tiny_path: Path, words: tuple[str, ...], named: str) -> None:
    result = invoke("run", tiny_path, "-p", "hello", *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert named in result.stderr


def test_a_prompt_that_does_not_fit(invoke, tiny_path: Path) -> None:
    result = invoke("run", tiny_path, "-p", "hello " * 1000)
    assert result.exit_code == 6
    assert result.stderr.count("\n") == 1


def test_without_the_extension_numpy_answers_with_one_warning(
    invoke, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "open_native", lambda: Absent("the compiled extension is not there (pretended)"))
    result = invoke("run", tiny_path, "-p", "hello", "-n", 2)
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.startswith("warning: ")] == lines[:1]
    assert "compiler" in lines[0]


def test_a_reader_who_leaves_ends_it_quietly(tiny_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "fucina", "run", tiny_path, "-p", "hello"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout
    assert writer.stderr
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait(300) == 1
    writer.stderr.close()


@pytest.mark.model
def test_a_real_answer(invoke, smollm2_path: Path) -> None:
    answer = ask(invoke, smollm2_path, "-p", "Name three primary colors.", "-n", 40)
    assert answer["finish_reason"] == "stop"
    assert all(color in answer["text"] for color in ("Red", "Blue", "Yellow"))
