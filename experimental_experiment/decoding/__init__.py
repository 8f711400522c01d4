"""Decoding: a decoder with a cache, run token after token in onnxruntime with its cache in buffers that stay where they are.

generator = Generator("llama.onnx", max_length=512)
tokens = generator.generate(prompt, max_new_tokens=100, stop=[2], sampling=Sampling(temperature=0.7, top_p=0.9, seed=0))

`in_place` makes a decoder write its cache where it is: ``Generator(in_place(onnx.load("llama.onnx")), max_length=512)``.
"""

import importlib
from typing import Any

from experimental_experiment.decoding.generator import Generator, left_padded
from experimental_experiment.decoding.interface import DecodingError, Interface
from experimental_experiment.decoding.sampling import Sampling

__all__ = ["DecodingError", "Generator", "Interface", "Sampling", "in_place", "left_padded"]


def __getattr__(name: str) -> Any:
    """The optimizer, and torch with it, are loaded when `in_place` is first asked for."""
    if name == "in_place":
        return importlib.import_module(f"{__name__}.rewriting").in_place
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
