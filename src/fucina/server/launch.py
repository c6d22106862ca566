"""From options to a server that runs until it is told to end.

It listens at once and says 503 until the model is there, so that whoever watches it sees it come. When it is told to
end it takes nothing new, lets answers finish for a while, and closes the model, which stores what it keeps on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from fucina.server.app import make_app
from fucina.server.options import ServerOptions
from fucina.server.protocol import http_protocol
from fucina.server.state import Loaded, ServerState


def serve(options: ServerOptions, load: Callable[[], Loaded], announce: Callable[[Loaded, str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `announce` is told the address once answers can be had.

    Raises what `load` raises, and OSError where the address cannot be had.
    """
    state = ServerState(options)
    server = _Server(state)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(asyncio.to_thread(load))
        loading.add_done_callback(lambda done: server.loaded(done, announce))
        try:
            yield
        finally:
            await _close(state, loading)

    server.run_app(lifespan)
    if state.failure is not None:
        raise state.failure


async def _close(state: ServerState, loading: asyncio.Future[Loaded]) -> None:
    """Close what there is, also if it came only now."""
    await asyncio.wait((loading,))
    if state.loaded is not None:
        await asyncio.to_thread(state.loaded.service.close)
        await asyncio.to_thread(state.loaded.model.close)


class _Server(uvicorn.Server):
    """uvicorn, which also tells the state that the end is near."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def run_app(self, lifespan: Callable[[Starlette], object]) -> None:
        """Serve the application."""
        options = self._state.options
        config = uvicorn.Config(
            make_app(self._state, lifespan),  # type: ignore[arg-type]
            host=options.host,
            port=options.port,
            http=http_protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="on",
            timeout_graceful_shutdown=round(options.drain_s),
        )
        super().__init__(config)
        self.run()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take nothing new from now on."""
        self._state.draining = True
        super().handle_exit(sig, frame)

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
            announce(loaded, self.address())

    def address(self) -> str:
        """Where it listens."""
        for listener in self.servers:
            for socket in listener.sockets:
                host, port = socket.getsockname()[:2]
                return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return ""
