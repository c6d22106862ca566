"""Decoding a mixture of experts larger than memory: Fucina reading experts on demand, llama.cpp mapping the file.

    python benchmarks/make_moe.py big.gguf --layers 36
    python benchmarks/moe_streaming.py big.gguf --limit 4G --rounds 3 --llama-cpp PYTHON

Every run is a process of its own in a memory cgroup (v1 or v2, made here: that takes root) of `--limit` bytes, which
counts what it has in the page cache, too; before each, the file is dropped from the page cache. `cold` knows nothing;
`second` begins with the experts that it used, `pinned` also keeps the most used; `no pilot` is that without looking
ahead. Kinds take turns, because a disk's speed changes from minute to minute. All decode the same tokens, chosen at
temperature 1. llama.cpp maps the file, without repacking weights into memory of its own, and stops after
`--peer-seconds`. The last line is one JSON object.
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

PROMPT = [(7 * i) % 250 + 3 for i in range(8)]
_KINDS: dict[str, dict[str, object]] = {
    "cold": {},
    "second": {"moe_pin": 0},
    "pinned": {},
    "no pilot": {"moe_pilot": False},
}


def fucina_run(path: Path, tokens: int, options: dict[str, object]) -> dict[str, object]:
    """Load, read a prompt, write an answer; decoding counts from the first token on."""
    import fucina

    began = time.perf_counter()
    model = fucina.load(path, speculation=False, context=1024, kv_memory="128M", **options)  # type: ignore[arg-type]
    found: dict[str, object] = {"load_s": time.perf_counter() - began, "load_bytes_read": _bytes_read()}
    params = fucina.SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, seed=1)
    events = model.stream(PROMPT, params)
    began = time.perf_counter()
    next(events)
    first = time.perf_counter()
    before = model.experts
    ids = [event.token for event in events if hasattr(event, "token")]
    seconds = time.perf_counter() - first
    after = model.experts
    found |= {"prompt_s": first - began, "tok_per_s": (tokens - 1) / seconds, "tokens": len(ids)}
    if before is not None and after is not None:
        done = {name: getattr(after, name) - getattr(before, name) for name in after.__slots__}
        hits = done["pinned_hits"] + done["cache_hits"]
        found |= {"hit_rate": hits / (hits + done["misses"]), "pinned": after.pinned, "slots": after.slots}
        found |= {
            "gb_per_token": done["bytes_read"] / 1e9 / (tokens - 1),
            "gb_per_s": done["bytes_read"] / 1e9 / seconds,
        }
        found |= {"wait_share": done["wait_s"] / seconds, "hinted": done["hinted"], "useful": done["hints_useful"]}
    model.close()
    return found | {"peak_rss": _peak_rss()}


def llama_cpp_run(path: Path, ids: list[int], seconds: float) -> dict[str, object]:
    """Tokens one a pass, for so long, after a short prompt."""
    import llama_cpp.llama_cpp as low
    from llama_cpp import Llama

    defaults = low.llama_model_default_params

    def without_repacking() -> object:
        params = defaults()
        params.use_extra_bufts = False  # repacked, weights are in memory that cannot be dropped and read again
        return params

    low.llama_model_default_params = without_repacking
    began = time.perf_counter()
    model = Llama(str(path), n_ctx=1024, n_threads=2, use_mmap=True, verbose=False, logits_all=False)
    loaded = time.perf_counter()
    model.eval(PROMPT[:4])
    first, before = time.perf_counter(), _bytes_read()
    times: list[float] = []
    for token in ids:
        start = time.perf_counter()
        model.eval([token])
        times.append(time.perf_counter() - start)
        if time.perf_counter() - first > seconds:
            break
    n_bytes, spent = _bytes_read() - before, sum(times)
    found: dict[str, object] = {"load_s": loaded - began, "prompt_s": first - loaded, "tokens": len(times)}
    found |= {"tok_per_s": len(times) / spent, "median_tok_per_s": 1 / sorted(times)[len(times) // 2]}
    return found | {
        "gb_per_token": n_bytes / 1e9 / len(times),
        "gb_per_s": n_bytes / 1e9 / spent,
        "peak_rss": _peak_rss(),
    }


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


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
    parser.add_argument("--limit", default="4G")
    parser.add_argument("--cache", default="2G")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(_KINDS), help="of these, in this order")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="a Python with llama-cpp-python; without it, no peer")
    parser.add_argument("--peer-seconds", type=float, default=300.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        job = json.loads(sys.stdin.read())
        run = llama_cpp_run if "ids" in job else fucina_run
        print(json.dumps(run(given.path, **job)))
        return
    from fucina.core.units import parse_bytes  # here, for llama.cpp's Python need not have it

    limit = parse_bytes(given.limit)
    own = [sys.executable, __file__, str(given.path), "--child"]
    record: dict[str, object] = {"file_bytes": given.path.stat().st_size, "limit": limit, "cache": given.cache}
    for _ in range(given.rounds):
        for kind in filter(None, given.kinds.split(",")):
            if kind == "cold":
                given.path.with_name(f"{given.path.name}.experts").unlink(missing_ok=True)
            options = {"moe_cache": given.cache} | _KINDS[kind]
            runs = record.setdefault(kind, [])
            assert isinstance(runs, list)
            runs.append(limited(limit, own, given.path, {"tokens": given.tokens, "options": options}))
    if given.llama_cpp:
        ids = [(37 * i) % 250 + 3 for i in range(given.tokens)]
        peer = [given.llama_cpp, *own[1:]]
        job = {"ids": ids, "seconds": given.peer_seconds}
        record["llama.cpp"] = limited(limit, peer, given.path, job)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
