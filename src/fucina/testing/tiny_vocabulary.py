"""Small vocabularies as GGUF metadata: a byte-level BPE one and a SentencePiece one, both able to spell any text."""

from __future__ import annotations

import numpy as np

from fucina.testing.gguf_writer import Value

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

#: Pairs that merge, in order; '_' stands for the space. Each side is one character or an earlier merge.
_MERGES = (
    *("_ t", "h e", "i n", "r e", "_ a", "o n", "e r", "_t he", "n d", "_ s", "a t", "o r", "_ w", "i s", "e n"),
    *("_ o", "_a nd", "_ c", "in g", "i t", "_ b", "_ f", "_ p", "_o f", "_t o", "_ in", "l l", "o u", "_ is"),
    *("_ m", "_ h", "a l", "_ d", "a r", "e s", "_ l", "_ n", "_s a", "_th e", "h at", "_y ou", "o o", "q u"),
    *("_w or", "_wor l", "_worl d", "_ he", "_he ll", "_hell o", "_ :", "_ -", "1 0", "2 0", ". .", "! !", "' s"),
)

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + "
    "('model' if message['role'] == 'assistant' else message['role']) + '\\n' + message['content'] + "
    "'<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)


def byte_level_vocabulary(pre: str) -> dict[str, Value]:
    """`tokenizer.*` of a byte-level BPE vocabulary: three control tokens, 256 bytes, and the merges."""
    space, merges = _byte_letters()[ord(" ")], _possible_merges()
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [(left + right).replace("_", space) for left, right in merges]
    tokens = controls + _byte_letters() + words
    types = [CONTROL] * len(controls) + [NORMAL] * (len(tokens) - len(controls))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype=np.int32),
        "tokenizer.ggml.merges": [f"{left} {right}".replace("_", space) for left, right in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": CHATML,
    }


def sentencepiece_vocabulary() -> dict[str, Value]:
    """`tokenizer.*` of a SentencePiece vocabulary with byte fallback, in Gemma's manner."""
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    letters = [chr(c) for c in range(33, 127)]
    words = [left + right for left, right in _possible_merges()]
    pieces = [word.replace("_", "▁") for word in words] + ["▁", *(c for c in letters if c != "_"), "_", "é", "日"]
    tokens = controls + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [CONTROL] * len(controls) + [BYTE] * 256 + [NORMAL] * len(pieces)
    types[controls.index("<unk>")] = UNKNOWN
    scores = [-1000.0] * (len(controls) + 256) + [-float(rank) for rank in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(types, dtype=np.int32),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eot_token_id": controls.index("<end_of_turn>"),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": GEMMA,
    }


def _possible_merges() -> list[tuple[str, str]]:
    """The merges whose sides exist and whose result is new."""
    known = {chr(c) for c in range(33, 127)}
    merges = []
    for left, right in (pair.split() for pair in _MERGES):
        if left in known and right in known and left + right not in known:
            merges.append((left, right))
            known.add(left + right)
    return merges


def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
