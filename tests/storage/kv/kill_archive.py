"""A process to be killed: it keeps a conversation in a file, and says what it is about to commit and what it has.

Usage: kill_archive.py FILE SEED [SYNCS]. With SYNCS it kills itself in its so many-th sync of a change. What lies at a
position follows from the tokens up to it, so that who reads it can tell whether it is right.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.storage.kv.archive.conversation_file import ConversationFile
from fucina.storage.kv.disk.files import Files
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry

GEOMETRY = KvGeometry((LayerGeometry(kv_heads=1, d_head=2),) * 2)  # 2 KiB a block
IDENTITY = bytes(range(32))


def numbers(ids: Sequence[int]) -> NDArray[np.uint16]:
    """A number for each position that depends on all tokens up to it, (len(ids),)."""
    return (np.cumsum((np.array(ids, np.uint64) + 1) * 40503 % 65521) % 65521).astype(np.uint16)


def blocks_of(ids: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Blocks that hold these tokens: every element of a position is its number, plus which element it is."""
    blocks = []
    for start in range(0, len(ids), KV_BLOCK):
        own = np.zeros(KV_BLOCK, np.uint16)
        part = numbers(ids)[start : start + KV_BLOCK]
        own[: len(part)] = part
        pieces = []
        for layer in range(2):
            pieces.append(np.stack([own + layer * 4, own + layer * 4 + 1]))  # K (d_head, 64)
            pieces.append(np.stack([own + layer * 4 + 2, own + layer * 4 + 3], axis=1))  # V (64, d_head)
        blocks.append(np.concatenate([piece.ravel() for piece in pieces]).view(np.uint8))
    return blocks


def is_right(file: ConversationFile) -> bool:
    """Whether the file's blocks hold what its tokens ask for."""
    ids, read = file.ids[: file.n_tokens], file.reader()
    for index, wanted in enumerate(blocks_of(ids)):
        block = np.zeros(GEOMETRY.block_bytes, np.uint8)
        read(index, block)
        n = min(KV_BLOCK, len(ids) - index * KV_BLOCK)
        ours, theirs = block.view(np.uint16).reshape(2, 2, 128), wanted.view(np.uint16).reshape(2, 2, 128)
        for layer in range(2):
            if (ours[layer, 0].reshape(2, KV_BLOCK) != theirs[layer, 0].reshape(2, KV_BLOCK))[:, :n].any():
                return False
            if (ours[layer, 1].reshape(KV_BLOCK, 2) != theirs[layer, 1].reshape(KV_BLOCK, 2))[:n].any():
                return False
    return True


def turn(rng: random.Random, messages: list[dict[str, str]], ids: list[int]) -> tuple[list[dict[str, str]], list[int]]:
    """Another turn; now and then it writes what was said before in another way."""
    text = "".join(rng.choices("abcäöü\udc80", k=rng.randrange(40)))
    kept = ids[: rng.randrange(len(ids) + 1)] if rng.random() < 0.3 else ids
    said = [rng.randrange(1 << 32) for _ in range(rng.randrange(1, 150))]
    return [*messages, {"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}], [*kept, *said]


class Deadly(Files):
    """Kills its process in the middle of a sync; what was written is on its way to the disk, or is there."""

    n_syncs = sys.maxsize

    def sync(self, fd: int) -> None:
        self.n_syncs -= 1
        if self.n_syncs == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        super().sync(fd)


def main() -> None:
    rng, files = random.Random(int(sys.argv[2])), Deadly()
    print("start", flush=True)
    file = ConversationFile(Path(sys.argv[1]), GEOMETRY, IDENTITY, files=files)
    if len(sys.argv) > 3:
        files.n_syncs = int(sys.argv[3])
    messages, ids = file.messages, file.ids
    print("open", flush=True)
    while True:
        going_back = len(ids) > 600 or (messages and rng.random() < 0.2)
        if going_back:
            messages = messages[: rng.randrange(0, len(messages), 2)] if messages else []
            ids = ids[: min(file.n_tokens, rng.randrange(400))]
        else:
            messages, ids = turn(rng, messages, ids)
        print("next", json.dumps([messages, ids]), flush=True)
        if going_back:
            file.forget(len(messages), ids)
        else:
            file.commit(messages, ids, blocks_of(ids[:-1]), len(ids) - 1)
        ids = file.ids
        print("done", json.dumps([messages, ids]), flush=True)


if __name__ == "__main__":
    main()
