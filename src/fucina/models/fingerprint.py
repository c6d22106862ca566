"""A name for all that keys and values depend on besides tokens: the model's file, and who computes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fucina.storage.gguf import GgufFile, MetadataValue, StringArray

#: Counts up when a release computes other bits from the same file and tokens.
_ARITHMETIC = 1
#: Bytes that are looked at in the beginning, in the middle and at the end of every tensor.
_SAMPLE_BYTES = 1024


def model_fingerprint(gguf: GgufFile, backend: str, *, expert_top_p: float | None = None) -> bytes:
    """Name a model as `backend` computes it ('native/avx2': all tiers of one backend give the same bits), 32 bytes.

    `expert_top_p`: it leaves out experts, as many as that says; None: it does not.

    It covers all metadata, the tokenizer's included, names, formats and shapes of all tensors, and a sample of their
    bytes: reading them all would take as long as reading the file. Another model, a fine-tuned one, another
    quantization or tokenizer have other names; the same file elsewhere or copied has the same.
    """
    digest = blake2b(digest_size=32)
    lossy = () if expert_top_p is None else (expert_top_p,)
    digest.update(repr((_ARITHMETIC, backend.partition("/")[0], *lossy)).encode())
    for key, value in sorted(gguf.metadata.items()):
        digest.update(repr((key, type(value).__name__)).encode())
        for part in _value_parts(value):
            digest.update(part)
    for name, weight in sorted(gguf.weights.items()):
        digest.update(repr((name, weight.format.name, weight.shape)).encode())
        for sample in _samples(weight.data):
            digest.update(sample.data)
    return digest.digest()


def _value_parts(value: MetadataValue) -> Iterator[bytes | memoryview]:
    if isinstance(value, StringArray):
        yield value.data.data
    elif isinstance(value, np.ndarray):
        yield str((value.dtype, value.shape)).encode()
        yield np.ascontiguousarray(value).data
    else:
        yield repr(value).encode()


def _samples(data: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    middle = max(0, len(data) // 2 - _SAMPLE_BYTES // 2)
    yield data[:_SAMPLE_BYTES]
    yield data[middle : middle + _SAMPLE_BYTES]
    yield data[-_SAMPLE_BYTES:]
