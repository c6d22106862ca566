"""What sound GGUF files stay far below. The reader refuses more, so that no file can cost much time or memory.

The largest models in use come to about half of HEADER_BYTES, two thirds of STRINGS and half of TENSORS.
"""

from __future__ import annotations

#: Bytes of everything before the tensor data: metadata and tensor directory.
HEADER_BYTES = 24 * 2**20
#: Metadata keys.
KEYS = 2**9
#: Bytes of one metadata key (the format's own limit).
KEY_BYTES = 2**16 - 1
#: Bytes of all keys, tensor names and strings outside arrays together (a chat template has some 20 KiB).
TEXT_BYTES = 2 * 2**20
#: Strings in all arrays together.
STRINGS = 2**20
#: Strings in all arrays together that begin or end in NUL, or are longer than 64 KiB; only these are read one by one.
ODD_STRINGS = 2**10
#: Tensors of one file.
TENSORS = 2**12
#: Bytes of one tensor name (the format says 64).
NAME_BYTES = 256
#: Dimensions of one tensor.
DIMENSIONS = 4
#: Smallest and largest alignment of tensor data in bytes; powers of two between them.
SMALLEST_ALIGNMENT, LARGEST_ALIGNMENT, DEFAULT_ALIGNMENT = 8, 2**16, 32
#: No size or offset reaches this: sums of two of them still fit 64 bits signed.
OFFSET_BYTES = 2**62
