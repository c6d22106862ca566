"""Servers to ask: one on a scripted model, in memory; one on SmolLM2, on a real port."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
import uvicorn

import fucina
from fucina.engine.engine import EngineConfig
from fucina.engine.model import Model
from fucina.engine.pass_costs import PassCosts
from fucina.engine.speculation import Speculation
from fucina.server.app import make_app
from fucina.server.loading import loaded_model
from fucina.server.manners import manners_of
from fucina.server.options import ServerOptions
from fucina.server.protocol import http_protocol
from fucina.server.state import Loaded, ModelFacts, ServerState
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.hostile_http import MODEL
from fucina.testing.scripted_model import ScriptedModel

FACTS = ModelFacts(family="scripted", n_parameters=0, format="F32", template="", n_bytes=0, digest="0" * 64)

#: Answers to everything: what a scripted model says behind a prompt of so many tokens.
Script = Callable[[Sequence[int]], int | None]


@pytest.fixture(scope="session", autouse=True)
def patient_clients() -> None:
    """Let requests that name no time wait as long as a busy machine needs; the five seconds of default would decide."""
    default = inspect.signature(httpx2.request).parameters["timeout"].default
    default.connect = default.read = default.write = default.pool = 300.0


@contextmanager
def running(state: ServerState) -> Iterator[str]:
    """The address of a server on a free port."""
    config = uvicorn.Config(
        make_app(state),
        port=0,
        http=http_protocol(),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
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


@dataclass(frozen=True)
class Served:
    """A server over a scripted model."""

    address: str
    state: ServerState
    scripted: ScriptedModel


def scripted_state(
    script: Script, options: ServerOptions, context: int, prices: Path | None
) -> tuple[ServerState, ScriptedModel]:
    """A server's state over a model that says what the script says; it drafts if a file says what passes cost."""
    scripted = ScriptedModel(script=script, context_length=context)
    drafting = None if prices is None else Speculation(scripted.vocab, PassCosts(scripted, prices))
    model = Model(scripted, ByteTokenizer(), EngineConfig(max_running=options.parallel), drafting)
    state = ServerState(options)
    state.ready(Loaded((MODEL, "alias"), Path("scripted.gguf"), model, model.service(), FACTS, manners_of(model)))
    return state, scripted


def close(state: ServerState) -> None:
    """End what a state serves."""
    assert state.loaded is not None
    state.loaded.service.close()
    state.loaded.model.close()


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Start a server over a script: `served(script, context=512, parallel=2)`."""
    with ExitStack() as ends:

        def start(script: Script, *, context: int = 512, prices: Path | None = None, **options: object) -> Served:
            made = replace(ServerOptions(), **options)  # type: ignore[arg-type]
            state, scripted = scripted_state(script, made, context, prices)
            ends.callback(close, state)
            return Served(ends.enter_context(running(state)), state, scripted)

        yield start


@pytest.fixture
def serve(served: Callable[..., Served]) -> Callable[..., str]:
    """The same, giving the address only."""
    return lambda script, **options: served(script, **options).address


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
