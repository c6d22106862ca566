"""Byte-level BPE: text to ids through the `tokenizers` library, ids to bytes through GPT-2's letters."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from fucina.errors import UnsupportedTokenizer
from fucina.text.pieces import NORMAL, UNDEFINED, UNUSED
from fucina.text.pretokenize import PRETOKENIZERS
from fucina.text.vocabulary import Vocabulary


def _byte_letters() -> list[str]:
    """The letter that stands for each byte: printable Latin-1 is itself, the others follow from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTE_LETTERS = _byte_letters()
_BYTE_OF = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}
#: The same as a translation into Latin-1; characters that stand for no byte become one that is not in it.
_CHARACTER_OF = dict.fromkeys(range(512), 65534) | {ord(letter): byte for letter, byte in _BYTE_OF.items()}


class ByteLevelBpe:
    """Ids of plain text; no marker and no user-defined piece is found here.

    A byte whose letter is no piece of the vocabulary keeps its neighbors apart while they merge, and then yields no
    id, as in llama.cpp: such a text does not survive the way through ids. SmolLM2's vocabulary lacks 21 bytes
    (U+0004, U+0006, U+0013, U+0014, U+0016, U+001D; the others occur in no assigned character).
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str]) -> None:
        """Build it; `merges` are "left right", best first. Raises UnsupportedTokenizer."""
        if vocabulary.pre not in PRETOKENIZERS:
            raise UnsupportedTokenizer(
                f"the pre-tokenizer '{vocabulary.pre}' is unknown; known are {', '.join(sorted(PRETOKENIZERS))}"
            )
        rules = PRETOKENIZERS[vocabulary.pre]
        ids = _text_ids(vocabulary)
        self._n_pieces = len(vocabulary.pieces)
        for byte, letter in enumerate(BYTE_LETTERS):
            ids.setdefault(letter, self._n_pieces + byte)
        self._tokenizer = Tokenizer(_model(ids, merges, rules.whole_words))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules.rules),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        self._may_drop = any(token_id >= self._n_pieces for token_id in map(ids.__getitem__, BYTE_LETTERS))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which holds no lone surrogate."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token_id for token_id in ids if token_id < self._n_pieces] if self._may_drop else ids


def bytes_of_piece(piece: str) -> bytes:
    """The bytes that a normal piece stands for; a piece with a letter that stands for no byte is taken as it reads."""
    try:
        return bytes(map(_BYTE_OF.__getitem__, piece))
    except KeyError:
        return piece.encode()


def bytes_of_pieces(pieces: Sequence[bytes]) -> list[bytes]:
    """What `bytes_of_piece` gives for each of many pieces, most of them in one go."""
    apart = "\uffff"  # in no vocabulary, and left alone by the translation
    texts = apart.encode().join(pieces).decode().translate(_CHARACTER_OF).split(apart)
    if len(texts) != len(pieces):
        return [bytes_of_piece(piece.decode()) for piece in pieces]
    found = []
    for piece, text in zip(pieces, texts, strict=True):
        try:
            found.append(text.encode("latin-1"))
        except UnicodeEncodeError:
            found.append(bytes_of_piece(piece.decode()))
    return found


def _text_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """The pieces that text may become. Of equal pieces the last counts."""
    types, pieces = vocabulary.types, vocabulary.pieces.to_list()
    ids = dict(zip(pieces, range(len(pieces)), strict=True))
    for token_id in ((types != NORMAL) & (types != UNUSED) & (types != UNDEFINED)).nonzero()[0].tolist():
        if ids.get(pieces[token_id]) == token_id:
            del ids[pieces[token_id]]
    return ids


def _model(ids: dict[str, int], merges: Sequence[str], whole_words: bool) -> BPE:
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not space:
            raise UnsupportedTokenizer(f"the merge {merge!r} is not two pieces with a space between")
        pairs.append((left, right))
    try:
        return BPE(ids, pairs, ignore_merges=whole_words)
    except Exception as error:  # the library raises bare Exception for a merge of pieces that are not there
        raise UnsupportedTokenizer(f"the merges do not fit the vocabulary: {error}") from error
