"""Small random models of any class of transformers, and calls of them: their configurations with small numbers."""

from __future__ import annotations

from typing import Any

import torch
import transformers

VOCABULARY = 99

SIZES = {
    2: "decoder_layers encoder_layers n_layer n_layers num_decoder_layers num_experts_per_tok num_hidden_layers num_key_value_heads "
    "num_layers num_encoder_layers top_k n_group topk_group first_k_dense_replace moe_topk num_kv_heads",
    4: "decoder_attention_heads encoder_attention_heads n_head n_heads n_routed_experts num_attention_heads num_experts num_heads "
    "num_local_experts qk_rope_head_dim num_attention_heads_per_layer",
    8: "d_kv head_dim kv_lora_rank qk_nope_head_dim v_head_dim state_size mamba_d_state",
    12: "q_lora_rank max_source_positions",
    16: "moe_intermediate_size shared_expert_intermediate_size embedding_size mamba_d_head expert_ffn_hidden_size",
    24: "image_size max_target_positions num_mel_bins",
    6: "patch_size",
    32: "d_model dim emb_dim embed_dim hidden_size n_embd word_embed_proj_dim n_embed",
    48: "d_ff decoder_ffn_dim encoder_ffn_dim ffn_dim ffn_hidden_size intermediate_size n_inner hidden_dim d_inner",
    64: "max_position_embeddings n_positions max_seq_len n_ctx",
    VOCABULARY: "vocab_size",
}  # fmt: skip
"""Small numbers, and the names of what they stand for in the configurations."""

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def small_model(name: str) -> torch.nn.Module:
    """A small model of this class, with the same random weights every time."""
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    return cls(small_config(cls.config_class)).eval()


def small_config(cls: type) -> Any:
    """A configuration with small numbers."""
    known = cls().to_dict()
    numbers = {name: size for size, names in SIZES.items() for name in names.split()}
    given = {name: size for name, size in (numbers | SPECIAL).items() if known.get(name) is not None}
    given |= {name: value for name, value in SPECIAL.items() if name in known}
    if "moe_layer_start_index" in known:
        given["moe_layer_start_index"] = 0
    return cls(**given)


def inputs_of(model: torch.nn.Module, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Random inputs of a call: *batch* rows of *length* tokens, the first row padded on the left; or images."""
    config = model.config
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(batch, config.num_channels, config.image_size, config.image_size)}
    ids = torch.randint(3, VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.main_input_name == "input_features":
        inputs = {"input_features": torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, VOCABULARY, (batch, length - 2))
    return inputs
