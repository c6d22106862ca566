"""What a file says about its tokens: pieces, types, special ids and flags.

Source: the `tokenizer.ggml.*` keys of the GGUF specification; the defaults of absent flags are llama.cpp's, except
that an absent special id means that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader, MissingKey, UnsupportedTokenizer
from fucina.storage.gguf import StringArray
from fucina.text.pieces import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Pieces
from fucina.text.pretokenize import PRETOKENIZERS

_PREFIX = "tokenizer.ggml."

#: Pieces that end an answer wherever they occur; nobody would write one by accident.
_END_MARKERS = frozenset(
    {
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"),
        *("<|end_of_text|>", "<end_of_turn>", "<end_of_utterance>", "<turn|>", "<｜end▁of▁sentence｜>"),
    }
)
#: These may be ordinary text too (`</s>` is struck-out HTML in Gemma's vocabulary): only as control tokens they end.
_END_NAMES = frozenset({"</s>", "<eos>", "<EOT>", "[EOT]", "[EOS]"})
#: What looks like a marker and never like text or HTML.
_MARKER_SHAPE = re.compile(r"<\|.*\|>|<｜.*｜>|<\|[^\s<>]+>|<[^\s<>]+\|>|</?(?:start|end)_of_\w+>", re.DOTALL)
_BRACKETED = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]")
_LONGEST_MARKER_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokens of one model. All ids are below `len(pieces)`; None where the file names no such token.

    `types`: (vocab,) uint8 with the numbers of `fucina.text.pieces`; `scores`: (vocab,) float32, empty for byte-level
    BPE. `marker_ids`: the tokens that plain text never becomes, since only a template or a caller who asks for it may
    write them: control and unknown tokens, and user-defined ones that are markers by their shape or because the chat
    template writes them. `eog_ids`: the tokens that end an answer.
    """

    model: str
    pre: str
    pieces: Pieces
    types: NDArray[np.uint8]
    scores: NDArray[np.float32]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    unknown_id: int | None
    padding_id: int | None
    eog_ids: frozenset[int]
    marker_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, path: str | PathLike[str] = "metadata") -> Vocabulary:
        """Read and check the vocabulary in `metadata`; `path` is only named in errors.

        Raises MissingKey, BadHeader and UnsupportedTokenizer.
        """
        keys = _Keys(metadata, path)
        model = keys.text("model")
        if model not in ("gpt2", "llama"):
            raise UnsupportedTokenizer(
                f"{path}: the tokenizer model '{model}' is unknown; gpt2 (byte-level BPE) and llama (SentencePiece) run"
            )
        pre = keys.text("pre", "default")
        pieces = Pieces.of(keys.strings("tokens"))
        if len(pieces) == 0:
            raise BadHeader(path, f"'{_PREFIX}tokens' is empty")
        types = keys.types(len(pieces))
        named = {name: keys.token_id(f"{name}_token_id", len(pieces)) for name in _NAMED}
        ends = _end_ids(pieces, types, named)
        for token_id in {*ends, *(i for i in named.values() if i is not None)}:
            # files exist that type such a token as text; a plain word named by mistake stays a word
            if types[token_id] == USER_DEFINED or _MARKER_SHAPE.fullmatch(pieces.text(token_id)):
                types[token_id] = CONTROL
        if named["unknown"] is None and (unknown := np.flatnonzero(types == UNKNOWN)).size:
            named["unknown"] = int(unknown[0])
        adds_bos, is_spm = model == "gpt2" and pre in PRETOKENIZERS and PRETOKENIZERS[pre].add_bos, model == "llama"
        types.flags.writeable = False
        return cls(
            model=model,
            pre=pre,
            pieces=pieces,
            types=types,
            scores=keys.scores(len(pieces)) if is_spm else np.empty(0, np.float32),
            bos_id=named["bos"],
            eos_id=named["eos"],
            eot_id=named["eot"],
            unknown_id=named["unknown"],
            padding_id=named["padding"],
            eog_ids=ends,
            marker_ids=_marker_ids(pieces, types, keys.text("tokenizer.chat_template", "", prefix="")),
            add_bos=keys.flag("add_bos_token", is_spm or adds_bos) and named["bos"] is not None,
            add_eos=keys.flag("add_eos_token", False) and named["eos"] is not None,
            add_space_prefix=keys.flag("add_space_prefix", is_spm) and is_spm,
        )


_NAMED = ("bos", "eos", "eot", "eom", "unknown", "padding")


def _end_ids(pieces: Pieces, types: NDArray[np.uint8], named: Mapping[str, int | None]) -> frozenset[int]:
    """The ids after which an answer is over: those named in the metadata and those known by name."""
    ends = {token_id for name in ("eos", "eot", "eom") if (token_id := named[name]) is not None}
    found = {pieces.text(i): i for i in pieces.starting_with(b"<[", longest=_LONGEST_MARKER_BYTES)}
    ends |= {found[name] for name in _END_MARKERS & found.keys()}
    ends |= {found[name] for name in _END_NAMES & found.keys() if types[found[name]] == CONTROL}
    if {"<|return|>", "<|call|>", "<|end|>"} <= found.keys():
        ends.discard(found["<|end|>"])  # there it ends a message within an answer
    return frozenset(ends)


def _marker_ids(pieces: Pieces, types: NDArray[np.uint8], template: str) -> frozenset[int]:
    always = np.flatnonzero((types == CONTROL) | (types == UNKNOWN)).tolist()
    user_defined: list[int] = np.flatnonzero(types == USER_DEFINED).tolist()
    return frozenset(always) | {i for i in user_defined if _is_marker(pieces.text(i), template)}


def _is_marker(piece: str, template: str) -> bool:
    return bool(_MARKER_SHAPE.fullmatch(piece) or (_BRACKETED.fullmatch(piece) and piece in template))


class _Keys:
    """Typed look-ups under `tokenizer.ggml.`."""

    def __init__(self, metadata: Mapping[str, object], path: str | PathLike[str]) -> None:
        self._metadata, self._path = metadata, path

    def text(self, name: str, default: str | None = None, *, prefix: str = _PREFIX) -> str:
        value = self._metadata.get(prefix + name, default)
        if value is None:
            raise MissingKey(self._path, f"'{prefix}{name}' is absent, so there is no tokenizer")
        if not isinstance(value, str):
            raise BadHeader(self._path, f"'{prefix}{name}' is not a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(_PREFIX + name, default)
        if not isinstance(value, bool):
            raise BadHeader(self._path, f"'{_PREFIX}{name}' is not a boolean")
        return value

    def token_id(self, name: str, n_tokens: int) -> int | None:
        value = self._metadata.get(_PREFIX + name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < n_tokens:
            raise BadHeader(self._path, f"'{_PREFIX}{name}' is {value!r}, but the vocabulary has {n_tokens} tokens")
        return value

    def strings(self, name: str) -> StringArray | list[str]:
        value = self._metadata.get(_PREFIX + name)
        if value is None:
            raise MissingKey(self._path, f"'{_PREFIX}{name}' is absent, so there is no tokenizer")
        if isinstance(value, StringArray):
            return value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadHeader(self._path, f"'{_PREFIX}{name}' is not an array of strings")
        return value

    def types(self, n_tokens: int) -> NDArray[np.uint8]:
        """A fresh copy; all normal where the file says nothing."""
        value = self._metadata.get(_PREFIX + "token_type")
        if value is None:
            return np.full(n_tokens, NORMAL, dtype=np.uint8)
        array = np.asarray(value)
        if array.dtype.kind not in "iu" or array.shape != (n_tokens,):
            raise BadHeader(self._path, f"'{_PREFIX}token_type' is not one integer for each of {n_tokens} tokens")
        if array.min() < 0 or array.max() > 6:
            raise BadHeader(self._path, f"'{_PREFIX}token_type' has a type outside 0 to 6")
        return array.astype(np.uint8)

    def scores(self, n_tokens: int) -> NDArray[np.float32]:
        value = self._metadata.get(_PREFIX + "scores")
        if value is None:
            raise MissingKey(self._path, f"'{_PREFIX}scores' is absent; a SentencePiece vocabulary needs them")
        array = np.asarray(value)
        if array.dtype.kind not in "fiu" or array.shape != (n_tokens,):
            raise BadHeader(self._path, f"'{_PREFIX}scores' is not one number for each of {n_tokens} tokens")
        scores = np.ascontiguousarray(array, dtype=np.float32)
        if np.isnan(scores).any():
            raise BadHeader(self._path, f"'{_PREFIX}scores' has a score that is not a number")
        return scores


def merges_of(metadata: Mapping[str, object], *, path: str | PathLike[str] = "metadata") -> list[str]:
    """The merges of a byte-level BPE tokenizer, best first, each "left right". Raises MissingKey, BadHeader."""
    merges = _Keys(metadata, path).strings("merges")
    return merges.to_list() if isinstance(merges, StringArray) else merges
