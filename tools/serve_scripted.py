"""Serve a scripted model, which answers at once, for tools that ask a server very many questions.

Usage: serve_scripted.py PORT
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from fucina.engine.engine import EngineConfig
from fucina.engine.model import Model
from fucina.server.app import make_app
from fucina.server.manners import manners_of
from fucina.server.options import ServerOptions
from fucina.server.state import Loaded, ModelFacts, ServerState
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

FACTS = ModelFacts(family="scripted", n_parameters=0, format="F32", template="", n_bytes=0, digest="0" * 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    options = ServerOptions(port=parser.parse_args().port)
    model = Model(ScriptedModel(script=said), ByteTokenizer(), EngineConfig(max_running=options.parallel))
    state = ServerState(options)
    loaded = Loaded(("scripted",), Path("scripted.gguf"), model, model.service(), FACTS, manners_of(model))
    state.ready(loaded)
    try:
        uvicorn.run(make_app(state), port=options.port, log_level="warning")
    finally:
        loaded.service.close()
        model.close()


def said(prefix: Sequence[int]) -> int:
    """Letters, and an end in every sixth place."""
    return EOS if len(prefix) % 6 == 0 else 97 + len(prefix) % 26


if __name__ == "__main__":
    main()
