"""A conversation with a file is the same conversation, and goes on after a restart as if there had been none."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fucina.decoding.params import SamplingParams
from fucina.engine.conversation import Conversation
from fucina.engine.model import Model
from fucina.errors import ConfigError, ConversationFileError
from fucina.storage.kv.archive.conversation_file import ConversationFileWarning
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.prefix import PrefixCache
from fucina.testing.byte_tokenizer import ASSISTANT, EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel


def answer_for(prefix: Sequence[int]) -> int | None:
    """Answers with a word that depends on all that was said, so that stale context shows."""
    last = max(i for i, token in enumerate(prefix) if token == ASSISTANT)
    word = [97 + (sum(prefix[: last + 1]) * (i + 3)) % 26 for i in range(5)]
    said = len(prefix) - 1 - last
    return [*word, EOS][said] if said <= 5 else None


def new_model(kv_blocks: int | None = None, identity: bytes = b"a model") -> Model:
    scripted = ScriptedModel(script=answer_for, kv_blocks=kv_blocks)
    return Model(scripted, ByteTokenizer(), prefixes=PrefixCache(scripted.kv_pool, identity))


def restarted(talk: Conversation, path: Path, kv_blocks: int | None = None, salt: str = "") -> Conversation:
    talk.close()
    return new_model(kv_blocks).conversation(file=path, cache_salt=salt)


@settings(max_examples=40, stateful_step_count=12)
class Restarts(RuleBasedStateMachine):
    """A conversation that is restarted now and then beside one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "talk"
        self.twin = new_model().conversation("s")
        self.talk = new_model().conversation("s", file=self.path)
        self.is_straight = True  # nothing was taken back, so even what is cached must be the same

    @rule(text=st.text(alphabet="abcü", max_size=60), is_drawn=st.booleans())
    def turn(self, text: str, is_drawn: bool) -> None:
        params = SamplingParams(temperature=0.5 if is_drawn else 0.0, seed=len(text))
        if len(str(self.twin.messages)) > 400:
            return
        ours, theirs = self.talk.send(text, params), self.twin.send(text, params)
        assert (ours.ids, ours.text, ours.prompt_ids) == (theirs.ids, theirs.text, theirs.prompt_ids)
        if self.is_straight:
            assert ours.usage == theirs.usage

    @rule(n_events=st.integers(0, 4))
    def interrupted_turn(self, n_events: int) -> None:
        if len(str(self.twin.messages)) > 400:
            return
        for talk in (self.talk, self.twin):
            events = talk.stream("stop")
            for _ in range(n_events):
                next(events)
            events.close()  # type: ignore[attr-defined]

    @rule(n_turns=st.integers(0, 2))
    def rewind(self, n_turns: int) -> None:
        if sum(message["role"] == "user" for message in self.twin.messages) >= n_turns:
            self.is_straight &= not n_turns
            for talk in (self.talk, self.twin):
                talk.rewind(n_turns)

    @rule()
    def reset(self) -> None:
        self.is_straight = False
        for talk in (self.talk, self.twin):
            talk.reset()

    @rule()
    def restart(self) -> None:
        self.talk = restarted(self.talk, self.path)
        if self.is_straight:
            assert self.talk.cached_tokens == self.twin.cached_tokens

    @invariant()
    def the_same_was_said(self) -> None:
        assert self.talk.messages == self.twin.messages

    def teardown(self) -> None:
        self.talk.close()
        self.folder.cleanup()


TestRestarts = Restarts.TestCase


def test_the_first_turn_after_a_restart_computes_only_its_own_tokens(tmp_path: Path) -> None:
    talk = new_model().conversation("s" * 100, file=tmp_path / "talk")
    last = [talk.send(text) for text in ("one", "two", "three")][-1]
    talk = restarted(talk, tmp_path / "talk", salt="another")
    again = talk.send("four")
    assert again.usage.cached_tokens == last.usage.prompt_tokens + last.usage.completion_tokens - 1
    assert again.usage.cache_loss is None
    talk.close()


def test_what_fits_is_restored(tmp_path: Path) -> None:
    talk = new_model().conversation("s" * 200, file=tmp_path / "talk")
    talk.send("one")
    known, messages = talk.cached_tokens, talk.messages
    talk = restarted(talk, tmp_path / "talk", kv_blocks=2)
    assert (talk.cached_tokens, talk.messages) == (128, messages)
    talk = restarted(talk, tmp_path / "talk")
    assert talk.cached_tokens == known  # the file has lost nothing by it
    talk.close()


def test_a_salt_keeps_what_is_restored_apart(tmp_path: Path) -> None:
    talk = new_model().conversation("s" * 100, file=tmp_path / "talk")
    talk.send("one")
    talk.close()
    model = new_model()
    with model.conversation(file=tmp_path / "talk", cache_salt="a") as talk:
        assert talk.cached_tokens > 100
        assert model.chat(talk.messages[:2]).usage.cached_tokens == 0


def test_the_system_message_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    talk = new_model().conversation("first", file=path)
    talk.close()
    talk = new_model().conversation("second", file=path)  # nothing was said yet
    talk.send("one")
    talk.close()
    for system in (None, "second"):
        with new_model().conversation(system, file=path) as talk:
            assert talk.messages[0]["content"] == "second"
            assert len(talk.messages) == 3
    with pytest.raises(ConfigError, match=r"^system"):
        new_model().conversation("first", file=path)
    with new_model().conversation(file=path) as talk:  # it was let go
        talk.reset()
        assert talk.messages == [{"role": "system", "content": "second"}]


def test_another_model_and_a_second_conversation_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    with new_model().conversation(file=path), pytest.raises(ConversationFileError, match="in use"):
        new_model().conversation(file=path)
    with pytest.raises(ConversationFileError, match="another model"):
        new_model(identity=b"another").conversation(file=path)


def test_a_reset_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    with new_model().conversation(file=tmp_path / "talk") as talk:
        talk.send("a secret")
        assert b"a secret" in (tmp_path / "talk").read_bytes()
        talk.reset()
        assert b"a secret" not in (tmp_path / "talk").read_bytes()


def test_closing_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    talk = new_model().conversation(file=tmp_path / "talk")
    events = talk.stream("one")
    heard = next(events).text
    talk.close()
    assert [event.text for event in events] == [""]
    assert talk.messages[1]["content"] == heard
    assert restarted(talk, tmp_path / "talk").messages == talk.messages


def test_a_model_closed_before_its_conversation(tmp_path: Path) -> None:
    model = new_model()
    talk = model.conversation(file=tmp_path / "talk")
    talk.send("one")
    events = talk.stream("two")
    heard = next(events).text
    model.close()
    list(events)
    assert talk.messages[-1]["content"] == heard
    again = restarted(talk, tmp_path / "talk")
    assert again.messages == talk.messages
    again.close()


def test_a_full_disk_is_told_once_and_the_talk_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talk"
    talk = new_model().conversation(file=path)
    talk.send("one")
    kept, size = talk.messages, path.stat().st_size
    whole = Files.write_some

    def full(self: Files, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        if offset + sum(map(len, parts)) > size + 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(self, fd, parts, offset)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "write_some", full)
        with pytest.warns(ConversationFileWarning, match="No space left") as told:
            second = talk.send("two")
        assert len(told) == 1
    assert path.stat().st_size == size
    talk.send("three")
    talk.rewind()
    assert talk.messages[-1]["content"] == second.text
    again = restarted(talk, path)
    assert again.messages == kept
    assert again.send("two").ids == second.ids
    again.close()
