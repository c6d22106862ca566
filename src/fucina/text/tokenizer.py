"""Text to token ids and back, from a model file's metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from os import PathLike

from fucina.errors import ConfigError
from fucina.text.bpe import ByteLevelBpe, bytes_of_piece, bytes_of_pieces
from fucina.text.detokenizer import Detokenizer
from fucina.text.markers import Markers
from fucina.text.pieces import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED
from fucina.text.provenance import GuardedText
from fucina.text.spm import SPACE_MARK, SpmEncoder, byte_of_piece, open_spm
from fucina.text.vocabulary import Vocabulary, merges_of


class Tokenizer:
    """The tokenizer of one model. What it says never changes; any number of threads may use it.

    `vocab_size`: ids are 0 to vocab_size - 1. `bos_id`, `eos_id`: None where the model has none. `eog_ids`: the tokens
    that end an answer. `add_bos`: whether a raw prompt starts with `bos_id`. `adds_space`: whether encoding
    puts a space in front of a text. `whole_texts` is the detokenizers' memory.

    decode(encode(text)) == text, with two limits that lie in the vocabularies: SentencePiece writes a space as U+2581,
    so that character itself comes back as a space; and a byte that a byte-level vocabulary lacks is lost.
    """

    def __init__(self, vocabulary: Vocabulary, merges: list[str]) -> None:
        """Build it; `merges` matter to byte-level BPE only. Raises UnsupportedTokenizer."""
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary.pieces)
        self.bos_id, self.eos_id, self.eog_ids = vocabulary.bos_id, vocabulary.eos_id, vocabulary.eog_ids
        self.add_bos, self.adds_space = vocabulary.add_bos, vocabulary.add_space_prefix
        self.whole_texts: dict[int, str] = {}
        self._kinds = vocabulary.types.tobytes()
        is_spm = vocabulary.model == "llama"
        self._spm: SpmEncoder | None = open_spm(vocabulary) if is_spm else None
        self._bpe: ByteLevelBpe | None = None if is_spm else ByteLevelBpe(vocabulary, merges)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, path: str | PathLike[str] = "metadata") -> Tokenizer:
        """Build the tokenizer that `metadata` describes; `path` is only named in errors.

        Raises MissingKey, BadHeader and UnsupportedTokenizer.
        """
        vocabulary = Vocabulary.from_metadata(metadata, path=path)
        return cls(vocabulary, merges_of(metadata, path=path) if vocabulary.model == "gpt2" else [])

    def encode(self, text: str, special: bool = False, *, add_bos: bool = False, at_start: bool = True) -> list[int]:
        """The ids of `text`; none for an empty text. Raises ConfigError for a lone surrogate.

        `special`: markers in the text become their tokens; else they are text like any other. `add_bos`: put `bos_id`
        in front, unless the text begins with it already. `at_start`: the text is the beginning of one, so that the
        space some vocabularies put in front belongs there; False for text that continues another.
        """
        _check_unicode(text)
        ids = list(self._encode_parts(self.markers.split(text) if special else iter((text,)), at_start))
        return self._with_bos(ids) if add_bos else ids

    def prompt_ids(self, text: str) -> list[int]:
        """The ids of a raw prompt: its markers are tokens, and BOS stands in front where the file asks for it."""
        return self.encode(text, special=True, add_bos=self.add_bos)

    def whole_text_ids(self, text: str) -> list[int]:
        """The ids of a text that nothing follows: those of a prompt, and EOS behind them where the file asks for it."""
        ids = self.prompt_ids(text)
        eos_id = self.eos_id if self.vocabulary.add_eos else None
        return ids if eos_id is None or ids[-1:] == [eos_id] else [*ids, eos_id]

    def encode_guarded(self, prompt: GuardedText) -> list[int]:
        """The ids of a rendered chat: markers of the template are tokens, those in message content stay text.

        BOS stands in front where the file asks for it and the template did not write it.
        """
        _check_unicode(prompt.guarded)
        parts = self.markers.split(prompt.guarded)
        ids = list(self._encode_parts(prompt.restore(part) if isinstance(part, str) else part for part in parts))
        return self._with_bos(ids) if self.add_bos else ids

    def decode(self, ids: Iterable[int], special: bool = False, *, at_start: bool = True) -> str:
        """The text of `ids`; U+FFFD stands for bytes that are not UTF-8. Raises ConfigError for an id that is none.

        `special`: show control tokens by name too. `at_start`: the ids begin a text, so that the space some
        vocabularies put in front of it is taken away again; False for ids that continue one.
        """
        detokenizer = Detokenizer(self, special=special, at_start=at_start)
        return "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.flush()

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; for a control token those of its name. Raises ConfigError."""
        self._check_id(token_id)
        piece, kind = self.vocabulary.pieces[token_id], self._kinds[token_id]
        if kind in (CONTROL, UNKNOWN):
            return piece
        if self._bpe is not None:
            return piece if kind == USER_DEFINED else bytes_of_piece(piece.decode())
        return bytes((byte_of_piece(piece),)) if kind == BYTE else piece.replace(SPACE_MARK.encode(), b" ")

    def text_bytes(self) -> list[bytes]:
        """The bytes of every token in a text; none where it stands for no text: markers and unused tokens."""
        texts = self.vocabulary.pieces.to_bytes()
        if self._bpe is None:
            mark = SPACE_MARK.encode()
            texts = [text.replace(mark, b" ") if mark in text else text for text in texts]
            apart = self.vocabulary.types == BYTE
        else:
            texts = bytes_of_pieces(texts)
            apart = self.vocabulary.types == USER_DEFINED
        for token_id in apart.nonzero()[0].tolist():
            texts[token_id] = self.token_bytes(token_id)
        for token_id in {*self.vocabulary.marker_ids, *(self.vocabulary.types == UNUSED).nonzero()[0].tolist()}:
            texts[token_id] = b""
        return texts

    def is_control(self, token_id: int) -> bool:
        """Whether a token is a control or unknown token, which stands for no text. Raises ConfigError."""
        self._check_id(token_id)
        return self._kinds[token_id] in (CONTROL, UNKNOWN)

    @cached_property
    def markers(self) -> Markers:
        """The strings that only a template, or a caller who asks for it, turns into tokens."""
        return self._markers(self.vocabulary.marker_ids)

    @cached_property
    def user_defined_markers(self) -> frozenset[str]:
        """The markers that are user-defined, like those of thinking and tool calls; the others are control tokens."""
        pieces = self.vocabulary.pieces
        return frozenset(pieces.text(i) for i in self.vocabulary.marker_ids if not self.is_control(i))

    def _markers(self, ids: Iterable[int]) -> Markers:
        return Markers({self.vocabulary.pieces.text(token_id): token_id for token_id in sorted(ids)})

    @cached_property
    def _user_defined(self) -> Markers:
        """Pieces that byte-level BPE takes whole wherever they stand; the SentencePiece encoder does so by itself."""
        user_defined: list[int] = (self.vocabulary.types == USER_DEFINED).nonzero()[0].tolist()
        return self._markers(set(user_defined) - self.vocabulary.marker_ids)

    def _encode_parts(self, parts: Iterable[str | int], at_start: bool = True) -> Iterator[int]:
        """Encode text between ids; only text that nothing precedes gets the space some vocabularies put in front."""
        for part in parts:
            if isinstance(part, int):
                yield part
            elif self._spm is not None:
                prefix = " " if at_start and part and self.adds_space else ""
                yield from self._spm.encode((prefix + part).encode())
            elif self._bpe is not None:
                for piece in self._user_defined.split(part):
                    if isinstance(piece, int):
                        yield piece
                    else:
                        yield from self._bpe.encode(piece)
            at_start = False

    def _with_bos(self, ids: list[int]) -> list[int]:
        return ids if self.bos_id is None or ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def _check_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocab_size:
            raise ConfigError("token id", got=token_id, expected=f"0 to {self.vocab_size - 1}")


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}"
        raise ConfigError("text", got=found, expected="Unicode text") from error
