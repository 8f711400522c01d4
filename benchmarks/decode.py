"""Tokens a second of a decoder with 512 tokens in its cache, the ways to run it side by side.

    python benchmarks/decode.py [--rounds 30] [--past 512]

Four layers of Llama (hidden 512, 8 heads, 4 of keys and values), one thread, one row. A line each: milliseconds of thread-CPU time a
token (eight steps in turns whose order rotates, the median of all rounds), the ratio to the unoptimized model, tokens a second, megabytes of
the file, the error of the logits of the prompt relative to their norm. Candidates: eager (transformers and its DynamicCache), session.run
(our standard model; numpy arrays in and out), bound (the same model in `decoding.Generator`), unoptimized (bound too), runtime (with the
rules of onnxruntime), in place (of `decoding.in_place`), int8 and int4 (the weights of runtime; accuracy_level 4, and 0 for "exact"; "in
place" is both), standard int4 (DequantizeLinear, opset 21).
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import torch
import transformers
from latency import measured
from latency_models import llama
from tabulate import tabulate
from transformers.integrations.executorch import register_dynamic_cache_export_support

from experimental_experiment.decoding import Generator, in_place
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim import quantize_weights

LAYERS, HEADS, WIDTH = 4, 4, 64
STEPS = 8
"""Tokens of one turn of a candidate."""
MICROSOFT = {"": 20, "com.microsoft": 1}


def exported(
    model: torch.nn.Module, target_opset: int | dict[str, int], filename: str, optimize: bool = True
) -> None:
    """Write one step with dynamic sizes: new tokens, mask, positions, cache."""
    cache = [(torch.randn(2, HEADS, 5, WIDTH), torch.randn(2, HEADS, 5, WIDTH)) for _ in range(LAYERS)]
    kwargs = {
        "input_ids": torch.randint(0, 1024, (2, 3)),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        "position_ids": torch.arange(5, 8).repeat(2, 1),
        "past_key_values": transformers.DynamicCache(cache),
    }
    rows = {0: "batch", 1: "sequence"}
    shapes = {
        "input_ids": rows,
        "attention_mask": {0: "batch", 1: "total"},
        "position_ids": rows,
        "past_key_values": [[{0: "batch", 2: "past"}] * LAYERS] * 2,
    }
    to_onnx(
        model,
        (),
        kwargs,
        dynamic_shapes=shapes,
        target_opset=target_opset,
        filename=filename,
        optimize=optimize,
    )


def files(model: torch.nn.Module, folder: str) -> dict[str, str]:
    """The models, by candidate."""
    plain, unoptimized, runtime, newer, placed = (
        os.path.join(folder, f"{name}.onnx")
        for name in ("plain", "unoptimized", "runtime", "newer", "placed")
    )
    exported(model, 20, plain)
    exported(model, 20, unoptimized, optimize=False)
    save(in_place(ir.load(unoptimized)), placed)
    exported(model, MICROSOFT, runtime)
    exported(model, 21, newer)
    found = {"bound": plain, "unoptimized": unoptimized, "runtime": runtime, "in place": placed}
    for name, source, bits, more in (
        ("int8", runtime, 8, {}),
        ("int4", runtime, 4, {}),
        ("int4 in place", placed, 4, {}),
        ("int4 exact", runtime, 4, {"accuracy_level": 0}),
        ("standard int4", newer, 4, {"domain": ""}),
    ):
        found[name] = os.path.join(folder, f"{name.replace(' ', '_')}.onnx")
        save(quantize_weights(ir.load(source), bits, **more), found[name])
    return found


def megabytes(path: str) -> float:
    """Size of a model and of its data."""
    return sum(os.path.getsize(name) for name in (path, path + ".data") if os.path.exists(name)) / 1e6


def bound(generator: Generator, past: int) -> Callable[[], None]:
    """STEPS steps after *past* tokens, again and again."""
    token = np.array([3])

    def steps() -> None:
        generator.cache.length = past
        for _ in range(STEPS):
            generator.step(token)

    return steps


def naive(generator: Generator, past: int) -> Callable[[], None]:
    """The same steps through session.run, whose results are the next past."""
    names, session = generator.interface, generator.session
    shape = 1, HEADS, past, WIDTH
    caches = {
        tensor.past: np.random.default_rng(0).normal(size=shape).astype(np.float32) for tensor in names.cache
    }
    wanted = [names.logits, *(tensor.present for tensor in names.cache)]

    def steps() -> None:
        feeds = {names.tokens: np.array([[3]]), **caches}
        for length in range(past, past + STEPS):
            feeds[names.mask] = np.ones((1, length + 1), np.int64)
            feeds[names.positions] = np.array([[length]])
            _, *presents = session.run(wanted, feeds)
            feeds.update(zip(caches, presents))

    return steps


def eager(model: torch.nn.Module, prompt: np.ndarray) -> Callable[[], None]:
    """The same steps in transformers; the cache is cropped afterwards."""
    past = transformers.DynamicCache()
    with torch.no_grad():
        model(torch.from_numpy(prompt), past_key_values=past)
    token = torch.tensor([[3]])

    def steps() -> None:
        with torch.no_grad():
            for _ in range(STEPS):
                model(token, past_key_values=past)
        past.crop(-STEPS)

    return steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--past", type=int, default=512)
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("experimental_experiment").setLevel(logging.ERROR)
    torch.manual_seed(0)
    model = llama().eval()
    register_dynamic_cache_export_support()
    prompt = np.random.default_rng(0).integers(0, 1024, (1, given.past))
    steps: dict[str, Callable[[], object]] = {"eager": eager(model, prompt)}
    sizes, errors = {}, {}
    with torch.no_grad():
        exact = model(torch.from_numpy(prompt)).logits[:, -1].numpy()
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(model, folder).items():
            generator = Generator(path, given.past + STEPS, threads=1)
            logits = generator.prefill(prompt)
            errors[name] = np.linalg.norm(logits - exact) / np.linalg.norm(exact)
            sizes[name] = megabytes(path)
            if name == "bound":
                steps["session.run"] = naive(generator, given.past)
            steps[name] = bound(generator, given.past)
        times = measured(steps, given.rounds)
    rows = [
        (
            name,
            time / STEPS,
            time / times["unoptimized"],
            1000 * STEPS / time,
            sizes.get(name),
            errors.get(name),
        )
        for name, time in times.items()
    ]
    print(
        tabulate(
            rows,
            ["", "ms", "ratio", "tokens/s", "MB", "error"],
            floatfmt=("", ".2f", ".3f", ".0f", ".1f", ".1e"),
        )
    )


if __name__ == "__main__":
    main()
