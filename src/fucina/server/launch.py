"""From options to a server that runs until it is told to end.

It listens at once and says 503 until the model is there, so that whoever watches it sees it come. When it is told to
end it takes nothing new, lets answers finish for a while, cuts off what is left with an error, and closes the model,
which stores what it keeps on disk. A model that is still being loaded is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import ceil
from threading import Thread
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from fucina.errors import Closed
from fucina.server.app import make_app
from fucina.server.listening import address_of, listen
from fucina.server.options import ServerOptions
from fucina.server.protocol import http_protocol
from fucina.server.state import Loaded, ServerState

_LOG = logging.getLogger("fucina.server")

#: What answers that were cut off have to tell so; then whoever does not read is left alone.
_FAREWELL_S = 5
#: The exit code of who was interrupted twice.
_INTERRUPTED = 130


def serve(
    options: ServerOptions,
    load: Callable[[], Loaded],
    announce: Callable[[Loaded, str], None],
    leave: Callable[[int], None] = os._exit,
) -> None:
    """Serve until SIGINT or SIGTERM. `announce` is told the address once answers can be had.

    While the model is being loaded, and at a second SIGINT, `leave` ends the process at once with an exit code:
    threads that compute wait for nobody, and nothing on the disk needs a farewell.
    Raises what `load` raises, and ConfigError where the address cannot be had.
    """
    listeners = listen(options.host, options.port)
    state = ServerState(options)
    server = _Server(state, listeners, leave)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loading = _Loading(load)
        loading.outcome.add_done_callback(lambda done: server.loaded(done, announce))
        try:
            yield
        finally:
            await _close(state, loading, leave)

    server.run_app(lifespan)
    if state.failure is not None:
        raise state.failure


async def _close(state: ServerState, loading: _Loading, leave: Callable[[int], None]) -> None:
    """Close what there is. A model that is still being loaded ends with the process."""
    if not loading.outcome.done():
        _LOG.info("ended")
        leave(0)  # a thread that reads and repacks weights cannot be told to stop
    if state.loaded is not None:
        await asyncio.to_thread(state.loaded.service.close)
        await asyncio.to_thread(state.loaded.model.close)


class _Loading:
    """A model on its way, in a thread that neither the event loop nor Python waits for in the end."""

    def __init__(self, load: Callable[[], Loaded]) -> None:
        """Begin."""
        self._load, self._loop = load, asyncio.get_running_loop()
        self.outcome: asyncio.Future[Loaded] = self._loop.create_future()
        Thread(target=self._run, name="loading", daemon=True).start()

    def _run(self) -> None:
        try:
            loaded = self._load()
        except BaseException as error:
            self._tell(self.outcome.set_exception, error)
        else:
            self._tell(self.outcome.set_result, loaded)

    def _tell(self, tell: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever would hear of it
            self._loop.call_soon_threadsafe(tell, what)


class _Server(uvicorn.Server):
    """uvicorn, which also tells the state that the end is near."""

    def __init__(self, state: ServerState, listeners: list[socket.socket], leave: Callable[[int], None]) -> None:
        self._state, self._listeners, self._leave = state, listeners, leave
        self._address = address_of(listeners[0])

    def run_app(self, lifespan: Callable[[Starlette], object]) -> None:
        """Serve the application."""
        config = uvicorn.Config(
            make_app(self._state, lifespan),  # type: ignore[arg-type]
            http=http_protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="on",
            timeout_graceful_shutdown=ceil(self._state.options.drain_s) + _FAREWELL_S,
        )
        super().__init__(config)
        self.run(self._listeners)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take nothing new from now on; who is interrupted again ends at once.

        uvicorn would raise the signal again in the end, and the exit code would tell of a failure.
        """
        del frame
        if self._state.draining and sig == signal.SIGINT:
            self._leave(_INTERRUPTED)
        self._state.draining = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers finish for as long as they may, then cut them off."""
        if self._state.draining:
            _LOG.info("ending: %d answers run or wait", self._state.n_live)
        cutting = asyncio.ensure_future(self._cut())
        await super().shutdown(sockets)
        cutting.cancel()
        if self._state.draining:
            _LOG.info("ended")

    async def _cut(self) -> None:
        """End every answer with an error once the time is up."""
        drain_s, loaded = self._state.options.drain_s, self._state.loaded
        await asyncio.sleep(drain_s)
        if loaded is not None:
            _LOG.warning("cutting off %d answers after %g s", self._state.n_live, drain_s)
            await asyncio.to_thread(loaded.service.close, Closed("the server ended before the answer did"))

    def loaded(self, loading: asyncio.Future[Loaded], announce: Callable[[Loaded, str], None]) -> None:
        """The model is there, or will never be."""
        failure = loading.exception()
        if failure is not None:
            self._state.failure = failure if isinstance(failure, Exception) else RuntimeError(str(failure))
            self.should_exit = True
            return
        loaded = loading.result()
        self._state.ready(loaded)
        if not self.should_exit:
            announce(loaded, self._address)
