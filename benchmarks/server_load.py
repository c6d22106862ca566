"""A server under load: who asks well is answered, whatever others do; then what that costs, beside a peer.

Usage: python benchmarks/server_load.py MODEL [--clients 64] [--seconds 60] [--seed 0] [--hostile 0.4]
       [--peer PYTHON] [--no-record]
Starts `fucina serve MODEL`, and in place of a share of the requests (--hostile; 0 for none) sends those of
fucina.testing.hostile_http. The others are chats: greedy and sampled, streamed and not, short and long, in forms, with
tools, of two choices. Ends with status 1 where one of them was not answered (429 is an answer), a greedy text differs
from the library's, a hostile request got what it must not get, or the server does not give back what it took.
With --peer, an interpreter that has llama_cpp.server, that server is loaded instead. --hostile 0 --plain asks for
greedy streams alone, which both have, each with a prompt of its own. Appends the figures to
benchmarks/records/server_load.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import quantiles
from time import perf_counter, sleep
from typing import Any

from roof import machine
from served import Held, Served, fucina_command, llama_cpp_command

import fucina
from fucina import SamplingParams
from fucina.testing.hostile_http import CHAT, MODEL, Attack, attacks
from fucina.testing.raw_http import Reply, ask, post

HERE = Path(__file__).parent
WORDS = ("river", "stone", "lantern", "winter", "garden", "engine", "copper", "quiet", "harbor", "letter", "bread")
#: Characters of a prompt and tokens of an answer.
PROMPTS, ANSWERS = (20, 80, 400, 1600), (8, 24, 64)
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
#: Greedy chats to choose from: each asked again and again, or hardly ever twice; so many texts are checked.
FEW, MANY, CHECKED = 24, 5000, 400
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}, "required": ["name"]}
EXTRAS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.9},
    {"temperature": 0.7, "n": 2},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"regex": "[a-f]{4,12}"},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL]},
    {"logprobs": True, "top_logprobs": 3, "temperature": 0},
)


@dataclass(slots=True)
class Tally:
    """What came of it all."""

    statuses: Counter[int] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)
    mean_between_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    pieces: int = 0
    texts: list[tuple[int, str]] = field(default_factory=list)


def greedy_bodies(rng: Random, n: int) -> list[dict[str, Any]]:
    """Greedy chats of mixed lengths."""
    bodies = []
    for i in range(n):
        size = PROMPTS[i % len(PROMPTS)]
        text = " ".join(rng.choice(WORDS) for _ in range(size // 7))
        messages = [{"role": "user", "content": f"Write about this: {text}"}]
        bodies.append({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": rng.choice(ANSWERS)})
    return bodies


class Load:
    """So many clients for so long."""

    def __init__(self, args: argparse.Namespace, port: int) -> None:
        self._args, self._port = args, port
        self._attacks: list[Attack] = attacks(longest=200)
        self.greedy = greedy_bodies(Random(args.seed), MANY if args.plain else FEW)
        self.tally = Tally()

    async def run(self) -> float:
        """Seconds that it took."""
        began = perf_counter()
        clients = (self._client(Random(f"{self._args.seed}/{i}"), began) for i in range(self._args.clients))
        await asyncio.gather(*clients)
        return perf_counter() - began

    async def _client(self, rng: Random, began: float) -> None:
        while perf_counter() - began < self._args.seconds:
            if rng.random() < self._args.hostile:
                await self._attack(rng.choice(self._attacks), rng)
            else:
                await self._ask_well(rng)

    async def _attack(self, attack: Attack, rng: Random) -> None:
        try:
            status = await asyncio.wait_for(attack.act(self._port, rng), 120)
        except (OSError, TimeoutError) as error:
            self.tally.wrong.append(f"{attack.name}: {error!r}")
            return
        self.tally.hostile[f"{attack.name}: {status}"] += 1
        if status not in attack.allowed:
            self.tally.wrong.append(f"{attack.name}: status {status}")

    async def _ask_well(self, rng: Random) -> None:
        number = rng.randrange(len(self.greedy))
        body = self.greedy[number]
        is_greedy = self._args.plain or rng.random() < 0.5
        if not is_greedy:
            body = body | {"seed": rng.randrange(1000)} | rng.choice(EXTRAS)
        streams = self._args.plain or rng.random() < 0.6
        tally, reply = self.tally, Reply(perf_counter())
        try:
            reply = await asyncio.wait_for(ask(self._port, post(CHAT, body | {"stream": streams})), 300)
            tally.statuses[reply.status] += 1
            if reply.status == 429:
                await asyncio.sleep(min(float(reply.headers["retry-after"]), 2.0))
            elif reply.status != 200:
                tally.wrong.append(f"well-formed: {reply.status} {reply.body[:200]!r}")
            else:
                text = self._streamed(reply) if streams else self._whole(reply)
                tally.whole_s.append(perf_counter() - reply.sent_s)
                if is_greedy:
                    tally.texts.append((number, text))
        except (OSError, TimeoutError, LookupError, ValueError) as error:
            tally.wrong.append(f"well-formed: {error!r} {reply.status}")

    def _whole(self, reply: Reply) -> str:
        return reply.json()["choices"][0]["message"]["content"] or ""

    def _streamed(self, reply: Reply) -> str:
        """The first choice's text; how fast it came is noted."""
        if not reply.body.rstrip().endswith(b"data: [DONE]"):
            raise ValueError(f"a stream that ends with {reply.body[-100:]!r}")
        said = [(at, choice) for at, event in reply.events() for choice in event["choices"] if not choice["index"]]
        came = [at for at, choice in said if choice["delta"].get("content") or choice["delta"].get("tool_calls")]
        if came:
            self.tally.first_s.append(came[0] - reply.sent_s)
            self.tally.between_s += [after - before for before, after in pairwise(came)]
            if len(came) > 1:
                self.tally.mean_between_s.append((came[-1] - came[0]) / (len(came) - 1))
            self.tally.pieces += len(came)
        return "".join(choice["delta"].get("content") or "" for _, choice in said)


def wrong_texts(model_path: Path, load: Load) -> list[str]:
    """The greedy texts that differ from the library's."""
    wanted: dict[int, str] = {}
    with fucina.load(model_path) as model:
        for number, _ in load.tally.texts[:CHECKED]:
            if number not in wanted:
                body = load.greedy[number]
                wanted[number] = model.chat(body["messages"], SamplingParams(max_tokens=body["max_tokens"])).text
    return [f"{n}: {text!r}, not {wanted[n]!r}" for n, text in load.tally.texts[:CHECKED] if text != wanted[n]]


def settled(served: Served, before: Held) -> Held:
    """What the server holds when it has come to rest."""
    now = served.held()
    for _ in range(40):
        if now.threads <= before.threads and now.files <= before.files:
            break
        sleep(0.5)
        now = served.held()
    return now


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p95 and p99, in milliseconds."""
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=100)
    return {f"p{p}_ms": round(cuts[p - 1] * 1e3, 1) for p in (50, 95, 99)}


def measure(args: argparse.Namespace, name: str, command: list[str], env: dict[str, str]) -> dict[str, Any]:
    """One server under the load: its figures, and what was wrong."""
    log = Path(tempfile.gettempdir()) / f"server_load_{name}.log"
    with Served(command, log, env) as served:
        warm = Load(argparse.Namespace(**{**vars(args), "seconds": 4, "clients": args.clients}), served.port)
        asyncio.run(warm.run())
        sleep(3)
        before = served.held()
        load = Load(args, served.port)
        seconds = asyncio.run(load.run())
        loaded = served.held()
        after = settled(served, before)
        alive = served.is_running and served.get("/v1/models") == 200
    tally = load.tally
    wrong = list(tally.wrong) if alive else [*tally.wrong, "the server does not answer any more"]
    if name == "fucina":
        wrong += wrong_texts(args.model, load)
        if after.threads > before.threads or after.files > before.files + 2:
            wrong.append(f"not given back: {before} before, {after} after")
    return {
        "requests_per_s": round(tally.statuses[200] / seconds, 2),
        "pieces_per_s": round(tally.pieces / seconds, 1),
        "first": percentiles(tally.first_s),
        "between": percentiles(tally.between_s),
        "mean_between": percentiles(tally.mean_between_s),
        "whole": percentiles(tally.whole_s),
        "statuses": dict(tally.statuses),
        "hostile": sum(tally.hostile.values()),
        "hostile_statuses": dict(sorted(tally.hostile.items())),
        "checked_texts": min(len(tally.texts), CHECKED) if name == "fucina" else 0,
        "cpu_share": round((loaded.cpu_s - before.cpu_s) / seconds, 2),
        "held_before": before._asdict(),
        "held_after": after._asdict(),
        "wrong": wrong,
    }


def main() -> None:
    """Parse the command line, load the servers, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hostile", type=float, default=0.4)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--peer")
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    commands = {"fucina": fucina_command(args.model, "--queue", str(args.queue), "--context", "4096")}
    if args.peer:
        commands = {"llama_cpp_python": llama_cpp_command(args.peer, args.model, 4096)}
    record: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "options": {k: str(v) for k, v in vars(args).items() if k not in ("model", "peer", "no_record")},
        "model": args.model.name,
        "machine": machine(),
        "commit": subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
        ).stdout.strip(),
    }
    for name, command in commands.items():
        record[name] = measure(args, name, command, {})
    line = json.dumps(record, sort_keys=True)
    print(line)
    if not args.no_record:
        with (HERE / "records" / "server_load.jsonl").open("a") as file:
            file.write(line + "\n")
    sys.exit(any(record[name]["wrong"] for name in commands))


if __name__ == "__main__":
    main()
