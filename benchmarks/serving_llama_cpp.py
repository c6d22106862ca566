"""llama.cpp's server on the requests of serving.py: so many streams at once, tokens a second and time to a first token.

Usage: PYTHON benchmarks/serving_llama_cpp.py MODEL.gguf [--streams 1,2,4,8,16] [--threads 2] [--repeats 3]
PYTHON is an environment with xllamacpp, whose wheel holds the server. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
from statistics import median
from threading import Thread
from time import perf_counter
from urllib.parse import urlparse

import xllamacpp  # type: ignore[import-not-found]

#: Tokens of a prompt and of an answer.
SHORT = 64


def main() -> None:
    """Start a server for each number of streams and ask it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,2,4,8,16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    results = {}
    for n_streams in map(int, args.streams.split(",")):
        params = xllamacpp.CommonParams()
        params.model.path = args.model
        params.n_parallel, params.n_ctx = n_streams, n_streams * 4 * SHORT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
        params.n_gpu_layers = 0
        server = xllamacpp.Server(params)
        rng = random.Random(0)
        runs = [run(server.listening_address, n_streams, rng) for _ in range(args.repeats + 1)][1:]
        results[n_streams] = {
            "tok_per_s": max(rate for rate, _ in runs),
            "first_s": min(first for _, first in runs),
        }
        del server
    print(json.dumps({"build": str(xllamacpp.BUILD_INFO), "streams": results}))


def run(address: str, n_streams: int, rng: random.Random) -> tuple[float, float]:
    """Ask for all answers at once: tokens a second from the first request to the last token, median first token."""
    url = urlparse(address)
    firsts: list[float] = []
    counts: list[int] = []

    def ask(prompt: list[int]) -> None:
        connection = http.client.HTTPConnection(str(url.hostname), url.port)
        began = perf_counter()
        body = {"prompt": prompt, "n_predict": SHORT, "temperature": 0, "ignore_eos": True, "stream": True}
        body |= {"cache_prompt": False, "return_tokens": True}
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        n_tokens = 0
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                n_new = len(json.loads(line[6:]).get("tokens") or ())
                if n_new and not n_tokens:
                    firsts.append(perf_counter() - began)
                n_tokens += n_new
        counts.append(n_tokens)

    prompts = [[rng.randrange(100, 40_000) for _ in range(SHORT)] for _ in range(n_streams)]
    threads = [Thread(target=ask, args=(prompt,)) for prompt in prompts]
    began = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = perf_counter() - began
    assert sum(counts) == n_streams * SHORT, counts
    return sum(counts) / seconds, median(firsts)


if __name__ == "__main__":
    main()
