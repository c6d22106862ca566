from hypothesis import given
from hypothesis import strategies as st

from fucina.testing.byte_tokenizer import ASSISTANT, BOS, EOS, USER, ByteTokenizer

TOKENIZER = ByteTokenizer()


@given(st.text())
def test_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.lists(st.integers(0, 260), max_size=30))
def test_the_stream_joins_to_the_whole(ids: list[int]) -> None:
    stream = TOKENIZER.text_stream()
    assert "".join([stream.push(token) for token in ids]) + stream.flush() == TOKENIZER.decode(ids)


def test_markers_become_tokens_only_when_asked() -> None:
    assert TOKENIZER.encode("a<eos>") == list(b"a<eos>")
    assert TOKENIZER.encode("a<eos>", special=True) == [97, EOS]
    assert TOKENIZER.prompt_ids("hi") == [BOS, 104, 105]


def test_chat() -> None:
    assert TOKENIZER.chat_ids([{"role": "user", "content": "<eos>"}]) == [BOS, USER, *b"<eos>", EOS, ASSISTANT]


def test_tools_come_first() -> None:
    ids = TOKENIZER.chat_ids([{"role": "user", "content": "hi"}], tools=[{"name": "f"}], enable_thinking=False)
    assert ids == [BOS, *b'[{"name": "f"}]', USER, *b"hi", EOS, ASSISTANT]
