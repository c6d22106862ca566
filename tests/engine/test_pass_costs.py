"""Prices of passes: measured once, kept in a file that is not trusted; and what a model without them refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fucina
from fucina.core.formats import Q8_0
from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.decoding.speculation.stats import SpeculationStats
from fucina.engine import pass_costs
from fucina.engine.assemble import _fingerprint
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.engine.model import Model
from fucina.engine.pass_costs import MEASURED_ROWS, PassCosts, measure_costs
from fucina.engine.speculation import MOST_SALTS, Speculation
from fucina.errors import ConfigError, KvPoolFull
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import ASSISTANT, EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel
from fucina.testing.tiny_gguf import tiny_model

CHEAP = {"rows_and_costs": [[1, 1.0], [17, 1.5]]}
QUOTE = "Sphinx of black quartz, judge my vow. Pack my box with five dozen liquor jugs. "


# -- the file --------------------------------------------------------------------------------------------------


def test_prices_are_measured_once_and_read_back(tmp_path: Path) -> None:
    file, model = tmp_path / "new" / "costs" / "prices.json", ScriptedModel()
    costs = PassCosts(model, file)
    table = costs.table()
    assert [rows for rows, _ in table.points] == list(MEASURED_ROWS)
    assert table.points[0][1] == 1.0
    n_forwards = model.n_forwards
    assert n_forwards > len(MEASURED_ROWS)
    assert costs.table() is table
    assert PassCosts(model, file).table().points == table.points
    assert model.n_forwards == n_forwards
    assert [path.name for path in file.parent.iterdir()] == ["prices.json"]
    assert model.kv_pool.n_free == model.kv_pool.capacity
    again = costs.measure()
    assert model.n_forwards > n_forwards
    assert PassCosts(model, file).table().points == again.points == costs.table().points


def test_without_a_file_prices_are_measured_in_every_process() -> None:
    model = ScriptedModel()
    PassCosts(model).table()
    n_forwards = model.n_forwards
    PassCosts(model).table()
    assert model.n_forwards > n_forwards


def test_small_passes_are_measured_as_far_as_they_go() -> None:
    assert [rows for rows, _ in measure_costs(ScriptedModel(max_rows=5)).points] == [1, 2, 3, 4, 5]
    assert [rows for rows, _ in measure_costs(ScriptedModel(max_rows=1)).points] == [1]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(CHEAP))

    def full(_: object, opened: Any) -> None:
        opened.write('{"rows')
        raise OSError("no space left")

    monkeypatch.setattr(pass_costs.json, "dump", full)
    PassCosts(ScriptedModel(), file).measure()
    assert json.loads(file.read_text()) == CHEAP
    assert list(tmp_path.iterdir()) == [file]


def priced(points: str) -> bytes:
    return f'{{"rows_and_costs": {points}}}'.encode()


HOSTILE = {
    "empty": b"",
    "no JSON": b"not json",
    "no text": b"\xff\xfe\x00\x80",
    "cut short": priced("[[1, 1.0]]")[:-1],
    "a list": b"[]",
    "a string": b'"rows_and_costs"',
    "null": b"null",
    "other keys": b'{"rows": [[1, 1.0]]}',
    "a number": priced("5"),
    "no points": priced("[]"),
    "not pairs": priced("[[1]]"),
    "triples": priced("[[1, 1.0, 2]]"),
    "words": priced('[[1, "x"]]'),
    "nothing": priced("[[1, null]]"),
    "negative": priced("[[1, 1.0], [2, -1.0]]"),
    "zero": priced("[[1, 0]]"),
    "NaN": priced("[[1, NaN]]"),
    "infinite": priced("[[1, 1.0], [2, Infinity]]"),
    "infinitely many rows": priced("[[1, 1.0], [Infinity, 2.0]]"),
    "no float": priced(f"[[1, 1.0], [2, 1{'0' * 400}]]"),
    "too far apart": priced("[[1, 1e-320], [2, 1e300]]"),
    "too many rows": priced(f"[[1, 1.0], [1{'0' * 400}, 2.0]]"),
    "unordered": priced("[[1, 1.0], [5, 2.0], [3, 1.5]]"),
    "twice": priced("[[1, 1.0], [1, 1.0]]"),
    "not from one row": priced("[[2, 1.0], [3, 1.5]]"),
    "deep": b"[" * 60_000,
    "deep inside": priced("[" * 30_000 + "]" * 30_000),
    "huge": priced("[[1, 1.0]" + "".join(f", [{n}, 1.0]" for n in range(2, 20_000)) + "]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_file_is_measured_anew(tmp_path: Path, name: str) -> None:
    file, model = tmp_path / "prices.json", ScriptedModel()
    file.write_bytes(HOSTILE[name])
    table = PassCosts(model, file).table()
    assert model.n_forwards > 0
    assert PassCosts(model, file).table().points == table.points  # it is whole again
    assert list(tmp_path.iterdir()) == [file]


def test_where_nothing_can_be_written_prices_are_measured_all_the_same(tmp_path: Path) -> None:
    folder, parent = tmp_path / "prices.json", tmp_path / "a file"
    (folder / "inside").mkdir(parents=True)
    parent.write_text("not a folder")
    for file in (folder, parent / "prices.json"):
        model = ScriptedModel()
        assert len(PassCosts(model, file).table().points) == len(MEASURED_ROWS)
        assert model.n_forwards > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "prices.json"]
    assert list(folder.iterdir()) == [folder / "inside"]


# -- whose prices they are -------------------------------------------------------------------------------------


def test_whatever_changes_the_time_of_a_pass_has_prices_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(pass_costs, "measure_costs", lambda _: CostTable([(1, 1.0)]))
    path = tiny_model(tmp_path / "model.gguf", "llama", n_layers=1)
    same_shapes = tiny_model(tmp_path / "tuned.gguf", "llama", n_layers=1, seed=9)
    deeper = tiny_model(tmp_path / "deeper.gguf", "llama", n_layers=2)
    packed = tiny_model(tmp_path / "packed.gguf", "llama", n_layers=1, format=Q8_0)
    seen: set[Path] = set()

    def is_new(model_path: Path, **options: Any) -> bool:
        before = len(seen)
        with fucina.load(model_path, **options) as model:
            assert model.drafts.measure_costs() == ((1, 1.0),)
        seen.update((tmp_path / "home" / "costs").iterdir())
        return len(seen) == before + 1

    assert is_new(path, threads=2)
    assert not is_new(path, threads=2)
    assert not is_new(same_shapes, threads=2)
    assert is_new(path, threads=1)
    assert is_new(path, threads=2, tier="scalar")
    assert is_new(path, threads=2, backend="reference")
    assert is_new(path, threads=2, kv_format="q8_0")
    assert is_new(path, threads=2, repack=False)
    assert is_new(deeper, threads=2)
    assert is_new(packed, threads=2)


def test_another_processor_has_another_name(tmp_path: Path) -> None:
    gguf = open_gguf(tiny_model(tmp_path / "model.gguf", "llama", n_layers=1))
    machine = ("a processor", 2, None, "native", None, True)
    others = [("another", *machine[1:]), (machine[0], 4, *machine[2:])]
    names = {_fingerprint(gguf, "f16", *each) for each in (machine, *others)}
    assert len(names) == 3
    assert _fingerprint(gguf, "f16", *machine) in names


# -- models with and without prices ----------------------------------------------------------------------------


def test_a_model_without_speculation_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path / "home"))
    path = tiny_model(tmp_path / "model.gguf", "llama", n_layers=1)
    prompts = ["ab ab ab ab ab ab", "Once upon a time", "z" * 80]
    each = [
        SamplingParams(max_tokens=40, ignore_eos=True, logprobs=2),
        SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.5, seed=3),
        SamplingParams(max_tokens=40, ignore_eos=True, repeat_penalty=1.1),
    ]
    with fucina.load(path, speculation=False) as model:
        plain = [model.generate(*pair) for pair in zip(prompts, each, strict=True)]
        assert not (tmp_path / "home").exists()
    with fucina.load(path) as model:
        drafted = [model.generate(*pair) for pair in zip(prompts, each, strict=True)]
    for one, other in zip(plain, drafted, strict=True):
        assert (one.ids, one.text, one.logprobs, one.usage) == (other.ids, other.text, other.logprobs, other.usage)
        assert one.speculation is None
        assert other.speculation is not None


def test_options_of_another_kind_are_refused_by_name() -> None:
    model = Model(ScriptedModel(), ByteTokenizer())
    with pytest.raises(ConfigError, match=r"^speculation: .*without it"):
        model.drafts.measure_costs()
    for call in (
        lambda: model.generate("x", references=["y"]),
        lambda: model.chat("x", references=["y"]),
        lambda: model.stream("x", references=["y"]),
        lambda: model.stream_chat("x", references=["y"]),
        lambda: model.conversation().add_reference("y"),
        lambda: model.conversation().clear_references(),
    ):
        with pytest.raises(ConfigError, match=r"^speculation: .*without it"):
            call()
    assert model.counters.requests == 0


class Quoting:
    """A model that answers with the quotation, and prices at which every draft pays."""

    def __init__(self, tmp_path: Path) -> None:
        answer = [*QUOTE.encode(), EOS]

        def script(prefix: Any) -> int | None:
            said = len(prefix) - 1 - max((i for i, token in enumerate(prefix) if token == ASSISTANT), default=0)
            return answer[said] if said < len(answer) else None

        self.lm = ScriptedModel(script=script)
        (tmp_path / "prices.json").write_text(json.dumps(CHEAP))
        self.costs = PassCosts(self.lm, tmp_path / "prices.json")
        self.model = Model(self.lm, ByteTokenizer(), speculation=Speculation(self.lm.vocab, self.costs))


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices that the clock does not change, so that the same drafts are tried however busy the machine is."""
    for heard in ("record_plain", "record_verify"):
        monkeypatch.setattr(StepCosts, heard, lambda *_: None)


@pytest.fixture
def quoting(tmp_path: Path, steady: None) -> Iterator[Quoting]:  # noqa: ARG001
    quoting = Quoting(tmp_path)
    with quoting.model:
        yield quoting


def accepted(stats: SpeculationStats | None) -> dict[str, int]:
    assert stats is not None
    return {report.name: report.accepted for report in stats.sources}


def test_drafts_come_from_references(quoting: Quoting) -> None:
    with quoting.model.conversation() as talk:
        talk.add_reference("Nothing of that kind.")
        talk.add_reference(list(QUOTE.encode()))
        first = talk.send("Quote it.")
        assert first.text == QUOTE
        by_source = accepted(first.speculation)
        assert list(by_source) == ["conversation", "reference 1", "reference 2", "recycling"]
        assert by_source["reference 2"] > len(QUOTE) // 2
        assert by_source["reference 1"] < 3
        talk.clear_references()
        second = talk.send("Quote it again.")
        assert second.text == QUOTE
        assert list(accepted(second.speculation)) == ["conversation", "recycling"]
        assert accepted(second.speculation)["conversation"] > len(QUOTE) // 2  # it has said that before
        for wrong in ("", [], [9999], [-1], "x" * ((1 << 22) + 1)):
            with pytest.raises(ConfigError, match=r"^reference: "):
                talk.add_reference(wrong)
        assert list(accepted(talk.send("And again.").speculation)) == ["conversation", "recycling"]


def test_a_single_answer_may_have_references(quoting: Quoting) -> None:
    for completion in (
        quoting.model.chat("Quote it.", references=[QUOTE]),
        quoting.model.generate([ASSISTANT], references=[list(QUOTE.encode())]),
    ):
        assert completion.text == QUOTE
        told = accepted(completion.speculation)
        # the second one continues what the first one ended with, so what it said is the longer match
        assert told["reference 1"] + told.get("history 1", 0) > len(QUOTE) // 2
    assert "reference 1" not in accepted(quoting.model.chat("Quote it.").speculation)


def test_without_room_to_measure_a_request_goes_without_drafts(quoting: Quoting) -> None:
    (quoting.costs._file or Path()).unlink()
    pool = quoting.lm.kv_pool
    hog = KvSequence(pool)
    hog.reserve(pool.capacity * 64)
    with pytest.raises(KvPoolFull):
        quoting.model.drafts.measure_costs()
    stream = quoting.model.stream_chat("Quote it.")
    talk = quoting.model.conversation()
    hog.close()
    *tokens, finish = stream
    assert isinstance(finish, FinishEvent)
    assert finish.speculation is None
    assert [event.token for event in tokens if isinstance(event, TokenEvent)] == [*QUOTE.encode(), EOS]
    answer = talk.send("Quote it.")
    assert answer.text == QUOTE
    assert answer.speculation is not None  # there is room now
    later = quoting.model.chat("Quote it.")
    assert (later.text, later.finish_reason) == (QUOTE, "stop")
    assert later.speculation is not None


def test_what_was_said_before_is_drafted_in_later_requests(quoting: Quoting) -> None:
    assert list(accepted(quoting.model.chat("Quote it.").speculation)) == ["conversation", "recycling"]
    again = accepted(quoting.model.chat("Once more, please.").speculation)
    assert again["history 1"] > len(QUOTE) // 2
    quoting.model.drafts.forget()
    assert list(accepted(quoting.model.chat("And again.").speculation)) == ["conversation", "recycling"]


def test_a_turn_is_remembered_once(quoting: Quoting) -> None:
    with quoting.model.conversation() as talk:
        talk.send("Quote it.")
        n_tokens = len(talk.send("Again.").prompt_ids) + len(QUOTE) + 1
    history = quoting.model.drafts._speculation._learned_of("").history  # type: ignore[union-attr]
    assert history is not None
    n_kept = sum(index.n_tokens for index in history.indexes())
    # what both turns have in common once, and a separator for each
    assert n_kept == n_tokens + 2


def test_a_model_that_shall_not_remember_does_not(tmp_path: Path) -> None:
    lm = Quoting(tmp_path).lm
    speculation = Speculation(lm.vocab, PassCosts(lm, tmp_path / "prices.json"), SpeculationOptions(remember=False))
    with Model(lm, ByteTokenizer(), speculation=speculation) as model:
        for _ in range(2):
            assert list(accepted(model.chat("Quote it.").speculation)) == ["conversation", "recycling"]


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("remember", [True, False])
def test_what_was_said_with_one_salt_drafts_nothing_with_another(tmp_path: Path, remember: bool) -> None:
    lm = Quoting(tmp_path).lm
    options = SpeculationOptions(remember=remember)
    speculation = Speculation(lm.vocab, PassCosts(lm, tmp_path / "prices.json"), options)
    with Model(lm, ByteTokenizer(), speculation=speculation) as model:

        def asked(salt: str) -> SpeculationStats | None:
            model.forget_prefixes()
            return model.chat("Quote it.", cache_salt=salt).speculation

        def talked(salt: str) -> SpeculationStats | None:
            model.forget_prefixes()
            with model.conversation(cache_salt=salt) as talk:
                return talk.send("Quote it.").speculation

        first = asked("one")
        assert first == asked("two") == talked("three") == asked("four")
        assert first not in (asked("one"), talked("one"), asked("three"))


def test_the_salts_used_last_are_known(quoting: Quoting) -> None:
    def asked(salt: int) -> SpeculationStats | None:
        quoting.model.forget_prefixes()
        return quoting.model.chat("Quote it.", cache_salt=str(salt)).speculation

    first = asked(0)
    for salt in range(1, MOST_SALTS):
        assert asked(salt) == first
    assert asked(0) != first
    assert asked(MOST_SALTS) == first
    assert asked(1) == first  # it had made room
    assert asked(0) != first
