"""Metadata values: numbers, booleans, strings, and arrays of them.

Source: the value types of the GGUF specification. Nested arrays exist there, but no model uses them; they are refused.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader
from fucina.storage.gguf import limits
from fucina.storage.gguf.cursor import Cursor, shown
from fucina.storage.gguf.strings import StringArray, StringReader

#: A number, a boolean, a string; an array of numbers or booleans (1-d NumPy, read-only); an array of strings.
MetadataValue: TypeAlias = int | float | bool | str | NDArray[np.generic] | StringArray

#: Numbers by GGUF value type: their layout in the file.
NUMBERS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9

TYPE_NAMES: dict[int, str] = {
    0: "uint8",
    1: "int8",
    2: "uint16",
    3: "int16",
    4: "uint32",
    5: "int32",
    6: "float32",
    7: "bool",
    8: "string",
    9: "array",
    10: "uint64",
    11: "int64",
    12: "float64",
}


class ValueReader:
    """Reads the values of one header, and keeps count of what they may cost together."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._strings = StringReader(cursor)

    def read(self, value_type: int, key: str) -> MetadataValue:
        """The value of `key` at the cursor. Raises BadHeader, TruncatedFile."""
        if value_type in NUMBERS:
            number: int | float = self._cursor.unpack(NUMBERS[value_type], f"the value of {shown(key)}")[0]
            return number
        if value_type == STRING:
            return self._cursor.text(f"the value of {shown(key)}", limits.TEXT_BYTES)
        if value_type == BOOL:
            return self._bool(key)
        if value_type == ARRAY:
            return self._array(key)
        raise BadHeader(self._cursor.path, f"key {shown(key)} has the unknown value type {value_type}")

    def _bool(self, key: str) -> bool:
        (value,) = self._cursor.unpack(NUMBERS[0], f"the value of {shown(key)}")
        if value not in (0, 1):
            raise BadHeader(self._cursor.path, f"key {shown(key)} is a bool of value {value}; only 0 and 1 exist")
        return bool(value)

    def _array(self, key: str) -> MetadataValue:
        cursor, what = self._cursor, f"the array {shown(key)}"
        element_type, n_elements = cursor.u32(what), cursor.u64(what)
        if element_type == STRING:
            return self._strings.read(n_elements, what)
        if element_type in NUMBERS:
            return self._numbers(np.dtype(NUMBERS[element_type].format), n_elements, what)
        if element_type == BOOL:
            values = self._numbers(np.dtype(np.uint8), n_elements, what)
            if np.any(values.view(np.uint8) > 1):
                raise BadHeader(cursor.path, f"{what} has a bool that is neither 0 nor 1")
            return values.view(np.bool_)
        if element_type == ARRAY:
            raise BadHeader(cursor.path, f"{what} is an array of arrays, which no model needs; they are not read")
        raise BadHeader(cursor.path, f"{what} has elements of the unknown type {element_type}")

    def _numbers(self, dtype: np.dtype[np.generic], n_elements: int, what: str) -> NDArray[np.generic]:
        """Copied in one go, because numbers in a header lie at any address."""
        cursor = self._cursor
        cursor.need(n_elements * dtype.itemsize, what)
        end = cursor.position + n_elements * dtype.itemsize
        values = cursor.data[cursor.position : end].copy().view(dtype)
        values.flags.writeable = False
        cursor.position = end
        return values
