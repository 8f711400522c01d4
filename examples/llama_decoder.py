"""A small Llama-style decoder with a KV cache, from a configuration with random weights.

    python -m experimental_experiment export examples/llama_decoder.py:decoder -o llama.onnx --check
    python -m experimental_experiment check llama.onnx examples/llama_decoder.py:other_sizes

The first command exports one step of generation: new tokens, the mask, the cache of the tokens before. The second one runs
the same model with another batch, another prompt and another cache.
"""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import register_dynamic_cache_export_support


def config(layers=4):
    """Llama's shape, small: grouped-query attention, rotary embedding, RMS normalization, gated MLP."""
    return LlamaConfig(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )


def example(model, batch, sequence, past):
    """Arguments of one call: *sequence* new tokens after *past* tokens that are in the cache."""
    settings = model.config
    heads, width = settings.num_key_value_heads, settings.hidden_size // settings.num_attention_heads
    cache = [
        (torch.randn(batch, heads, past, width), torch.randn(batch, heads, past, width))
        for _ in range(settings.num_hidden_layers)
    ]
    return {
        "input_ids": torch.randint(0, settings.vocab_size, (batch, sequence)),
        "attention_mask": torch.ones(batch, past + sequence, dtype=torch.int64),
        "past_key_values": DynamicCache(cache),
    }


def dynamic_shapes(layers):
    """Batch, new tokens, tokens in the cache and their sum are dynamic."""
    keys = values = [{0: "batch", 2: "past"}] * layers
    return {
        "input_ids": {0: "batch", 1: "sequence"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": [keys, values],
    }


def decoder(layers=4):
    """What is exported: the model, its arguments, their dynamic dimensions."""
    register_dynamic_cache_export_support()
    model = LlamaForCausalLM(config(layers)).eval()
    return model, (), example(model, batch=2, sequence=3, past=5), dynamic_shapes(layers)


def other_sizes():
    """The same model on sizes that the export has not seen, one row of the batch padded on the left."""
    model, _, _, _ = decoder()
    kwargs = example(model, batch=3, sequence=7, past=12)
    kwargs["attention_mask"][0, :4] = 0
    return model, (), kwargs
