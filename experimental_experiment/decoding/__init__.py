"""Decoding: a decoder with a cache, run token after token in onnxruntime with its cache in buffers that stay where they are.

generator = Generator("llama.onnx", max_length=512)
tokens = generator.generate(prompt, max_new_tokens=100, stop=[2], sampling=Sampling(temperature=0.7, top_p=0.9, seed=0))
"""

from experimental_experiment.decoding.generator import Generator, left_padded
from experimental_experiment.decoding.interface import DecodingError, Interface
from experimental_experiment.decoding.sampling import Sampling

__all__ = ["DecodingError", "Generator", "Interface", "Sampling", "left_padded"]
