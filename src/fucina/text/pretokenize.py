"""How byte-level BPE cuts text into words before it merges, by the names that GGUF files use.

Each rule cuts every part that the rules before it left, into its matches and what lies between them. The regular
expressions are those of the models' own tokenizers; which name means which is llama.cpp's table.
"""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """Rules in order; `whole_words`: a word that is a piece is taken without merging; `add_bos`: the default."""

    rules: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_GPT2_RULES = Pretokenizer((_GPT2,))
_DIGITS_RULES = Pretokenizer((r"\p{N}", _GPT2))
_LLAMA3_RULES = Pretokenizer((_LLAMA3,), whole_words=True, add_bos=True)
_LLAMA3_MERGED = Pretokenizer((_LLAMA3,))
_QWEN2_RULES = Pretokenizer((_QWEN2,))
_DEFAULT_RULES = Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

#: By `tokenizer.ggml.pre`.
PRETOKENIZERS: dict[str, Pretokenizer] = {
    "default": _DEFAULT_RULES,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "exaone4"), _GPT2_RULES),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_RULES),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"), _LLAMA3_RULES),
    **dict.fromkeys(("smaug-bpe", "dbrx", "chatglm-bpe", "glm4"), _LLAMA3_MERGED),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), _QWEN2_RULES),
}
