"""Servers to ask: one on a scripted model, in memory; one on SmolLM2, on a real port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

import fucina
from fucina.engine.engine import EngineConfig
from fucina.engine.model import Model
from fucina.server.app import make_app
from fucina.server.loading import loaded_model
from fucina.server.options import ServerOptions
from fucina.server.state import Loaded, ModelFacts, ServerState
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

FACTS = ModelFacts(family="scripted", n_parameters=0, format="F32", template="", n_bytes=0, digest="0" * 64)

#: Answers to everything: what a scripted model says behind a prompt of so many tokens.
Script = Callable[[Sequence[int]], int | None]


@contextmanager
def running(state: ServerState) -> Iterator[str]:
    """The address of a server on a free port."""
    config = uvicorn.Config(make_app(state), port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server did not start"
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def scripted_state(script: Script, options: ServerOptions | None = None) -> ServerState:
    """A server's state over a model that says what the script says."""
    options = options or ServerOptions()
    model = Model(ScriptedModel(script=script), ByteTokenizer(), EngineConfig(max_running=options.parallel))
    state = ServerState(options)
    state.ready(Loaded(("scripted", "alias"), Path("scripted.gguf"), model, model.service(), FACTS))
    return state


def close(state: ServerState) -> None:
    """End what a state serves."""
    assert state.loaded is not None
    state.loaded.service.close()
    state.loaded.model.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a server over a script: `serve(script, parallel=2)` gives its address."""
    ends: list[Callable[[], None]] = []

    def start(script: Script, **options: object) -> str:
        state = scripted_state(script, replace(ServerOptions(), **options))  # type: ignore[arg-type]
        context = running(state)
        address = context.__enter__()
        ends.append(lambda: (context.__exit__(None, None, None), close(state))[0])
        return address

    yield start
    for end in reversed(ends):
        end()


@pytest.fixture(scope="session")
def smollm2_state(smollm2_path: Path) -> Iterator[ServerState]:
    """A server's state over SmolLM2, with four requests at a time."""
    options = ServerOptions(parallel=4)
    state = ServerState(options)
    state.ready(loaded_model(lambda: fucina.load(smollm2_path, max_running=4), smollm2_path, ("smollm2",)))
    yield state
    close(state)


@pytest.fixture(scope="session")
def smollm2_server(smollm2_state: ServerState) -> Iterator[str]:
    """The address of a server with SmolLM2."""
    with running(smollm2_state) as address:
        yield address
