"""Decoding a mixture of experts larger than memory: Fucina reading experts on demand, llama.cpp mapping the file.

    python benchmarks/make_moe.py big.gguf --layers 36
    python benchmarks/moe_streaming.py big.gguf --limit 4G --llama-cpp PYTHON

Every run is a process of its own in a memory cgroup (v1 or v2, made here: that takes root) of `--limit` bytes, which
counts what it has in the page cache, too; before each, the file is dropped from the page cache. `cold` knows nothing;
it writes down which experts it used, and decodes again (`warm`). `pinned` is a later run that has learned from that.
Each decodes the same tokens, chosen once at temperature 1. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from fucina.core.units import parse_bytes

_PROMPT = [(7 * i) % 250 + 3 for i in range(32)]


def fucina_run(path: Path, tokens: int, options: dict[str, object]) -> dict[str, object]:
    """Load, read a prompt, write an answer, twice."""
    import fucina

    began = time.perf_counter()
    model = fucina.load(path, speculation=False, context=1024, kv_memory="128M", **options)
    load_s = time.perf_counter() - began
    found: dict[str, object] = {"load_s": load_s}
    for name, seed in (("first", 1), ("second", 2)):
        before = model.experts
        params = fucina.SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, seed=seed)
        answer = model.generate(_PROMPT, params)
        found[name] = {"tok_per_s": answer.timings.decode_tok_per_s, "ids": answer.ids}
        after = model.experts
        if before is not None and after is not None:
            hits = after.pinned_hits + after.cache_hits - before.pinned_hits - before.cache_hits
            misses = after.misses - before.misses
            found[name] |= {"hit_rate": hits / (hits + misses), "misses": misses}  # type: ignore[operator]
    if model.experts is not None:
        found["experts"] = {name: getattr(model.experts, name) for name in model.experts.__slots__}
        found["overlap"] = model.experts.overlap
    model.close()
    return found | {"peak_rss": _peak_rss()}


def llama_cpp_run(path: Path, sequences: list[list[int]]) -> dict[str, object]:
    """The same prompt and the same tokens, one a pass."""
    from llama_cpp import Llama

    began = time.perf_counter()
    model = Llama(str(path), n_ctx=1024, n_threads=2, use_mmap=True, verbose=False, logits_all=False)
    found: dict[str, object] = {"load_s": time.perf_counter() - began}
    for name, ids in zip(("first", "second"), sequences, strict=True):
        model.reset()
        model.eval(_PROMPT)
        began = time.perf_counter()
        for token in ids:
            model.eval([token])
        found[name] = {"tok_per_s": len(ids) / (time.perf_counter() - began)}
    return found | {"peak_rss": _peak_rss()}


def _peak_rss() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def limited(limit: int, command: list[str], file: Path, job: dict[str, object]) -> dict[str, object]:
    """What the command answers to `job`, run in a fresh cgroup."""
    v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory") / f"fucina-bench-{os.getpid()}"
    forget(file)
    group.mkdir()
    try:
        (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))
        shell = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
        done = subprocess.run(shell, input=json.dumps(job), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": done.returncode, "stderr": done.stderr[-2000:]}
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        print({name: found[name] for name in found if name != "experts"}, file=sys.stderr)
        return found
    finally:
        with suppress(OSError):
            group.rmdir()


def forget(file: Path) -> None:
    """Drop the file from the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def main() -> None:
    """Run all, or, told so by a job on stdin, one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--limit", type=parse_bytes, default=4 << 30)
    parser.add_argument("--cache", default="2G")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="a Python with llama-cpp-python; without it, no peer")
    parser.add_argument("--pilot", action="store_true", help="a fourth run, that looks a layer ahead")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        job = json.loads(sys.stdin.read())
        run = llama_cpp_run if "sequences" in job else fucina_run
        print(json.dumps(run(given.path, **job)))
        return
    own = [sys.executable, __file__, str(given.path), "--child"]
    given.path.with_name(f"{given.path.name}.experts").unlink(missing_ok=True)
    options = {"moe_cache": given.cache}
    job = {"tokens": given.tokens, "options": options}
    record: dict[str, object] = {"file_bytes": given.path.stat().st_size, "limit": given.limit, "cache": given.cache}
    record["cold"] = cold = limited(given.limit, own, given.path, job)
    record["pinned"] = limited(given.limit, own, given.path, job)
    if given.pilot:
        options = options | {"moe_pilot": True}
        record["pilot"] = limited(given.limit, own, given.path, {"tokens": given.tokens, "options": options})
    if given.llama_cpp:
        sequences = [cold[name]["ids"] for name in ("first", "second")]  # type: ignore[index]
        peer = [given.llama_cpp, *own[1:]]
        record["llama.cpp"] = limited(given.limit, peer, given.path, {"sequences": sequences})
    print(json.dumps(record))


if __name__ == "__main__":
    main()
