"""The models of `benchmarks/latency.py`: architectures of transformers and plain torch, small, random weights that are all jittered.

Jittered: biases that are zero and norms that are one would make the removal of "+ 0" look like an optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

Example = tuple[torch.nn.Module, tuple, dict[str, Any]]
"""A model, the example of its arguments, the dynamic shapes by name of the argument."""


class Decoder(torch.nn.Module):
    """A causal language model whose cache goes in and out as tensors, layer by layer: key, value, key, value."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past):
        """Logits and the longer cache."""
        pairs = list(zip(past[::2], past[1::2]))
        cache = transformers.DynamicCache(pairs)
        result = self.model(input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        layers = result.past_key_values.layers
        return result.logits, [tensor for layer in layers for tensor in (layer.keys, layer.values)]


class Logits(torch.nn.Module):
    """One tensor of a model's result, by keywords."""

    def __init__(self, model: torch.nn.Module, *names: str, result: int = 0, **fixed: Any):
        super().__init__()
        self.model, self.names, self.result, self.fixed = model, names, result, fixed

    def forward(self, *tensors):
        """The result of the tensors in the order of the names."""
        return self.model(**dict(zip(self.names, tensors)), **self.fixed, return_dict=False)[self.result]


def llama() -> torch.nn.Module:
    """Four layers of Llama: hidden 512, 8 heads, 4 of keys and values."""
    config = transformers.LlamaConfig(
        vocab_size=1024, hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=1024,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def step(tokens: int, past: int) -> Example:
    """Llama on *tokens* new tokens after *past* in the cache."""
    model = Decoder(llama())
    cache = [torch.randn(1, 4, past, 64) for _ in range(8)]
    args = (torch.randint(0, 1024, (1, tokens)), torch.ones(1, past + tokens, dtype=torch.int64), cache)
    ids = {0: "batch", 1: "sequence"} if tokens > 1 else {0: "batch"}
    shapes = (ids, {0: "batch", 1: "total"}, [{0: "batch", 2: "past"}] * 8)
    return model, args, shapes


def prefill() -> Example:
    """Llama on a prompt of 128 tokens, without cache."""
    model = Logits(llama(), "input_ids", "attention_mask", use_cache=False)
    args = (torch.randint(0, 1024, (1, 128)), torch.ones(1, 128, dtype=torch.int64))
    return model, args, (({0: "batch", 1: "sequence"},) * 2,)


def gpt2() -> Example:
    """Four layers of GPT-2 on 128 tokens."""
    config = transformers.GPT2Config(vocab_size=1024, n_embd=384, n_layer=4, n_head=6, n_positions=256)
    model = Logits(transformers.GPT2LMHeadModel(config), "input_ids", use_cache=False)
    return model, (torch.randint(0, 1024, (1, 128)),), (({0: "batch", 1: "sequence"},),)


def bert() -> Example:
    """Four layers of BERT on 128 tokens."""
    config = transformers.BertConfig(
        vocab_size=1024, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536
    )
    model = Logits(transformers.BertModel(config), "input_ids", "attention_mask")
    args = (torch.randint(0, 1024, (2, 128)), torch.ones(2, 128, dtype=torch.int64))
    return model, args, (({0: "batch", 1: "sequence"},) * 2,)


def t5() -> Example:
    """Four layers of T5's encoder and decoder."""
    config = transformers.T5Config(
        vocab_size=1024, d_model=384, d_ff=1024, num_layers=4, num_heads=6, d_kv=64
    )
    model = Logits(
        transformers.T5ForConditionalGeneration(config), "input_ids", "decoder_input_ids", use_cache=False
    )
    args = (torch.randint(0, 1024, (1, 128)), torch.randint(0, 1024, (1, 32)))
    return model, args, (({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),)


def vit() -> Example:
    """Four layers of a vision transformer, 224 x 224."""
    config = transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768
    )
    return (
        Logits(transformers.ViTModel(config), "pixel_values"),
        (torch.randn(2, 3, 224, 224),),
        (({0: "batch"},),),
    )


def convnext() -> Example:
    """ConvNeXt of four stages, 224 x 224."""
    config = transformers.ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2])
    model = Logits(transformers.ConvNextModel(config), "pixel_values", result=1)
    return model, (torch.randn(1, 3, 224, 224),), (({0: "batch"},),)


def whisper() -> Example:
    """Four layers of Whisper's encoder on 500 frames."""
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, max_source_positions=500,
        num_mel_bins=80,
    )  # fmt: skip
    encoder = transformers.WhisperModel(config).get_encoder()
    return Logits(encoder, "input_features"), (torch.randn(1, 80, 1000),), (({0: "batch"},),)


class Residual(torch.nn.Module):
    """Two convolutions with group norms, as UNets of diffusion have them."""

    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.GroupNorm(8, inside), torch.nn.GroupNorm(8, outside)])
        self.first = torch.nn.Conv2d(inside, outside, 3, padding=1)
        self.second = torch.nn.Conv2d(outside, outside, 3, padding=1)
        self.shortcut = torch.nn.Conv2d(inside, outside, 1) if inside != outside else torch.nn.Identity()

    def forward(self, x):
        """The same space."""
        h = self.first(torch.nn.functional.silu(self.norms[0](x)))
        return self.shortcut(x) + self.second(torch.nn.functional.silu(self.norms[1](h)))


class SpatialAttention(torch.nn.Module):
    """Attention over the pixels."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = torch.nn.GroupNorm(8, channels)
        self.attention = torch.nn.MultiheadAttention(channels, 4, batch_first=True)

    def forward(self, x):
        """The same space."""
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        mixed = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return x + mixed.transpose(1, 2).reshape(x.shape)


class UNet(torch.nn.Module):
    """Two levels down and up, attention at the bottom."""

    def __init__(self, channels: int = 32):
        super().__init__()
        self.stem = torch.nn.Conv2d(4, channels, 3, padding=1)
        self.down = torch.nn.ModuleList([Residual(channels, channels), Residual(channels, 2 * channels)])
        self.middle = torch.nn.Sequential(
            Residual(2 * channels, 2 * channels),
            SpatialAttention(2 * channels),
            Residual(2 * channels, 2 * channels),
        )
        self.up = torch.nn.ModuleList([Residual(4 * channels, channels), Residual(2 * channels, channels)])
        self.head = torch.nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x):
        """The noise of an image of four channels."""
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = torch.nn.functional.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, skips.pop()], 1))
        return self.head(x)


def unet() -> Example:
    """A UNet with attention, 64 x 64."""
    return UNet(), (torch.randn(1, 4, 64, 64),), ({0: "batch"},)


class Recurrent(torch.nn.Module):
    """Two layers of LSTM in both directions and a classifier."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(64, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(256, 10)

    def forward(self, x):
        """Scores of each step."""
        return self.head(self.lstm(x)[0])


def lstm() -> Example:
    """An LSTM on 64 steps."""
    return Recurrent(), (torch.randn(2, 64, 64),), ({0: "batch"},)


MODELS: dict[str, Callable[[], Example]] = {
    "decode": lambda: step(1, 512),
    "prefill": prefill,
    "gpt2": gpt2,
    "bert": bert,
    "t5": t5,
    "vit": vit,
    "convnext": convnext,
    "whisper": whisper,
    "unet": unet,
    "lstm": lstm,
}


def example(name: str) -> Example:
    """A model with every weight jittered, its arguments and dynamic shapes, always the same."""
    torch.manual_seed(0)
    model, args, shapes = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model.eval(), args, shapes
