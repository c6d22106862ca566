"""From a file to a model that talks: the one place that puts the rooms together."""

from __future__ import annotations

import json
from functools import partial
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Unpack

from fucina.core.cpu import available_memory_bytes, processor_name, usable_cpus
from fucina.core.settings import Settings
from fucina.core.units import byte_count
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.engine.engine import EngineConfig
from fucina.engine.experts import ExpertOptions, expert_top_p, stream_options
from fucina.engine.kv_plan import KvPlan, kv_plan
from fucina.engine.model import Model
from fucina.engine.pass_costs import PassCosts
from fucina.engine.speculation import Speculation
from fucina.engine.speech import ModelSpeech
from fucina.models.fingerprint import model_fingerprint
from fucina.models.loader import DecoderLM, load_causal_lm, memory_needed
from fucina.models.streaming import expect_dense
from fucina.ops.choose import open_ops
from fucina.ops.seam import Ops
from fucina.storage.experts.options import StreamOptions
from fucina.storage.gguf import GgufFile, open_gguf
from fucina.storage.kv.disk.tier import DiskTier
from fucina.storage.kv.pool import KvPool
from fucina.storage.kv.prefix import PrefixCache
from fucina.storage.models import Progress, resolve_model
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

#: A pass takes at least so many rows, so that small prompt chunks do not narrow batches.
_LEAST_ROWS = 64
#: Counts up when kernels become faster, so that prices measured with the old ones are measured again.
_KERNELS = 1


def load(
    model: str | PathLike[str],
    *,
    threads: int | None = None,
    tier: str | None = None,
    backend: str | None = None,
    context: int | None = None,
    kv_format: str = "f16",
    prefill_chunk: int = 512,
    max_running: int | None = None,
    repack: bool | None = None,
    kv_memory: int | str | None = None,
    kv_cache_dir: str | PathLike[str] | None = None,
    kv_disk: int | str = "8G",
    speculation: bool | SpeculationOptions = True,
    progress: Progress | None = None,
    **experts: Unpack[ExpertOptions],
) -> Model:
    """Load a model: the path of a GGUF file, or a name such as 'smollm2', which is fetched on first use.

    threads        of arithmetic; None: as many as this process may use.
    tier, backend  of instructions, and 'native' or 'reference' (NumPy); None: the fastest there is.
    context        tokens of a prompt and its answer together; None: what the model was made for.
    kv_format      of the cache: 'f16'; 'q8_0', about half the memory; 'f32', twice the memory and nothing rounded.
    prefill_chunk  prompt tokens computed in one pass; fewer beside answers that are being written, so that a pass takes
                   at most 2.2 times as long for them. Like threads, tier and backend 'native' it changes speed only.
    max_running    requests computed at once; more wait. None: as many as a pass has rows.
    repack         weights into the layout that the tier computes fastest from; False: read them from the mapped file,
                   which saves their copy and is slower. The same bits. None: as FUCINA_NO_REPACK says.
    kv_memory      bytes, or a size such as '4G', for keys and values, of running requests and of what is kept for those
                   to come; None: for four sequences of full length, within half of what is free.
    kv_cache_dir   a folder where keys and values go that memory has no room for, and where the next process finds them.
                   Made if it is not there, readable by you alone; models and processes may share it.
    kv_disk        bytes, or a size, that may be stored there, all models together.
    speculation    drafts tokens and verifies them together where that is faster; the same text. Options: a gate of
                   one's own. The first answer on a machine measures for half a second what verifying costs there.
    progress       called now and then while the file is fetched and loaded: progress(what, done_bytes, total_bytes).
    experts        how those of a mixture are held: see ExpertOptions.

    Raises CannotRewind (a ConfigError: a family whose cache cannot be cut back, loaded without speculation=False),
    UnknownModel, PullError, ModelFileError, UnsupportedModel, ConfigError and CapacityError.
    """
    config = EngineConfig(context=context, prefill_chunk=prefill_chunk, max_running=max_running)
    gguf = open_gguf(resolve_model(Path(model) if isinstance(model, PathLike) else model, progress=progress))
    speech = _speech(gguf)
    ops = open_ops(max_rows=max(prefill_chunk, _LEAST_ROWS), threads=threads, tier=tier, backend=backend, repack=repack)
    stream, top_p = _stream(gguf, experts), expert_top_p(experts)
    kv = _kv_plan(gguf, context, kv_format, kv_memory, streamed=stream is not None)
    bind = partial(load_causal_lm, gguf, ops, stream=stream, expert_top_p=top_p, progress=progress)
    causal = bind(context=context, kv_format=kv_format, kv_capacity_blocks=kv.n_blocks)
    identity = model_fingerprint(gguf, ops.name, expert_top_p=top_p)
    prefixes = _prefixes(identity, causal.kv_pool, kv_cache_dir, kv_disk)
    drafting = _drafting(causal, speculation, _costs(gguf, causal, ops, kv_format, threads, repack))
    return Model(causal, speech, config, drafting, prefixes, kv.rule, causal.experts, causal.left_out)


def _speech(gguf: GgufFile) -> ModelSpeech:
    tokenizer = Tokenizer.from_metadata(gguf.metadata, path=gguf.path)
    return ModelSpeech(tokenizer, ChatTemplate.from_metadata(gguf.metadata, tokenizer.vocabulary, path=gguf.path))


def _drafting(model: DecoderLM, given: bool | SpeculationOptions, costs: PassCosts) -> Speculation | None:
    if given is False:
        return None
    return Speculation(model.vocab, costs, given if isinstance(given, SpeculationOptions) else None)


def _costs(
    gguf: GgufFile, model: DecoderLM, ops: Ops, kv_format: str, threads: int | None, repack: bool | None
) -> PassCosts:
    """What passes cost with this model here: the file depends on all that their time does."""
    settings = Settings.from_environment()
    held = [] if model.experts is None else [model.experts.stats().memory_bytes]  # how many experts are at hand
    used = [] if model.left_out is None else [("top_p", model.left_out.top_p)]
    machine = (
        processor_name(),
        usable_cpus(),
        threads or settings.threads,
        ops.name,
        repack,
        settings.repack,
        *held,
        *used,
    )
    file = settings.home / "costs" / f"{_fingerprint(gguf, kv_format, *machine)}.json"
    return PassCosts(model, file, streamed=model.experts is not None)


def _stream(gguf: GgufFile, given: ExpertOptions) -> StreamOptions | None:
    """How experts are read; if they are, the kernel begins to read all else."""
    options = stream_options(gguf, given)
    if options is not None:
        expect_dense(gguf)
    return options


def _kv_plan(
    gguf: GgufFile, context: int | None, kv_format: str, kv_memory: int | str | None, *, streamed: bool
) -> KvPlan:
    free = available_memory_bytes()
    if streamed and free is not None:
        free //= 2  # the other half is for experts
    return kv_plan(memory_needed(gguf, context, kv_format=kv_format), kv_memory, free)


def _prefixes(identity: bytes, pool: KvPool, folder: str | PathLike[str] | None, capacity: int | str) -> PrefixCache:
    """What keeps keys and values for prompts to come, and where they go that memory has no room for."""
    if folder is None:
        return PrefixCache(pool, identity)
    return PrefixCache(
        pool, identity, DiskTier(Path(folder).expanduser(), pool, identity, byte_count(capacity, "kv_disk"))
    )


def _fingerprint(gguf: GgufFile, *machine: object) -> str:
    """A name for all that the time of a pass depends on: the weights' shapes and formats, and the machine."""
    weights = sorted((name, weight.format.name, *weight.shape) for name, weight in gguf.weights.items())
    return blake2b(json.dumps([_KERNELS, weights, machine]).encode(), digest_size=16).hexdigest()
