from __future__ import annotations

import gc
import os
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fucina.core.formats import F16, F32, Q4_0, Q8_0
from fucina.errors import BadTensor, Closed, MissingTensor, ModelFileError, NotGguf, UnknownModel
from fucina.storage.gguf import StringArray, open_gguf
from fucina.testing.gguf_writer import Typed, write_gguf
from fucina.testing.hostile_gguf import LIES
from fucina.testing.raw_gguf import Parts

WEIGHTS = np.arange(64, dtype=np.float32).reshape(2, 32)


def small_file(path: Path) -> Path:
    return write_gguf(path, {"a": 1}, {"x": (WEIGHTS, F32), "y": (WEIGHTS, Q8_0)})


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_comes_back(tmp_path: Path, version: int) -> None:
    numbers = {
        "uint8": (0, 2**8 - 1),
        "int8": (-(2**7), 2**7 - 1),
        "uint16": (0, 2**16 - 1),
        "int16": (-(2**15), 2**15 - 1),
        "uint32": (0, 2**32 - 1),
        "int32": (-(2**31), 2**31 - 1),
        "uint64": (0, 2**64 - 1),
        "int64": (-(2**63), 2**63 - 1),
        "float32": (-1.5, float("inf")),
        "float64": (1e300, 0.1),
    }
    written = {f"{name}.{i}": Typed(name, pair[i]) for name, pair in numbers.items() for i in (0, 1)}
    arrays = {f"{name}.array": np.array(pair, dtype=name) for name, pair in numbers.items()}
    others = {
        "yes": True,
        "no": False,
        "text": "Grüße, 世界\0!",
        "none": "",
        "flags": np.array([True, False, True]),
        "empty": np.array([], dtype=np.int16),
        "strings": ["", "a", "世"],
        "no strings": [],
    }
    with open_gguf(write_gguf(tmp_path / "m.gguf", {**written, **arrays, **others}, {}, version=version)) as model:
        read = model.metadata
        assert list(read) == [*written, *arrays, *others]
        for name, typed in written.items():
            assert read[name] == typed.value
            assert type(read[name]) is (float if name.startswith("float") else int)
        for name, array in {**arrays, "flags": others["flags"], "empty": others["empty"]}.items():
            value = read[name]
            assert isinstance(value, np.ndarray)
            assert value.dtype == array.dtype
            assert (value == array).all()
            assert not value.flags.writeable
        assert (read["yes"], read["no"], read["text"], read["none"]) == (True, False, others["text"], "")
        assert isinstance(read["strings"], StringArray)
        assert list(read["strings"]) == ["", "a", "世"]
        assert list(read["no strings"]) == []
        assert (model.version, model.alignment, len(model.weights)) == (version, 32, 0)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    with open_gguf(small_file(tmp_path / "m.gguf")) as model:
        x, y = model.weights["x"], model.weights["y"]
        assert (x.shape, x.d_in, x.d_out, x.format) == ((2, 32), 32, 2, F32)
        assert (x.data.view(np.float32).reshape(2, 32) == WEIGHTS).all()
        assert y.data.nbytes == 2 * 34
        assert not x.data.flags.writeable
        assert x.data.ctypes.data % model.alignment == 0
        assert model.file_bytes == (tmp_path / "m.gguf").stat().st_size
        assert model.parts == (model.path,) == (tmp_path / "m.gguf",)
        assert model.weights.require("x", 2, 32) is x
        with pytest.raises(BadTensor, match=r"\(2, 32\)"):
            model.weights.require("x", 32, 2)
        with pytest.raises(MissingTensor, match="did you mean 'x'"):
            model.weights.require("xx", 2, 32)


def test_four_dimensions_are_reversed(tmp_path: Path) -> None:
    array = np.arange(2 * 3 * 4 * 32, dtype=np.float32).reshape(2, 3, 4, 32)
    with open_gguf(write_gguf(tmp_path / "m.gguf", {}, {"x": (array, F16), "z": (array, Q4_0)})) as model:
        assert model.weights["x"].shape == (2, 3, 4, 32)
        assert (model.weights["x"].d_out, model.weights["x"].d_in) == (24, 32)
        assert model.weights["z"].data.nbytes == 24 * 18


def test_what_was_taken_out_outlives_the_file(tmp_path: Path) -> None:
    model = open_gguf(small_file(tmp_path / "m.gguf"))
    x, metadata = model.weights["x"], model.metadata
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(Closed, match="open it again"):
        _ = model.weights
    with pytest.raises(Closed):
        _ = model.metadata
    gc.collect()
    assert x.data.view(np.float32)[33] == 33
    assert metadata["a"] == 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_file_is_unmapped_with_the_last_view(tmp_path: Path) -> None:
    path = small_file(tmp_path / "unmapped.gguf")

    def is_mapped() -> bool:
        return "unmapped.gguf" in Path("/proc/self/maps").read_text()

    model = open_gguf(path)
    data = model.weights["x"].data
    assert is_mapped()
    model.close()
    assert is_mapped()
    del data
    assert not is_mapped()


def test_a_failed_opening_leaves_nothing_mapped_and_no_descriptor(tmp_path: Path) -> None:
    path = LIES["overlap"].build(tmp_path)
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(BadTensor):
            open_gguf(path)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_what_is_not_a_file_is_refused_by_kind(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="existing GGUF file"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(UnknownModel):
        open_gguf(small_file(tmp_path / "m.gguf") / "below")
    with pytest.raises(NotGguf, match="folder"):
        open_gguf(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotGguf, match="regular file"):
        open_gguf(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="cannot be opened"):
        open_gguf("nul\0byte")


def test_messages_quote_names_and_keep_them_short(tmp_path: Path) -> None:
    name = "\x1b[31m" + "x" * 200
    path = write_gguf(tmp_path / "m.gguf", {}, {"a": (WEIGHTS, F32)})
    raw = path.read_bytes().replace(struct.pack("<Q", 1) + b"a", struct.pack("<Q", len(name)) + name.encode())
    path.write_bytes(raw.replace(struct.pack("<IQQ", 2, 32, 2), struct.pack("<IQQ", 2, 33, 0)))
    with pytest.raises(BadTensor) as caught:
        open_gguf(path)
    assert "\x1b" not in str(caught.value)
    assert len(caught.value.what) < 200


def test_any_part_opens_all(tmp_path: Path) -> None:
    Parts()(tmp_path)
    paths = [tmp_path / f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for path in paths:
        with open_gguf(path) as model:
            assert list(model.weights) == ["t0", "t1", "t2"]
            assert list(model.parts) == paths
            assert model.path == paths[0]
            assert model.file_bytes == sum(part.stat().st_size for part in paths)
            assert model.metadata["split.no"] == 0


def test_parts_may_be_links_to_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "names").mkdir()
    Parts()(tmp_path / "blobs")
    for i, blob in enumerate(sorted((tmp_path / "blobs").iterdir()), 1):
        hidden = blob.rename(blob.with_name(f"blob{i}"))
        (tmp_path / "names" / f"m-0000{i}-of-00003.gguf").symlink_to(hidden)
    with open_gguf(tmp_path / "names" / "m-00002-of-00003.gguf") as model:
        assert len(model.weights) == 3


def test_a_single_part_needs_no_special_name(tmp_path: Path) -> None:
    keys = {"split.no": 0, "split.count": 1, "split.tensors.count": 1}
    with open_gguf(write_gguf(tmp_path / "any name.gguf", keys, {"x": (WEIGHTS, F32)})) as model:
        assert len(model.parts) == 1


@pytest.mark.model
def test_a_real_header_agrees_with_a_plain_walk(smollm2_path: Path) -> None:
    content = smollm2_path.read_bytes()

    def array_at(key: bytes) -> tuple[int, int]:
        at = content.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 8
        return at + 8, struct.unpack_from("<Q", content, at)[0]

    with open_gguf(smollm2_path) as model:
        for name in ("tokens", "merges"):
            at, n_strings = array_at(f"tokenizer.ggml.{name}".encode())
            expected = []
            for _ in range(n_strings):
                length = int.from_bytes(content[at : at + 8], "little")
                expected.append(content[at + 8 : at + 8 + length])
                at += 8 + length
            strings = model.metadata[f"tokenizer.ggml.{name}"]
            assert isinstance(strings, StringArray)
            assert strings.to_bytes_list() == expected
        at, n_types = array_at(b"tokenizer.ggml.token_type")
        types = model.metadata["tokenizer.ggml.token_type"]
        assert isinstance(types, np.ndarray)
        assert types.tolist() == list(struct.unpack_from(f"<{n_types}i", content, at))
        assert model.weights["token_embd.weight"].shape == (49152, 576)
        assert model.weights["token_embd.weight"].format == Q8_0
        last = max(model.weights.values(), key=lambda weight: weight.data.ctypes.data)
        assert last.data.tobytes() == content[-last.data.nbytes :]


@pytest.mark.model
def test_a_vocabulary_of_262144_tokens_costs_little(gemma3_path: Path) -> None:
    tracemalloc.start()
    with open_gguf(gemma3_path) as model:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        tokens = model.metadata["tokenizer.ggml.tokens"]
        assert (len(tokens), tokens[2], tokens[262143]) == (262144, "<bos>", "<unused6241>")
    assert peak_bytes < 16 * 2**20
    seconds = []
    for _ in range(3):
        start = time.process_time()
        open_gguf(gemma3_path).close()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 2.0  # about 0.03 s: this only catches a return to a loop of a second kind
