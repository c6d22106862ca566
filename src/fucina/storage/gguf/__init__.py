"""GGUF files: a mapped, bounds-checked reader for one file or several parts."""

from fucina.storage.gguf.reader import GgufFile, open_gguf
from fucina.storage.gguf.strings import StringArray
from fucina.storage.gguf.values import MetadataValue

__all__ = ["GgufFile", "MetadataValue", "StringArray", "open_gguf"]
