"""Reads of experts that fail although the page cache has them: a named error, and nothing waits for ever."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from fucina.core.formats import Q4_K
from fucina.testing.tiny_gguf import tiny_model

#: Stands before the C library's pread; the switch is set from Python.
BROKEN_PREAD = r"""
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
int fail_reads = 0;
ssize_t pread(int file, void* out, size_t n, off_t at) {
  if (!fail_reads) return syscall(SYS_pread64, file, out, n, at);
  errno = EIO;
  return -1;
}
}
"""
PROGRAM = """
import ctypes, sys
import fucina

params = fucina.SamplingParams(max_tokens=6, ignore_eos=True)
switch = ctypes.c_int.in_dll(ctypes.CDLL(None), "fail_reads")
with fucina.load(sys.argv[1], speculation=False, kv_memory="16M", moe_stream=False) as resident:
    expected = resident.generate([5, 6, 7], params).ids
with fucina.load(sys.argv[1], speculation=False, kv_memory="16M", moe_cache="400K", moe_learn=False) as model:
    switch.value = 1
    for _ in range(2):
        try:
            model.generate([5, 6, 7], params)
        except fucina.ExpertReadError as error:
            print(error)
    print(model.experts.failed_reads > 0, model.experts.bytes_read)
    switch.value = 0
    print(model.generate([5, 6, 7], params).ids == expected)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stands before a function of Linux's C library")
def test_a_failed_read_from_the_page_cache_is_a_named_error(tmp_path: Path) -> None:
    compiler = shutil.which((sysconfig.get_config_var("CXX") or "c++").split()[0]) or "c++"
    source, library = tmp_path / "pread.cpp", tmp_path / "pread.so"
    source.write_text(BROKEN_PREAD)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    model = tiny_model(tmp_path / "model.gguf", "qwen3moe", n_layers=3, n_experts=16, n_used=4, format=Q4_K, seed=3)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, model],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, counted, same = done.stdout.splitlines()
    for error in (first, second):
        assert f"{model}: " in error
        assert "cannot be read (Input/output error); check the disk" in error
    assert (counted, same) == ("True 0", "True")
