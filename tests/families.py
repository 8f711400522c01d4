"""Architectures that torch.export refuses, or keeps at the sizes of the example, without the patches: vision and language, codecs, states."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.architectures import DECODER, VOCABULARY, Architecture, architecture, mask, text_encoder, tokens

IMAGE = 90
TEXT_OF_IMAGES = DECODER | {
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
}
TOWER = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "out_hidden_size": 32,
}  # fmt: skip
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": 91,
    "vision_start_token_id": 92,
    "vision_end_token_id": 93,
}


def reader_of_images(model: torch.nn.Module) -> Architecture:
    """A model that reads text and packed images: any number and sizes of images, any length; the positions are an input."""
    model.eval()
    tower = model.config.vision_config

    def call(sizes: list[tuple[int, int]], length: int) -> dict[str, Any]:
        grid = torch.tensor([(1, height, width) for height, width in sizes])
        ids = torch.randint(3, IMAGE, (1, length))
        start = 1
        for count in (grid.prod(1) // 4).tolist():
            ids[0, start : start + count] = IMAGE
            start += count + 1
        positions, _ = model.model.get_rope_index(
            ids,
            image_grid_thw=grid,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == IMAGE).int(),
        )
        width = tower.in_channels * tower.temporal_patch_size * tower.patch_size**2
        return {
            "input_ids": ids,
            "attention_mask": mask(1, length),
            "position_ids": positions,
            "pixel_values": torch.randn(int(grid.prod(1).sum()), width),
            "image_grid_thw": grid,
            "use_cache": False,
        }

    shapes = {
        "input_ids": {1: "length"}, "attention_mask": {1: "length"}, "position_ids": {2: "length"},
        "pixel_values": {0: "patches"}, "image_grid_thw": {0: "images"}, "use_cache": None,
    }  # fmt: skip
    others = [call([(12, 8), (8, 4)], 60), call([(8, 8), (4, 4), (4, 8), (4, 4)], 53)]
    return Architecture(model, call([(4, 8), (8, 4), (4, 4)], 40), others, shapes)


@architecture
def qwen2_vl() -> Architecture:
    """Qwen2-VL."""
    tower = {
        name: size for name, size in TOWER.items() if name not in ("out_hidden_size", "intermediate_size")
    }
    config = transformers.Qwen2VLConfig(
        text_config=TEXT_OF_IMAGES, vision_config=tower | {"embed_dim": 32}, **TOKENS
    )
    return reader_of_images(transformers.Qwen2VLForConditionalGeneration(config))


@architecture
def qwen2_5_vl() -> Architecture:
    """Qwen2.5-VL: windows of patches."""
    tower = TOWER | {"window_size": 16, "fullatt_block_indexes": [1]}
    config = transformers.Qwen2_5_VLConfig(text_config=TEXT_OF_IMAGES, vision_config=tower, **TOKENS)
    return reader_of_images(transformers.Qwen2_5_VLForConditionalGeneration(config))


@architecture
def qwen3_vl() -> Architecture:
    """Qwen3-VL: interpolated positions, features of several layers."""
    tower = TOWER | {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    config = transformers.Qwen3VLConfig(text_config=TEXT_OF_IMAGES, vision_config=tower, **TOKENS)
    return reader_of_images(transformers.Qwen3VLForConditionalGeneration(config))


@architecture
def canine() -> Architecture:
    """CANINE: windows of characters, molecules of 2."""
    config = transformers.CanineConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, num_hash_functions=2,
        num_hash_buckets=64, max_position_embeddings=64, local_transformer_stride=8, downsampling_rate=2,
    )  # fmt: skip
    return text_encoder(transformers.CanineForSequenceClassification(config))


@architecture
def reformer() -> Architecture:
    """Reformer: axial positions, local attention and buckets that hold all tokens."""
    config = transformers.ReformerConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=2, attention_head_size=16, feed_forward_size=48,
        attn_layers=["local", "lsh"], axial_pos_shape=[8, 8], axial_pos_embds_dim=[16, 16], max_position_embeddings=64,
        is_decoder=False,
    )  # fmt: skip
    return text_encoder(transformers.ReformerForMaskedLM(config))


@architecture
def mimi() -> Architecture:
    """Mimi: samples to codes and back, any number of samples."""
    config = transformers.MimiConfig(
        num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=8, vector_quantization_hidden_dimension=8,
        upsampling_ratios=[4, 2], num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
        intermediate_size=24, num_quantizers=3, num_semantic_quantizers=1, sampling_rate=2000, sliding_window=16,
        upsample_groups=16, use_cache=False,
    )  # fmt: skip
    calls = [
        {"input_values": torch.randn(batch, 1, samples)} for batch, samples in ((2, 203), (3, 320), (2, 97))
    ]
    model = transformers.MimiModel(config).eval()
    return Architecture(model, calls[0], calls[1:], {"input_values": {0: "batch", 2: "samples"}})


@architecture
def mamba_with_cache() -> Architecture:
    """Mamba: a step with its states."""
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4
    )
    model = transformers.MambaForCausalLM(config).eval()

    def call(batch: int, past: int) -> dict[str, Any]:
        with torch.no_grad():
            states = model(input_ids=tokens(batch, past), use_cache=True).cache_params
        return {"input_ids": tokens(batch, 1), "cache_params": states}

    shapes = {"input_ids": {0: "batch"}, "cache_params": [{0: "batch"}] * 4}
    return Architecture(model, call(2, 5), [call(3, 9)], shapes)


@architecture
def gemma2_with_window() -> Architecture:
    """Gemma 2 with its hybrid cache, whose window is not full yet."""
    config = transformers.Gemma2Config(**DECODER, head_dim=8, sliding_window=16)
    model = transformers.Gemma2ForCausalLM(config).eval()

    def call(batch: int, new: int, past: int) -> dict[str, Any]:
        cache = transformers.DynamicCache(config=config)
        with torch.no_grad():
            model(input_ids=tokens(batch, past), past_key_values=cache)
        return {
            "input_ids": tokens(batch, new),
            "attention_mask": mask(batch, past + new, 1),
            "past_key_values": cache,
        }

    grows = {0: "batch", 2: "past"}
    shapes = {
        "input_ids": {0: "batch", 1: "new"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": [[grows, grows], [grows, grows]],
    }
    return Architecture(model, call(2, 3, 5), [call(3, 2, 9)], shapes)
