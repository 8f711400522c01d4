"""
Caches and decoding
===================

A decoder takes the keys and values of the tokens before and returns them with those of the new tokens. This page exports a small decoder
of transformers with its cache, then lets it write, token after token, in onnxruntime. The model has random weights:
``examples/llama_decoder.py`` makes it.
"""

import os
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from llama_decoder import decoder, other_sizes

from experimental_experiment.comparison import compare, session
from experimental_experiment.decoding import Generator, Sampling
from experimental_experiment.torch_interpreter import to_onnx

# %%
# One step of generation
# ----------------------
#
# The arguments of a call, and what may change: batch, new tokens, tokens in the cache, and their sum.

torch.manual_seed(0)
model, args, kwargs, dynamic_shapes = decoder()
for name, value in kwargs.items():
    print(name, tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__, end="; ")
print()
print({name: shape for name, shape in dynamic_shapes.items() if name != "past_key_values"})
print("each layer of past_key_values:", dynamic_shapes["past_key_values"][0][0])

# %%
# Each tensor of the cache is an input and an output.

folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "llama.onnx")
onx = to_onnx(model, args, kwargs, dynamic_shapes=dynamic_shapes, filename=path)
for values in (onx.graph.input, onx.graph.output):
    print([value.name for value in values][:4], "...")
past = next(value for value in onx.graph.input if value.name == "past_key_values_0_key")
print([dim.dim_param or dim.dim_value for dim in past.type.tensor_type.shape.dim])

# %%
# The same model on another batch, prompt and cache, one row padded on the left.

torch.manual_seed(0)
same, _, others = other_sizes()
gaps = compare(same, session(path), (), others)
print(f"{len(gaps)} outputs, largest difference {max(gap.absolute for gap in gaps):.1e}")

# %%
# Token after token
# -----------------
#
# ``Generator`` binds past and present to buffers that are allocated once. Its tokens are those of transformers' ``generate``.

generator = Generator(path, max_length=128)
prompt = np.array([[11, 42, 7, 300]])
tokens = generator.generate(prompt, max_new_tokens=12)
print(tokens)
with torch.no_grad():
    expected = model.generate(
        torch.from_numpy(prompt),
        max_new_tokens=12,
        min_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
print("the same as transformers:", np.array_equal(tokens, expected.numpy()))

# %%
# ``Sampling`` draws, ``stop`` ends a row. ``left_padded`` makes a batch of prompts of several lengths, for models that take ``position_ids``.

prompts = np.array([[11, 42, 7], [5, 6, 300]])
print(
    generator.generate(
        prompts, max_new_tokens=8, stop=[2], sampling=Sampling(temperature=0.8, top_p=0.9, seed=0)
    )
)

# %%
# A step at a time: ``prefill`` takes the prompt, ``step`` one token for each row; both return logits.

logits = generator.prefill(prompt)
times = []
for _ in range(100):
    start = time.perf_counter()
    logits = generator.step(logits.argmax(axis=1))
    times.append(1000 * (time.perf_counter() - start))
print(f"{generator.length} tokens in the cache")
plt.plot(times)
plt.ylim(0, 3 * np.median(times))
plt.xlabel("token")
plt.ylabel("milliseconds")
plt.show()

# %%
folder.cleanup()

# %%
# :doc:`/caches` has the classes of caches that are known, and how to take a class of your own apart.
