"""Make the logits that tests/models/test_golden_logits.py compares with: tiny seeded models run by transformers.

Run it where torch, transformers and gguf are installed, with this repository's src on PYTHONPATH:

    PYTHONPATH=src python tests/golden/make_logits.py [NAME ...]

Each case of logits.json becomes a tiny GGUF; its tensors are read back with the gguf package and loaded into the
transformers model that they came from (q and k of llama un-permuted, 1 taken off gemma3's norms, gate and up of experts
joined), and run in float32 on one thread: once as it is, once with keys (after the rotation) and values rounded to half
floats on their way into attention, as a half-precision KV cache does. Written per case: logits-NAME.npz with ids (n,),
logits (n, vocab) of the plain run, and half, the rows 0, 8, 16, ... of the rounded run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fucina.core.formats import F32
from fucina.testing.gguf_writer import write_gguf
from fucina.testing.tiny_gguf import FAMILIES, tiny_metadata, tiny_weights

HERE = Path(__file__).parent
STRIDE = 8
MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "qwen2moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
    "qwen3moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
GEMMA_NAMES = {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm"}
GEMMA_NAMES["post_ffw_norm"] = "post_feedforward_layernorm"


def half_precision_cache(
    module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **more: Any
) -> Any:
    """Attention over keys and values as a half-precision cache gives them back."""
    return sdpa_attention_forward(module, q, k.half().float(), v.half().float(), *rest, **more)


def case_files(case: dict[str, Any], folder: Path) -> Path:
    """The case's tiny GGUF, by the same recipe as in the test."""
    shape = FAMILIES[case["family"]]()
    shape = type(shape)(**{**{f: getattr(shape, f) for f in shape.__dataclass_fields__}, **case["overrides"]})
    weights = tiny_weights(shape, case["seed"])
    if "rope_factors" in case:
        weights["rope_freqs.weight"] = np.array(case["rope_factors"], np.float32)
    tensors = {name: (array, F32) for name, array in weights.items()}
    return write_gguf(folder / "tiny.gguf", tiny_metadata(case["family"], shape), tensors)


def read_back(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metadata without the family's prefix, and tensors (d_out, d_in), through the gguf package."""
    reader = gguf.GGUFReader(path)
    family = reader.fields["general.architecture"].contents()
    metadata = {name.removeprefix(f"{family}."): field.contents() for name, field in reader.fields.items()}
    return metadata, {t.name: np.array(t.data, np.float32) for t in reader.tensors}


def build(case: dict[str, Any], metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> torch.nn.Module:
    """The transformers model with these tensors; `case["transformers"]` says in its words what metadata say in ours.

    `case["model"]` names it where that is not the family.
    """
    family = case["family"]
    config_class, model_class = MODELS[case.get("model", family)]
    config = config_class(
        vocab_size=len(tensors["token_embd.weight"]),
        hidden_size=metadata["embedding_length"],
        intermediate_size=metadata["feed_forward_length"],
        num_hidden_layers=metadata["block_count"],
        num_attention_heads=metadata["attention.head_count"],
        num_key_value_heads=metadata["attention.head_count_kv"],
        head_dim=metadata["attention.key_length"],
        max_position_embeddings=metadata["context_length"],
        rms_norm_eps=metadata["attention.layer_norm_rms_epsilon"],
        tie_word_embeddings="output.weight" not in tensors,
        **expert_sizes(metadata),
        **case["transformers"],
    )
    model = model_class(config).eval()
    state = join_experts(tensors)
    tensors = {name: tensor for name, tensor in tensors.items() if "_exps." not in name}
    state |= {translate(name, family): torch.from_numpy(back(name, t, family, metadata)) for name, t in tensors.items()}
    state.pop("", None)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


def expert_sizes(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a configuration says of experts; each family picks out its own."""
    if "expert_count" not in metadata:
        return {}
    sizes = {
        "num_experts": metadata["expert_count"],
        "num_local_experts": metadata["expert_count"],
        "num_experts_per_tok": metadata["expert_used_count"],
        "moe_intermediate_size": metadata.get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": metadata.get("expert_shared_feed_forward_length"),
    }
    return {key: value for key, value in sizes.items() if value is not None}


def join_experts(tensors: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Stacked experts as transformers has them: gate above up, and down."""
    state = {}
    for name, gate in tensors.items():
        if not name.endswith("ffn_gate_exps.weight"):
            continue
        stem, experts = name.removesuffix("ffn_gate_exps.weight"), f"model.layers.{name.split('.')[1]}.mlp.experts"
        both = np.concatenate([gate, tensors[f"{stem}ffn_up_exps.weight"]], axis=1)
        state[f"{experts}.gate_up_proj"] = torch.from_numpy(both)
        state[f"{experts}.down_proj"] = torch.from_numpy(tensors[f"{stem}ffn_down_exps.weight"])
    return state


def translate(name: str, family: str) -> str:
    """A GGUF tensor name in the words of transformers; '' for a tensor that it computes itself."""
    if name == "rope_freqs.weight":
        return ""
    names = {**NAMES, **(GEMMA_NAMES if family == "gemma3" else {})}
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, stem = stem.split(".")
        return f"model.layers.{layer}.{names[stem]}.{kind}"
    return f"{names[stem]}.{kind}"


def back(name: str, tensor: np.ndarray, family: str, metadata: dict[str, Any]) -> np.ndarray:
    """Undo what converters do to a tensor on its way into a GGUF."""
    if name.endswith("ffn_gate_inp_shexp.weight"):
        return tensor[None]
    if family == "gemma3" and name.endswith("norm.weight"):
        return tensor - np.float32(1)
    for part, key in (("attn_q.", "attention.head_count"), ("attn_k.", "attention.head_count_kv")):
        if family == "llama" and part in name:
            pairs = tensor.reshape(metadata[key], -1, 2, *tensor.shape[1:])
            return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(tensor.shape))
    return tensor


def main() -> None:
    """All cases, or those named."""
    torch.set_num_threads(1)
    AttentionInterface.register("half_precision_cache", half_precision_cache)
    transformers.AttentionMaskInterface.register(
        "half_precision_cache", transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
    )
    cases = json.loads((HERE / "logits.json").read_text())
    for name, case in cases.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            metadata, tensors = read_back(case_files(case, Path(folder)))
        ids = np.random.default_rng(case["seed"]).integers(0, len(tensors["token_embd.weight"]), case["positions"])
        model = build(case, metadata, tensors)
        logits, half = run(model, ids, "sdpa"), run(model, ids, "half_precision_cache")
        moved = float(np.abs(logits - half).max())
        np.savez_compressed(HERE / f"logits-{name}.npz", ids=ids.astype(np.int32), logits=logits, half=half[::STRIDE])
        print(f"{name}: largest logit {np.abs(logits).max():.2f}, a half-precision cache moves logits by {moved:.1e}")


def run(model: torch.nn.Module, ids: np.ndarray, attention: str) -> np.ndarray:
    """Logits of all positions, (n, vocab) f32."""
    model.config._attn_implementation = attention
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None]).logits[0].numpy()


if __name__ == "__main__":
    main()
