"""What HTTP costs: tokens a second of streams over a server beside the same streams in the library, in turns.

Usage: python benchmarks/server_cost.py MODEL [--streams 1,4,8] [--tokens 192] [--repeats 3] [--threads N] [--no-record]
Greedy chats without drafts, each with a prompt of its own. The server is `fucina serve`; its client reads bytes and
looks at them afterwards, so that little of the time is its own. Tokens count while all streams run, so that how the
prompts are read has no part in it. `loop_us` is the processor time of the server's event loop for each streamed token,
what comes before the first one included. Then one stream alone is timed beside one whose reader has stopped.
Appends the figures to benchmarks/records/server_cost.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import selectors
import socket
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from roof import machine
from served import Served, fucina_command

import fucina
from fucina import SamplingParams
from fucina.core.cpu import usable_cpus
from fucina.testing.hostile_http import CHAT, MODEL
from fucina.testing.raw_http import post

HERE = Path(__file__).parent


def question(i: int) -> str:
    """A prompt that shares little with others."""
    return f"{i * 7919 % 1000}: write a long story about the number {i}."


def in_library(model: fucina.Model, n: int, n_tokens: int) -> float:
    """Tokens a second of so many answers at once, behind the first."""
    params = SamplingParams(max_tokens=n_tokens, ignore_eos=True)
    prompts = [model.speech.chat_ids([{"role": "user", "content": question(i)}]) for i in range(n)]
    model.forget_prefixes()
    done = model.generate_batch(prompts, params)
    return n * (n_tokens - 1) / max(one.timings.decode_s for one in done)


def over_http(port: int, n: int, n_tokens: int, salt: int, pid: int) -> tuple[float, float]:
    """Tokens a second of so many streams at once, and microseconds of the server's event loop for each token."""
    selector = selectors.DefaultSelector()
    pieces: dict[socket.socket, list[tuple[float, bytes]]] = {}
    before_s = loop_s(pid)
    for i in range(n):
        client = asked(port, question(i), n_tokens, cache_salt=str(salt))
        selector.register(client, selectors.EVENT_READ)
        pieces[client] = []
    while selector.get_map():
        for key, _ in selector.select():
            client = key.fileobj
            assert isinstance(client, socket.socket)
            data = client.recv(1 << 16)
            pieces[client].append((perf_counter(), data))
            if not data:
                selector.unregister(client)
                client.close()
    spent_s = loop_s(pid) - before_s
    assert all(b"[DONE]" in b"".join(data for _, data in told) for told in pieces.values())
    return while_all_run([*pieces.values()]), spent_s / (n * n_tokens) * 1e6


def asked(port: int, text: str, n_tokens: int, **fields: Any) -> socket.socket:
    """A connection on which a stream was asked for."""
    client = socket.socket()
    if fields.get("logprobs"):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0}
    client.sendall(post(CHAT, body | {"max_tokens": n_tokens, "ignore_eos": True} | fields))
    return client


def while_all_run(streams: list[list[tuple[float, bytes]]]) -> float:
    """Tokens a second between the beginning of the last stream and the end of the first; chunks are tokens."""
    came = [[at for at, data in told for _ in range(data.count(b'"content":"'))] for told in streams]
    begin, end = max(times[1] for times in came), min(times[-1] for times in came)
    return sum(begin < at <= end for times in came for at in times) / (end - begin)


def beside_stopped(served: Served, n_tokens: int, repeats: int) -> dict[str, float]:
    """Tokens a second of one stream alone, and beside one whose reader has stopped long ago."""
    pid, alone, beside = served.process.pid, [], []
    for i in range(repeats):
        alone.append(over_http(served.port, 1, n_tokens, 1000 + i, pid)[0])
        with asked(served.port, "Tell me everything.", 3000, logprobs=True, top_logprobs=20):
            spent_s = -1.0
            while served.held().cpu_s - spent_s > 0.02:  # until it stands still
                spent_s = served.held().cpu_s
                sleep(0.5)
            beside.append(over_http(served.port, 1, n_tokens, 2000 + i, pid)[0])
    ratio = median(b / a for a, b in zip(alone, beside, strict=True))
    return {"alone_tok_per_s": max(alone), "beside_tok_per_s": max(beside), "ratio": ratio}


def loop_s(pid: int) -> float:
    """Processor seconds of a process's first thread, in which its event loop runs."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    """Parse the command line, measure in turns, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    streams = [int(n) for n in args.streams.split(",")]
    record: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "model": args.model.name,
        "tokens": args.tokens,
        "threads": args.threads,
        "load_average": os.getloadavg()[0],
        "machine": machine(),
        "commit": subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "streams": {},
    }
    command = fucina_command(args.model, "--threads", str(args.threads), "--no-spec", "--context", "4096")
    log = Path(tempfile.gettempdir()) / "server_cost.log"
    with (
        Served(command, log) as served,
        fucina.load(args.model, threads=args.threads, speculation=False, context=4096, max_running=16) as model,
    ):
        pid, salt = served.process.pid, 0
        in_library(model, 1, 32)
        over_http(served.port, 1, 32, -1, pid)
        for n in streams:
            library, http, loop = [], [], []
            for _ in range(args.repeats):
                salt += 1
                library.append(in_library(model, n, args.tokens))
                rate, loop_us = over_http(served.port, n, args.tokens, salt, pid)
                http.append(rate)
                loop.append(loop_us)
            ratios = [a / b for a, b in zip(http, library, strict=True)]
            got = record["streams"][str(n)] = {
                "library_tok_per_s": max(library),
                "http_tok_per_s": max(http),
                "ratio": median(ratios),
                "best_ratio": max(http) / max(library),
                "loop_us": min(loop),
            }
            print(n, {name: round(value, 3) for name, value in got.items()}, flush=True)
        record["beside_stopped"] = beside_stopped(served, args.tokens, args.repeats)
        print("beside a stopped reader", record["beside_stopped"], flush=True)
    line = json.dumps(record, sort_keys=True)
    if not args.no_record:
        with (HERE / "records" / "server_cost.jsonl").open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
