"""Small random models of any class of transformers, and calls of them: their configurations with small numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformers

VOCABULARY = 99
WORDS = 60
"""Ids from here on are those of special tokens, of images for example."""

LAYERS = {
    2: "decoder_layers depth encoder_layers n_layer n_layers num_decoder_layers num_encoder_layers num_hidden_layers num_layers",
    VOCABULARY: "entity_vocab_size vocab_size vocab_size_per_layer_input",
}
"""Small numbers of layers, and the names of what they stand for in the configurations."""

SIZES = {
    1: "first_k_dense_replace",
    2: "num_experts_per_tok num_key_value_heads top_k n_group topk_group moe_topk num_kv_heads hc_mult",
    4: "decoder_attention_heads encoder_attention_heads n_head n_heads n_routed_experts num_attention_heads num_experts num_heads "
    "num_local_experts qk_rope_head_dim num_attention_heads_per_layer rotary_dim mamba_n_heads n_mamba_heads",
    8: "d_kv head_dim kv_lora_rank qk_nope_head_dim v_head_dim state_size mamba_d_state global_head_dim hidden_size_per_layer_input "
    "attention_head_dim num_queries",
    5: "two_stage_num_proposals",
    12: "q_lora_rank max_source_positions",
    16: "mamba_headdim moe_intermediate_size shared_expert_intermediate_size mamba_d_head expert_ffn_hidden_size",
    24: "image_size max_target_positions num_mel_bins",
    6: "patch_size",
    32: "d_model dim emb_dim embed_dim hidden_size n_embd word_embed_proj_dim n_embed out_hidden_size projection_dim embedding_size "
    "upsample_groups fpn_hidden_size entity_emb_size text_hidden_size",
    48: "d_ff decoder_ffn_dim encoder_ffn_dim ffn_dim ffn_hidden_size intermediate_size n_inner hidden_dim d_inner",
    64: "attention_hidden_size max_position_embeddings n_positions max_seq_len n_ctx",
}  # fmt: skip
"""The same of everything else."""

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
TIMES = {"prediction_length": 4, "context_length": 16, "num_time_features": 2, "lags_sequence": [1, 2, 3]}
VOCODER = {
    "upsample_initial_channel": 32,
    "unit_embed_dim": 16,
    "lang_embed_dim": 8,
    "spkr_embed_dim": 8,
    "unit_hifi_gan_vocab_size": 60,
}
CODEC = {"num_filters": 4, "downsampling_ratios": [2, 5], "depths": [1, 1, 1]}
PARTICULAR: dict[str, dict[str, Any]] = {
    "autoformer": TIMES | {"label_length": 4, "moving_average": 5},
    "blt_local_decoder": {"hidden_size_global": 32},
    "blt_local_encoder": {"hidden_size_global": 32},
    "blt": {"encoder_hash_byte_group_vocab": 50, "vocab_size": 260},
    "chameleon": {"vocabulary_map": {"<image>": 90} | {f"IMGIMGBS{letter}Z": 60 + place for place, letter in enumerate("ABCDEFGHIJ")}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "glm4v_moe_text": {"head_dim": 16},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "2/4"},
    "blip_2_qformer": {"cross_attention_frequency": 1},
    "informer": TIMES | {"sampling_factor": 6},
    "kimi_linear": {"num_expert_group": 1, "topk_group": 1, "num_experts_per_token": 2},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "rwkv": {"attention_hidden_size": 32, "hidden_size": 32},
    "time_series_transformer": TIMES,
    "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "num_hidden_layers": 3},
    "zaya": {"num_experts_per_tok": 1},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_theta": 10000.0, "rope_type": "default"}}},
    **{name: {"window_size": 2, "patch_size": 2} for name in ("donut-swin", "swin", "swinv2")},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "align": {"projection_dim": 64},
    "align_vision_model": {"image_size": 64, "width_coefficient": 0.2, "depth_coefficient": 0.2},
    "bailing_hybrid": {"num_expert_group": 2, "topk_group": 1, "num_experts_per_token": 2},
    "blip-2": {"image_token_id": 90},
    "bridgetower_vision_model": {"hidden_size": 64},
    "cpmant": {"init_std": 0.1},
    "dac": {"encoder_hidden_size": 4, "decoder_hidden_size": 64, "codebook_size": 64},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "dots3_note_text": {"per_layer_config": {}, "num_key_value_heads": 4},
    "efficientnet": {"image_size": 64, "width_coefficient": 0.2, "depth_coefficient": 0.2},
    "emu3": {"vocabulary_map": {"<image>": 90, "<|extra_200|>": 91} | {f"<|visual token {place:06d}|>": 60 + place for place in range(9)}},
    "eomt": {"num_blocks": 1},
    "esm": {"vocab_size": VOCABULARY, "mask_token_id": 3, "position_embedding_type": "rotary"},
    "falcon_h1": {"mamba_d_ssm": 64},
    "fastspeech2_conformer_hifigan": {"model_in_dim": 24},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granite_speech5_encoder": {"context_size": 16},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "instructblip": {"image_token_id": 90},
    "instructblipvideo": {"video_token_id": 90},
    "janus_vqgan": {"base_channels": 32, "channel_multiplier": [1, 2], "latent_channels": 32},
    "kosmos-2": {"latent_query_num": 4},
    "kyutai_speech_to_text": {"codebook_vocab_size": WORDS, "num_codebooks": 2},
    "mamba2": {"num_heads": 8},
    "molmo2_adapter": {"vision_feature_layer": [1, 0]},
    "muse_spark_audio": {"num_hidden_layers": 2, "patch_sizes": [4, 5], "hidden_sizes": [16, 32], "depths": [1, 1]},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron3_5_transcribe_asr_audio": {"num_key_value_heads": 4},
    "nemotron3_5_transcribe_word_timestamp": {"num_key_value_heads": 4},
    "nemotron3_diarization_audio": {"num_key_value_heads": 4},
    "perceiver": {"d_latents": 32, "num_latents": 8, "num_self_attends_per_block": 2, "num_cross_attention_heads": 4},
    "pp_ocrv5_mobile_rec": {"image_size": [48, 96]},
    "pp_ocrv5_server_rec": {"image_size": [48, 96]},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 80, "vision_end_token_id": 81, "audio_start_token_id": 82},
    "qwen3_asr_encoder": {"max_source_positions": 50},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 80, "vision_end_token_id": 81, "audio_start_token_id": 82},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 4, "indexer_compress_ratio": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "rf_detr_dinov2": {"num_windows": 2},
    "seamless_m4t": VOCODER,
    "seamless_m4t_v2": VOCODER,
    "step3p7_text": {"sliding_window": 8},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "vibevoice_acoustic_tokenizer": CODEC,
    "vibevoice_acoustic_tokenizer_decoder": CODEC,
    "vibevoice_acoustic_tokenizer_encoder": CODEC,
    "florence_vision": {"embed_dim": [16, 32, 48, 64], "num_groups": [2, 2, 2, 2], "window_size": 2, "projection_dim": 32},
    "sam2_hiera_det_model": {
        "image_size": [64, 64],
        "window_positional_embedding_background_size": [4, 4],
        "blocks_per_stage": [1, 1, 2, 1],
        "embed_dim_per_stage": [16, 32, 48, 64],
        "hidden_size": 16,
        "num_attention_heads_per_stage": [2, 2, 2, 2],
        "window_size_per_stage": [4, 4, 2, 2],
        "global_attention_blocks": [3],
    },
    "sam2_vision_model": {
        "backbone_channel_list": [64, 48, 32, 16],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    },
    "vjepa2": {"crop_size": 24, "frames_per_clip": 4, "pred_hidden_size": 32, "pred_num_attention_heads": 4, "pred_num_hidden_layers": 2},
    "xmod": {"default_language": "en_XX"},
}  # fmt: skip
"""What some configurations lack by default, or want to have in common, by their model_type."""
LISTS = {"deepstack_visual_indexes": [0], "fullatt_block_indexes": [1]}
"""Numbers of layers in lists."""


def small_model(name: str, sizes: bool = True) -> torch.nn.Module:
    """A small model of this class, with the same random weights every time; see `small_config`.

    Matrices that begin with equal numbers are random too: a router of zeros chooses among equal experts.
    """
    cls = getattr(transformers, name)
    config = small_config(cls.config_class, sizes)
    if name.endswith(("ForCausalLM", "LMHead", "LMHeadModel")) and hasattr(config, "is_decoder"):
        config.is_decoder = True
    torch.manual_seed(0)
    model = cls(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and weight.is_floating_point() and not weight.is_meta and weight.std() == 0:
                weight.normal_(0.0, 0.02)
    return model


def small_config(cls: type, sizes: bool = True, kept: dict[str, Any] | None = None) -> Any:
    """A configuration with small numbers, in its parts too; without *sizes* only few layers, and the rest as it is by default.

    *kept* is what the whole wants its part to have.
    """
    default = cls()
    known = default.to_dict()
    parts = {
        name: small_config(
            type(part),
            sizes,
            {kept: getattr(part, kept) for kept in ("out_features",) if hasattr(part, kept)},
        )
        for name, part in vars(default).items()
        if isinstance(part, transformers.PretrainedConfig) and not name.startswith("_")
    }
    tables = (LAYERS, SIZES) if sizes else (LAYERS,)
    numbers = {name: size for table in tables for size, names in table.items() for name in names.split()}
    given = {
        name: size
        for name, size in (numbers | SPECIAL).items()
        if known.get(name) is not None and isinstance(known[name], (int, float))
    }
    given |= {name: value for name, value in SPECIAL.items() if name in known}
    given |= {name: value for name, value in LISTS.items() if known.get(name)}
    markers = [name for name, value in known.items() if is_marker(name, value)]
    given |= {name: VOCABULARY - 1 - place for place, name in enumerate(markers)}
    for name in ("layer_types", "layers_block_type"):
        kinds = list(dict.fromkeys(known.get(name) or ()))
        if kinds and "num_hidden_layers" in given:
            kinds = kinds * 2 if len(kinds) == 1 else kinds
            given |= {name: kinds, "num_hidden_layers": len(kinds)}
    if sizes and "qk_rope_head_dim" in known:
        given |= {name: 4 for name in ("head_dim", "num_key_value_heads") if name in known}
    if isinstance(known.get("image_size"), int):
        given["image_size"] = 24 if sizes else min(128, known["image_size"])
    if "depths" in known:
        given |= stages(known)
        given.pop("patch_size", None)
    if sizes and {"mrope_section", "rope_theta"} & set(known.get("rope_parameters") or ()):
        given["rope_parameters"] = known["rope_parameters"] | {"mrope_section": [1, 1, 2]}
    kept = dict(kept or {})
    if "out_features" in kept and "depths" not in known and "num_hidden_layers" in given:
        kept["out_features"] = last_stages(kept["out_features"], given["num_hidden_layers"])
    if "moe_layer_start_index" in known:
        given["moe_layer_start_index"] = 0
    if sizes and "head_dim" in known:
        given.setdefault("head_dim", numbers["head_dim"])
    return cls(**(given | parts | kept | (PARTICULAR.get(cls.model_type, {}) if sizes else {})))


def last_stages(wanted: list[str], layers: int) -> list[str]:
    """The layers of a backbone whose results are used: as many of the last ones as it is by default, as far as there are."""
    return [f"stage{layer}" for layer in range(1, layers + 1)][-len(wanted) :]


def stages(known: dict[str, Any]) -> dict[str, Any]:
    """The entries of a model whose images shrink from stage to stage: one layer each."""
    count = len(known["depths"])
    given = {"depths": [1] * count, "image_size": 64, "num_heads": [2] * count}
    return {
        name: value
        for name, value in given.items()
        if name == "depths" or type(known.get(name)) is type(value)
    }


def is_marker(name: str, value: Any) -> bool:
    """Whether an entry of a configuration is the id of a special token that a small vocabulary lacks."""
    return name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= WORDS


# ---- calls


def inputs_of(
    model: torch.nn.Module, batch: int, length: int, size: int | None = None, form: str = ""
) -> dict[str, Any]:
    """Random inputs of a call in one of the `FORMS`, by default that of the model's main input.

    *batch* rows of *length* tokens, the first row padded on the left, images of *size*, the configuration's when it is None.
    Raises ValueError when the model does not take this form.
    """
    default = {"pixel_values": "images", "input_features": "spectrograms"}
    media = FORMS[form or default.get(model.main_input_name, "text")](model, batch, length, size)
    accepted = inspect.signature(model.forward).parameters
    unknown = sorted(set(media) - set(accepted))
    inputs: dict[str, Any] = {}
    if "input_ids" in accepted:
        inputs |= with_places(model, texts(model, batch, length), media)
    elif "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = torch.randint(3, WORDS, (batch, length - 2))
    inputs |= media
    required = [name for name, parameter in accepted.items() if parameter.default is parameter.empty]
    inputs |= {
        name: NEEDED[name](model, batch, length) for name in required if name in NEEDED.keys() - inputs
    }
    if unknown or not inputs:
        raise ValueError(f"the model does not take {unknown or 'text'}")
    return inputs


def texts(model: torch.nn.Module, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Ids and their mask, those of the decoder too."""
    rows = batch * (model.config.num_codebooks if model.config.model_type.startswith("musicgen") else 1)
    codes = [model.config.num_codebooks + 1] if model.config.model_type == "kyutai_speech_to_text" else []
    ids = torch.randint(3, WORDS, (rows, length, *codes))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, :2] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    accepted = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = torch.randint(3, WORDS, (batch, length - 2))
    if "bbox" in accepted:
        inputs["bbox"] = torch.randint(0, 20, (batch, length, 2)).repeat(1, 1, 2)
    return {name: value for name, value in inputs.items() if name in accepted}


def with_places(
    model: torch.nn.Module, text: dict[str, torch.Tensor], media: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The text with a place for every feature of its images, and the positions where the model reads them from lists."""
    marker = part(model.config, None, "image_token_id", "image_token_index")
    if marker is None or "pixel_values" not in media:
        return text
    owner = model if hasattr(model, "get_image_features") else model.model
    features = owner.get_image_features(**media)
    features = getattr(features, "pooler_output", features)
    features = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    ids, mask = text["input_ids"], text["attention_mask"]
    places = torch.full((len(ids), features.numel() // features.shape[-1] // len(ids)), marker)
    text |= {"input_ids": torch.cat([ids[:, :4], places, ids[:, 4:]], 1)}
    text |= {"attention_mask": torch.cat([mask[:, :4], torch.ones_like(places), mask[:, 4:]], 1)}
    rope = getattr(getattr(model, "model", model), "get_rope_index", None)
    if rope is not None and "image_grid_thw" in media:
        given = text | {"mm_token_type_ids": (text["input_ids"] == marker).int()} | media
        known = inspect.signature(rope).parameters
        text["position_ids"] = rope(**{name: given[name] for name in given if name in known})[0]
    return text


def part(config: Any, default: Any, *names: str) -> Any:
    """An entry of a configuration or of its parts, the first that there is."""
    parts = [
        getattr(config, name, None)
        for name in ("vision_config", "audio_config", "encoder_config", "backbone_config")
    ]
    for owner in (config, *parts):
        for name in names:
            value = getattr(owner, name, None)
            if value is not None:
                return value
    return default


def pictures(model: torch.nn.Module, batch: int, size: int | None) -> torch.Tensor:
    """Images, square ones by default."""
    known = part(model.config, 64, "image_size", "img_size", "crop_size")
    if isinstance(known, dict):
        known = [known["height"], known["width"]]
    height, width = known if isinstance(known, (list, tuple)) else (known, known)
    channels = part(model.config, 3, "num_channels", "in_channels", "in_chans")
    return torch.randn(batch, channels, height + (size or 0), width + (size or 0))


def videos(model: torch.nn.Module, batch: int, size: int | None) -> torch.Tensor:
    """Square images, several of them in a row."""
    frames = part(model.config, 4, "num_frames", "frames_per_clip")
    return torch.stack([pictures(model, batch, size) for _ in range(frames)], 1)


def patches(model: torch.nn.Module, batch: int, size: int | None) -> dict[str, torch.Tensor]:
    """The patches of each image, and how many there are in a column and in a row."""
    side, channels = part(model.config, 16, "patch_size"), part(model.config, 3, "num_channels")
    rows = 6 if size else 4
    return {
        "pixel_values": torch.randn(batch, rows * 4, channels * side * side),
        "pixel_attention_mask": torch.ones(batch, rows * 4, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[rows, 4]] * batch),
    }


def packed(model: torch.nn.Module, batch: int, size: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The patches of all images, one after the other, and the rows and columns of each."""
    patch, frames = (
        part(model.config, 14, "patch_size"),
        part(model.config, 1, "temporal_patch_size", "patch_temporal"),
    )
    channels = part(model.config, 3, "num_channels", "in_channels", "in_chans")
    grid = torch.tensor([[1, 4, 8 if size else 4]] * batch)
    return torch.randn(int(grid.prod(1).sum()), channels * frames * patch * patch), grid


def spectrogram(model: torch.nn.Module, batch: int, length: int) -> torch.Tensor:
    """Frames of sounds, as long as the model wants them."""
    bins = part(
        model.config,
        80,
        "num_mel_bins",
        "feature_size",
        "input_feat_per_channel",
        "feature_projection_input_dim",
    )
    frames = part(model.config, 8 * length, "max_source_positions")
    return torch.randn(batch, bins, frames if frames == 8 * length else 2 * frames)


def series(model: torch.nn.Module, batch: int) -> dict[str, torch.Tensor]:
    """Time series with their features."""
    config = model.config
    steps = config.context_length + max(config.lags_sequence)
    return {
        "past_values": torch.randn(batch, steps),
        "past_time_features": torch.randn(batch, steps, config.num_time_features),
        "past_observed_mask": torch.ones(batch, steps),
        "future_values": torch.randn(batch, config.prediction_length),
        "future_time_features": torch.randn(batch, config.prediction_length, config.num_time_features),
    }


def several(model: torch.nn.Module, batch: int) -> torch.Tensor:
    """Time series of several channels."""
    return torch.randn(batch, model.config.context_length, part(model.config, 1, "num_input_channels"))


def features(name: str) -> Callable[[torch.nn.Module, int, int], torch.Tensor]:
    """Random vectors of the width that the configuration has under this name, by default its hidden_size."""
    return lambda model, batch, length: torch.randn(
        batch, length, part(model.config, None, name, "hidden_size")
    )


NEEDED: dict[str, Callable[[torch.nn.Module, int, int], Any]] = {
    "action_embeds": lambda model, batch, length: torch.randn(
        batch, length, model.config.dit_config.hidden_size
    ),
    "encoder_hidden_states": features("encoder_hidden_size"),
    "hidden_states": features("hidden_size"),
    "inputs_embeds": features("hidden_size"),
    "input_features_mask": lambda model, batch, length: torch.ones(batch, 8 * length, dtype=torch.int64),
    "merge_sizes": lambda model, batch, length: torch.full((batch,), 2),
    "prompt_masks": lambda model, batch, length: pictures(model, batch, None),
    "prompt_pixel_values": lambda model, batch, length: pictures(model, batch, None),
    "query_embeds": features("hidden_size"),
    "inputs": features("d_model"),
    "freq": lambda model, batch, length: torch.zeros(batch, 1, dtype=torch.int64),
    "past_values_padding": lambda model, batch, length: torch.zeros(
        batch, model.config.context_length, dtype=torch.int64
    ),
    "qformer_input_ids": lambda model, batch, length: torch.randint(3, WORDS, (batch, length)),
    "state": lambda model, batch, length: torch.randn(batch, part(model.config, 32, "max_state_dim")),
    "visual_feats": features("visual_feat_dim"),
    "visual_pos": features("visual_pos_dim"),
}
"""What forward wants and has no default for."""

FORMS: dict[str, Callable[[torch.nn.Module, int, int, int | None], dict[str, Any]]] = {
    "packed images": lambda model, batch, length, size: dict(
        zip(("pixel_values", "image_grid_thw"), packed(model, batch, size))
    ),
    "packed patches": lambda model, batch, length, size: dict(
        zip(("pixel_values", "grid_thw"), packed(model, batch, size))
    ),
    "patches": lambda model, batch, length, size: dict(
        zip(("hidden_states", "grid_thw"), packed(model, batch, size))
    ),
    "images": lambda model, batch, length, size: {"pixel_values": pictures(model, batch, size)},
    "lists of images": lambda model, batch, length, size: {"pixel_values": pictures(model, batch, size)[:, None]},
    "pairs of images": lambda model, batch, length, size: {
        "pixel_values": torch.stack([pictures(model, batch, size) for _ in range(2)], 1)
    },
    "videos": lambda model, batch, length, size: {"pixel_values": videos(model, batch, size)},
    "videos by name": lambda model, batch, length, size: {"pixel_values_videos": videos(model, batch, size)},
    "patches of images": lambda model, batch, length, size: patches(model, batch, size),
    "places of images": lambda model, batch, length, size: {
        "pixel_values": pictures(model, batch, size),
        "image_embeds_position_mask": (torch.arange(length) < part(model.config, 4, "latent_query_num")).long().expand(batch, -1),
    },
    "lists of images with a mask": lambda model, batch, length, size: {
        "pixel_values": pictures(model, batch, size)[:, None],
        "image_attention_mask": torch.ones(batch, length, 1, dtype=torch.int64),
    },
    "features of images": lambda model, batch, length, size: {
        "visual_feats": torch.randn(batch, 5, model.config.visual_feat_dim),
        "visual_pos": torch.rand(batch, 5, model.config.visual_pos_dim),
    },
    "images of sizes": lambda model, batch, length, size: {
        "pixel_values": (images := pictures(model, batch, size)),
        "image_sizes": torch.tensor([images.shape[2:]] * batch),
    },
    "spectrograms": lambda model, batch, length, size: {"input_features": spectrogram(model, batch, length)},
    "spectrograms by frame": lambda model, batch, length, size: {
        "input_features": spectrogram(model, batch, length).mT
    },
    "spectrograms with a mask": lambda model, batch, length, size: {
        "input_features": (frames := spectrogram(model, batch, length)),
        "input_features_mask": torch.ones(batch, frames.shape[-1], dtype=torch.int64),
    },
    "spectrograms by frame with a mask": lambda model, batch, length, size: {
        "input_features": (frames := spectrogram(model, batch, length).mT),
        "input_features_mask": torch.ones(batch, frames.shape[1], dtype=torch.int64),
    },
    "spectrograms in a channel": lambda model, batch, length, size: {
        "input_features": spectrogram(model, batch, length).mT[:, None]
    },
    "spectrograms as values": lambda model, batch, length, size: {
        "input_values": torch.randn(batch, part(model.config, 64, "max_length"), model.config.num_mel_bins)
    },
    "spectrograms with padding": lambda model, batch, length, size: {
        "audio_mel": torch.randn(batch, 8 * length, model.config.input_feat_size),
        "audio_mel_mask": torch.arange(8 * length).expand(batch, -1) >= 8 * length - 3,
    },
    "states of an encoder": lambda model, batch, length, size: {
        "encoder_hidden_states": features("encoder_hidden_size")(model, batch, 5)
    },
    "decisions": lambda model, batch, length, size: {
        "states": torch.randn(batch, length, model.config.state_dim),
        "actions": torch.randn(batch, length, model.config.act_dim),
        "returns_to_go": torch.randn(batch, length, 1),
        "timesteps": torch.arange(length).expand(batch, -1),
        "attention_mask": torch.ones(batch, length, dtype=torch.int64),
    },
    "sounds": lambda model, batch, length, size: {"input_values": torch.randn(batch, 400 * length)},
    "channels of sounds": lambda model, batch, length, size: {"input_values": torch.randn(batch, 1, 400 * length)},
    "time series": lambda model, batch, length, size: series(model, batch),
    "several time series": lambda model, batch, length, size: {"past_values": several(model, batch)},
    "text": lambda model, batch, length, size: {},
}  # fmt: skip
"""What a model takes besides text, by what it is."""
