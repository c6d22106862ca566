"""Speculation on the command line: the same text, the lines about it, and references that cannot be."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fucina.cli import answer, main
from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.speculation.stats import SourceReport, SpeculationStats
from fucina.engine.events import FinishEvent, Timings, Usage

STEPS = re.compile(
    r"spec: steps=(?P<steps>\d+) \(verify (?P<verify>\d+), fallback (?P<fallback>\d+), off (?P<off>\d+)\) "
    r"committed=(?P<committed>\d+) \((?P<rate>\d+\.\d\d) tok/step\) drafted=(?P<drafted>\d+) "
    r"accepted=(?P<accepted>\d+) \((?P<share>\d+)%\) bonus=(?P<bonus>\d+) rejected=(?P<rejected>\d+) "
    r"\| gate (?P<gate>on|off|probing)(, estimated speed-up (?P<speedup>\d+\.\d\d))?"
)
SOURCES = re.compile(r"spec sources: (([a-z]+( \d+)? \d+/\d+( \(muted\))?)(, (?!$)|$))+")


def ask(invoke, path: Path, *words: object) -> dict[str, Any]:
    result = invoke("run", path, "-p", "hello hello", "-n", 60, "--json", *words)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def finished(stats: SpeculationStats | None) -> FinishEvent:
    timings = Timings(queue_s=0.0, prefill_s=1.0, decode_s=1.0, prefill_tokens=4, decode_tokens=8)
    usage = Usage(4, 9, 0)
    return FinishEvent(request_id=1, reason="length", usage=usage, timings=timings, seed=7, speculation=stats)


def test_lines_say_what_was_counted() -> None:
    # 2 verifies with all 6 drafts right and a token more, 3 with 9 of 18 right and a token instead, 1 ended by a draft
    stats = SpeculationStats(
        verify_steps=6,
        fallback_steps=2,
        off_steps=1,
        drafted=25,
        accepted=16,
        bonus=2,
        rejected=3,
        gate="on",
        estimated_speedup=1.456,
        sources=(
            SourceReport("conversation", 20, 15, False),
            SourceReport("reference 1", 0, 0, False),
            SourceReport("reference 2", 0, 0, True),
            SourceReport("recycling", 5, 1, True),
        ),
    )
    _, steps, sources = answer.statistics(finished(stats), sampled=False)
    assert steps == (
        "spec: steps=9 (verify 6, fallback 2, off 1) committed=24 (2.67 tok/step) drafted=25 accepted=16 (64%) "
        "bonus=2 rejected=3 | gate on, estimated speed-up 1.46"
    )
    assert sources == "spec sources: conversation 15/20, reference 2 0/0 (muted), recycling 1/5 (muted)"


def test_lines_tell_of_a_grammar_and_its_masks() -> None:
    stats = SpeculationStats(
        verify_steps=2,
        fallback_steps=3,
        drafted=10,
        accepted=9,
        forced=6,
        bonus=1,
        rejected=1,
        gate="off",
        sources=(SourceReport("grammar", 6, 6, False), SourceReport("recycling", 4, 3, False)),
    )
    finish = replace(finished(stats), satisfied=True, mask_costs=MaskCosts(masks=14, seconds=0.0014, waited_s=0.00035))
    _, steps, sources, masks = answer.statistics(finish, sampled=False)
    assert steps == (
        "spec: steps=5 (verify 2, fallback 3, off 0) committed=14 (2.80 tok/step) drafted=10 accepted=9 (90%) forced=6 "
        "bonus=1 rejected=1 | gate off"
    )
    assert sources == "spec sources: grammar 6/6, recycling 3/4"
    assert masks == "constraint: 14 masks of 100 us, 75% of it hidden behind passes"
    plain = replace(finished(None), satisfied=True, mask_costs=MaskCosts())
    assert len(answer.statistics(plain, sampled=False)) == 1


@pytest.mark.parametrize("stats", [None, SpeculationStats()])
def test_no_lines_where_there_was_nothing_to_draft(stats: SpeculationStats | None) -> None:
    assert len(answer.statistics(finished(stats), sampled=False)) == 1


@pytest.mark.usefixtures("cheap_drafts")
def test_lines_of_a_run_hang_together(invoke, tiny_path: Path) -> None:
    result = invoke("run", tiny_path, "-p", "hello hello", "-n", 60)
    _, steps, sources = result.stderr.splitlines()
    found = STEPS.fullmatch(steps)
    assert found, steps
    told = found.groupdict()
    n = {name: int(value) for name, value in told.items() if name not in ("rate", "gate", "speedup")}
    assert n["steps"] == n["verify"] + n["fallback"] + n["off"]
    assert n["verify"] == n["bonus"] + n["rejected"] > 0  # none was ended by a draft
    assert n["committed"] == n["steps"] + n["accepted"]
    # the first token came with the prompt, and for the last one no drafts are asked for
    assert n["committed"] in (58, 59)
    assert told["rate"] == f"{n['committed'] / n['steps']:.2f}"
    assert n["drafted"] >= n["accepted"]
    assert n["share"] == round(100 * n["accepted"] / n["drafted"])
    assert SOURCES.fullmatch(sources), sources
    right, tried = zip(*re.findall(r"(\d+)/(\d+)", sources), strict=True)
    assert sum(map(int, tried)) == n["drafted"]
    assert sum(map(int, right)) == n["accepted"]


def test_speculation_changes_no_text(invoke, tiny_path: Path, cheap_drafts: Path) -> None:
    document = cheap_drafts / "document.txt"
    for words in ((), ("--temp", 0.9, "--seed", 3, "--logprobs", 2)):
        plain = ask(invoke, tiny_path, "--no-spec", *words)
        document.write_text(plain["text"], "utf-8")
        drafted = ask(invoke, tiny_path, "--spec", *words)
        quoted = ask(invoke, tiny_path, "--spec-ref", document, "--spec-ref", document, *words)
        for told in (drafted, quoted):
            assert {name: told[name] for name in ("ids", "text", "logprobs", "usage", "finish_reason", "stop")} == {
                name: plain[name] for name in ("ids", "text", "logprobs", "usage", "finish_reason", "stop")
            }
            # what is drawn at random from an untrained model repeats nothing that could be drafted
            assert told["speculation"]["drafted"] > 0 or words
        assert plain["speculation"] is None


def test_object_has_every_field(invoke, tiny_path: Path, cheap_drafts: Path) -> None:
    document = cheap_drafts / "document.txt"
    document.write_text("hello hello hello", "utf-8")
    told = ask(invoke, tiny_path, "--spec-ref", document)["speculation"]
    assert set(told) == {field.name for field in fields(SpeculationStats)}
    assert [source["name"] for source in told["sources"]] == ["conversation", "reference 1", "recycling"]
    assert set(told["sources"][0]) == set(SourceReport._fields)
    assert told["gate"] in ("on", "off", "probing")
    assert told["verify_steps"] > 0


def test_chat_shows_the_lines_and_takes_references(invoke, tiny_path: Path, cheap_drafts: Path) -> None:
    document = cheap_drafts / "document.txt"
    document.write_text("hello hello hello", "utf-8")
    lines = "hello hello\n/stats\nhello hello\n"
    result = invoke("chat", tiny_path, "-n", 60, "--spec-ref", document, input=lines)
    assert result.exit_code == 0, result.stderr
    switched, first, *spec = result.stderr.splitlines()
    assert (switched, first.split(" ")[1:3]) == ("statistics on", ["prompt", "tokens"])
    assert STEPS.fullmatch(spec[0])
    assert all(SOURCES.fullmatch(line) for line in spec[1:])  # none where nothing was drafted
    without = invoke("chat", tiny_path, "-n", 60, "--no-spec", input=lines)
    assert without.stdout == result.stdout
    assert len(without.stderr.splitlines()) == 2


@pytest.mark.parametrize("verb", ["run", "chat"])
@pytest.mark.parametrize(
    ("content", "words", "named"),
    [
        (None, (), "No such file"),
        (b"caf\xe9", (), "UTF-8"),
        (b"", (), "empty"),
        (b"hello", ("--no-spec",), "--no-spec"),
        (None, ("--no-spec",), "--no-spec"),
    ],
)
def test_references_that_cannot_be(
    invoke, tiny_path: Path, tmp_path: Path, verb: str, content: bytes | None, words: tuple[str, ...], named: str
) -> None:
    document = tmp_path / "document.txt"
    if content is not None:
        document.write_bytes(content)
    result = invoke(verb, tiny_path, "--spec-ref", document, *words, input="hello")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: --spec-ref: ")
    assert result.stderr.count("\n") == 1
    assert str(document) in result.stderr
    assert named in result.stderr


def test_a_folder_is_no_reference(invoke, tiny_path: Path, tmp_path: Path) -> None:
    result = invoke("run", tiny_path, "-p", "hello", "--spec-ref", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "options"),
    [("run", ("--no-spec", "--spec-ref")), ("chat", ("--no-spec", "--spec-ref")), ("bench", ("--spec-cost",))],
)
def test_help_mentions_the_options(invoke, verb: str, options: tuple[str, ...]) -> None:
    assert verb in main.VERBS
    shown = invoke(verb, "--help", env={"COLUMNS": "200"}).stdout
    assert all(option in shown for option in options)
