"""Work in a thread that nobody waits for any more."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from threading import Event

from fucina.server.beside import IsGone, beside


def test_the_result_is_given() -> None:
    assert asyncio.run(beside(lambda is_gone: (is_gone(), 5))) == (False, 5)


def test_work_is_told_when_nobody_waits_any_more() -> None:
    began, ended = Event(), Event()

    def work(is_gone: IsGone) -> None:
        began.set()
        while not is_gone():
            time.sleep(0.001)
        ended.set()

    async def leave() -> None:
        task = asyncio.ensure_future(beside(work))
        while not began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(leave())
    assert ended.wait(120)
