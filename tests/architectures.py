"""Real architectures with small configurations and random weights, each with inputs of two sizes.

A builder returns an `Architecture`. Decoders come without and with a KV cache. Nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.utils import _pytree as pytree
from transformers.cache_utils import DynamicCache
from transformers.integrations.executorch import register_dynamic_cache_export_support

DYNAMIC = torch.export.Dim.DYNAMIC


@dataclasses.dataclass
class Architecture:
    """A model and two calls: the example of the export and another one, of other sizes.

    Attributes:
        model: the module, in evaluation mode.
        kwargs: the example.
        others: further calls.
        dynamic_shapes: of the example.
    """

    model: torch.nn.Module
    kwargs: dict[str, Any]
    others: list[dict[str, Any]]
    dynamic_shapes: dict[str, Any]


BUILDERS: dict[str, Callable[[], Architecture]] = {}


def architecture(function: Callable[[], Architecture]) -> Callable[[], Architecture]:
    """Register a builder under its name."""
    BUILDERS[function.__name__] = function
    return function


def build(name: str) -> Architecture:
    """Build one architecture, the same every time: no cache is registered but by its builder."""
    if DynamicCache in pytree.SUPPORTED_NODES:
        pytree._deregister_pytree_node(DynamicCache)
    torch.manual_seed(0)
    return BUILDERS[name]()


# ---- inputs

VOCABULARY = 99
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
DECODER = TEXT | {"num_key_value_heads": 2}


def tokens(batch: int, length: int) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(3, VOCABULARY - 3, (batch, length))


def mask(batch: int, length: int, padded: int = 0) -> torch.Tensor:
    """An attention mask whose first row starts with *padded* zeros."""
    ones = torch.ones(batch, length, dtype=torch.int64)
    ones[0, :padded] = 0
    return ones


def images(batch: int, size: int, width: int | None = None) -> torch.Tensor:
    """Random images with three channels."""
    return torch.randn(batch, 3, size, width or size)


def text_encoder(model: torch.nn.Module) -> Architecture:
    """A model that takes input_ids and attention_mask, with dynamic batch and sequence."""
    axes = {0: "batch", 1: "sequence"}
    return Architecture(
        model.eval(),
        {"input_ids": tokens(2, 7), "attention_mask": mask(2, 7, 2)},
        [{"input_ids": tokens(3, 11), "attention_mask": mask(3, 11, 4)}],
        {"input_ids": axes, "attention_mask": axes},
    )


def image_model(
    model: torch.nn.Module, size: int, other: int | None = None, name: str = "pixel_values"
) -> Architecture:
    """A model that takes images, with dynamic batch, and dynamic height and width when *other* is given."""
    axes = {0: "batch"} if other is None else {0: "batch", 2: "height", 3: "width"}
    return Architecture(
        model.eval(),
        {name: images(2, size)},
        [{name: images(3, other or size, (other or size))}],
        {name: axes},
    )


def cache(model: torch.nn.Module, batch: int, past: int) -> DynamicCache:
    """The DynamicCache that the model fills for *past* random tokens."""
    with torch.no_grad():
        return model(input_ids=tokens(batch, past), use_cache=True).past_key_values


def cached_decoder(model: torch.nn.Module) -> Architecture:
    """A decoder in its generation step: new tokens, a mask over all positions, a cache of the past ones."""
    register_dynamic_cache_export_support()
    model.eval()

    def call(batch: int, length: int, past: int, padded: int) -> dict[str, Any]:
        return {
            "input_ids": tokens(batch, length),
            "attention_mask": mask(batch, past + length, padded),
            "past_key_values": cache(model, batch, past),
        }

    layers = len(cache(model, 1, 2).layers)
    axes = [{0: "batch", 2: "past"} for _ in range(layers)]
    return Architecture(
        model.eval(),
        call(2, 3, 5, 1),
        [call(3, 2, 9, 4)],
        {
            "input_ids": {0: "batch", 1: "sequence"},
            "attention_mask": {0: "batch", 1: "total"},
            "past_key_values": [axes, axes],
        },
    )


def decoder(name: str, config: Any, model_class: type, with_cache: bool = True) -> None:
    """Register a decoder in both forms: the whole sequence without a cache, a step with one."""

    def without_cache() -> Architecture:
        return text_encoder(Logits(model_class(config())))

    def with_past() -> Architecture:
        chosen = config()
        if getattr(chosen, "sliding_window", None):
            chosen.sliding_window = 32  # a layer that is full has a static length
        return cached_decoder(model_class(chosen))

    without_cache.__name__, with_past.__name__ = name, f"{name}_with_cache"
    architecture(without_cache)
    if with_cache:
        architecture(with_past)


class Logits(torch.nn.Module):
    """A decoder without a cache: its logits only."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


# ---- decoders

decoder(
    "gpt2",
    lambda: transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    transformers.GPT2LMHeadModel,
)
decoder("llama", lambda: transformers.LlamaConfig(**DECODER), transformers.LlamaForCausalLM)
decoder(
    "mistral",
    lambda: transformers.MistralConfig(**DECODER, sliding_window=4),
    transformers.MistralForCausalLM,
)
decoder("qwen2", lambda: transformers.Qwen2Config(**DECODER), transformers.Qwen2ForCausalLM)
decoder("qwen3", lambda: transformers.Qwen3Config(**DECODER, head_dim=8), transformers.Qwen3ForCausalLM)
decoder("gemma", lambda: transformers.GemmaConfig(**DECODER, head_dim=8), transformers.GemmaForCausalLM)
decoder(
    "gemma2",
    lambda: transformers.Gemma2Config(**DECODER, head_dim=8, sliding_window=4),
    transformers.Gemma2ForCausalLM,
)
decoder("phi", lambda: transformers.PhiConfig(**TEXT), transformers.PhiForCausalLM)
decoder("phi3", lambda: transformers.Phi3Config(**DECODER, pad_token_id=0), transformers.Phi3ForCausalLM)
decoder(
    "opt",
    lambda: transformers.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
        max_position_embeddings=64, word_embed_proj_dim=32,
    ),
    transformers.OPTForCausalLM,
)  # fmt: skip
decoder(
    "mixtral",
    lambda: transformers.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2),
    transformers.MixtralForCausalLM,
)
decoder(
    "deepseek_v3",
    lambda: transformers.DeepseekV3Config(
        **DECODER | {"num_key_value_heads": 4}, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2,
        n_group=2, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=12, qk_rope_head_dim=4,
        v_head_dim=8, qk_nope_head_dim=8,
    ),
    transformers.DeepseekV3ForCausalLM,
)  # fmt: skip
decoder(
    "gpt_oss",
    lambda: transformers.GptOssConfig(
        **DECODER, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    ),
    transformers.GptOssForCausalLM,
)


# ---- encoders of text


@architecture
def bert() -> Architecture:
    """BERT with its language-model head."""
    return text_encoder(transformers.BertForMaskedLM(transformers.BertConfig(**TEXT)))


@architecture
def roberta() -> Architecture:
    """RoBERTa with its classification head: positions counted from the mask."""
    config = transformers.RobertaConfig(**TEXT, pad_token_id=1)
    return text_encoder(transformers.RobertaForSequenceClassification(config))


@architecture
def t5() -> Architecture:
    """T5: encoder and decoder with relative positions."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()

    def call(batch: int, length: int, target: int) -> dict[str, Any]:
        return {
            "input_ids": tokens(batch, length),
            "attention_mask": mask(batch, length, 1),
            "decoder_input_ids": tokens(batch, target),
            "use_cache": False,
        }

    source, target = {0: "batch", 1: "source"}, {0: "batch", 1: "target"}
    shapes = {"input_ids": source, "attention_mask": source, "decoder_input_ids": target, "use_cache": None}
    return Architecture(model, call(2, 7, 5), [call(3, 9, 4)], shapes)


# ---- sound


@architecture
def whisper() -> Architecture:
    """Whisper: convolutions, encoder and decoder."""
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_source_positions=12, max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()

    def call(batch: int, target: int) -> dict[str, Any]:
        return {
            "input_features": torch.randn(batch, 8, 24),
            "decoder_input_ids": tokens(batch, target),
            "use_cache": False,
        }

    shapes = {
        "input_features": {0: "batch"},
        "decoder_input_ids": {0: "batch", 1: "target"},
        "use_cache": None,
    }
    return Architecture(model, call(2, 5), [call(3, 8)], shapes)


# ---- images

VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 24,
    "patch_size": 6,
}


@architecture
def vit() -> Architecture:
    """ViT with its classification head."""
    return image_model(transformers.ViTForImageClassification(transformers.ViTConfig(**VISION)), 24)


@architecture
def swin() -> Architecture:
    """Swin: shifted windows."""
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return image_model(transformers.SwinForImageClassification(config), 32)


@architecture
def mobile_vit() -> Architecture:
    """MobileViT: maps that are resized to whole windows, for images of any size."""
    config = transformers.MobileViTConfig(
        image_size=32, patch_size=3, hidden_sizes=[8, 12, 16], neck_hidden_sizes=[4, 4, 8, 8, 8, 8, 12],
        num_attention_heads=2,
    )  # fmt: skip
    return image_model(transformers.MobileViTModel(config), 32, 96)


@architecture
def hunyuan_vision() -> Architecture:
    """HunYuan's vision tower: any number of packed images, of any sizes."""
    config = transformers.HunYuanVLConfig().vision_config
    config = type(config)(
        hidden_size=16, intermediate_size=24, num_attention_heads=2, num_hidden_layers=2, patch_size=2,
        max_image_size=10, text_hidden_size=16,
    )  # fmt: skip
    model = transformers.HunYuanVLVisionTransformer(config).eval()

    def call(*sizes: list[int]) -> dict[str, Any]:
        grid = torch.tensor([[1, *size] for size in sizes])
        return {"pixel_values": torch.randn(int(grid.prod(1).sum()), 12), "grid_thw": grid}

    shapes = {"pixel_values": {0: "patches"}, "grid_thw": {0: "images"}}
    example, others = call([4, 4], [2, 6]), [call([4, 8], [2, 2], [6, 4]), call([2, 4])]
    return Architecture(model, example, others, shapes)


@architecture
def segformer() -> Architecture:
    """SegFormer: overlapping patches, resized and concatenated."""
    config = transformers.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[3, 3],
        strides=[2, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16,
    )  # fmt: skip
    return image_model(transformers.SegformerForSemanticSegmentation(config), 32, 48)


@architecture
def detr() -> Architecture:
    """DETR on a small ResNet backbone."""
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False, backbone_config=backbone, use_pretrained_backbone=False, d_model=16,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, num_queries=5,
    )  # fmt: skip
    return image_model(transformers.DetrForObjectDetection(config), 32)


@architecture
def clip() -> Architecture:
    """CLIP: both towers and their similarity."""
    config = transformers.CLIPConfig(
        text_config=TEXT | {"projection_dim": 16, "eos_token_id": 2},
        vision_config=VISION | {"projection_dim": 16},
        projection_dim=16,
    )
    model = transformers.CLIPModel(config).eval()

    def call(texts: int, length: int, pictures: int) -> dict[str, Any]:
        return {
            "input_ids": tokens(texts, length),
            "pixel_values": images(pictures, 24),
            "attention_mask": mask(texts, length),
        }

    text = {0: "texts", 1: "sequence"}
    shapes = {"input_ids": text, "pixel_values": {0: "images"}, "attention_mask": text}
    return Architecture(model, call(2, 7, 3), [call(4, 9, 2)], shapes)


@architecture
def sam() -> Architecture:
    """SAM: image encoder with relative positions, prompt encoder, mask decoder."""
    vision = transformers.SamVisionConfig(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=4,
        window_size=4, global_attn_indexes=[1], num_pos_feats=8, mlp_dim=48,
    )  # fmt: skip
    prompt = transformers.SamPromptEncoderConfig(
        hidden_size=16, image_size=32, patch_size=4, mask_input_channels=4
    )
    head = transformers.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=24, num_hidden_layers=2, num_attention_heads=2, iou_head_hidden_dim=16
    )
    config = transformers.SamConfig(
        vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=head
    )
    model = transformers.SamModel(config).eval()

    def call(batch: int) -> dict[str, Any]:
        return {
            "pixel_values": images(batch, 32),
            "input_points": torch.rand(batch, 1, 3, 2) * 31,
            "input_labels": torch.randint(0, 2, (batch, 1, 3)),
        }

    batch = {0: "batch"}
    return Architecture(
        model, call(2), [call(3)], {"pixel_values": batch, "input_points": batch, "input_labels": batch}
    )


@architecture
def llava() -> Architecture:
    """LLaVA: image features put in the place of image tokens."""
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION), text_config=transformers.LlamaConfig(**DECODER),
        image_token_index=98, image_seq_length=16,
    )  # fmt: skip
    register_dynamic_cache_export_support()
    model = transformers.LlavaForConditionalGeneration(config).eval()

    def call(batch: int, length: int) -> dict[str, Any]:
        ids = tokens(batch, length)
        ids[:, 1:17] = 98
        return {
            "input_ids": ids,
            "pixel_values": images(batch, 24),
            "attention_mask": mask(batch, length),
        }

    text = {1: "sequence"}  # the number of image tokens is checked against the features: the batch is static
    shapes = {"input_ids": text, "pixel_values": None, "attention_mask": text}
    return Architecture(model, call(2, 21), [call(2, 25)], shapes)
