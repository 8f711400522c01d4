"""torch.compile on onnxruntime: overhead of a call, training steps, compile time.

    python benchmarks/backend.py [--models mlp cnn transformer] [--rounds 15] [--threads 1]

First line: microseconds of a call of a compiled graph of 10 tensors, of ``session.run`` on the same feeds in numpy, and the difference.
Then one line a model: milliseconds of a training step (forward, backward, Adam) in eager; the same step compiled by onnx_custom_backend
and by torch.compile's default backend, relative to eager; seconds that both need for the first step, without caches on disk; relative
difference of the losses.
Candidates run in turns, the median of all rounds counts.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from tabulate import tabulate
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from experimental_experiment.torch_dynamo import onnx_custom_backend


def mlp() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor, Callable]:
    """The model of the document, its batches of 5 rows."""
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    return model, torch.randn(5, 10), torch.randn(5, 1), torch.nn.functional.l1_loss


def cnn() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor, Callable]:
    """Convolutions, batch norm, pooling."""
    layers = []
    for before, after in ((3, 32), (32, 64), (64, 64)):
        layers += [
            torch.nn.Conv2d(before, after, 3, padding=1),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64 * 16, 10))
    return model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)), torch.nn.functional.cross_entropy


def transformer() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor, Callable]:
    """Four layers of a language model."""

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(500, 128)
            layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
            self.layers = torch.nn.ModuleList(copy.deepcopy(layer) for _ in range(4))
            self.head = torch.nn.Linear(128, 500)

        def forward(self, tokens):
            x = self.embedding(tokens)
            mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            for layer in self.layers:
                x = layer(x, mask, is_causal=True)
            return self.head(x).flatten(0, 1)

    tokens = torch.randint(0, 500, (4, 65))
    return Decoder(), tokens[:, :-1], tokens[:, 1:].flatten(), torch.nn.functional.cross_entropy


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def step_of(model: torch.nn.Module, compiled: Callable, x, y, loss_function) -> Callable[[], float]:
    """One step of training."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_function(compiled(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measured(functions: dict[str, Callable], rounds: int, calls: int = 1) -> dict[str, float]:
    """Median seconds of a call of each function, called in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(found) for name, found in times.items()}


def overhead(rounds: int) -> list[float]:
    """Microseconds of a call, of ``session.run``, and the difference, for five inputs and five outputs."""
    example = [torch.randn(4, 4) for _ in range(5)]
    module = make_fx(lambda *x: tuple(item + 1 for item in x), tracing_mode="fake")(*example)
    backend = onnx_custom_backend(module, example)
    feeds = {name: tensor.numpy() for name, tensor in zip(backend.input_names, example)}
    functions = {
        "backend": lambda: backend(list(example)),
        "session.run": lambda: backend.session.run(None, feeds),
    }
    measured(functions, 3, 100)
    found = measured(functions, rounds, 200)
    call, run = (1e6 * found[name] for name in functions)
    return [call, run, call - run]


def compared(name: str, rounds: int) -> list:
    """One line of the table of training steps."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x, y, loss_function = MODELS[name]()
    backends = {"eager": None, "onnxruntime": onnx_custom_backend, "default": "inductor"}
    steps, compile_time, losses = {}, {}, {}
    for key, backend in backends.items():
        own = copy.deepcopy(model)
        compiled = own if backend is None else torch.compile(own, backend=backend)
        steps[key] = step_of(own, compiled, x, y, loss_function)
        begin = time.perf_counter()
        losses[key] = [steps[key]()]
        compile_time[key] = time.perf_counter() - begin
        losses[key] += [steps[key]() for _ in range(4)]
    times = measured(steps, rounds, 20 if name == "mlp" else 1)
    worst = max(abs(a - b) / b for a, b in zip(losses["onnxruntime"], losses["eager"]))
    ratios = [times[key] / times["eager"] for key in ("onnxruntime", "default")]
    return [name, 1000 * times["eager"], *ratios, compile_time["onnxruntime"], compile_time["default"], worst]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    call, run, difference = overhead(given.rounds)
    print(f"a call: {call:.1f} us, session.run: {run:.1f} us, overhead: {difference:.1f} us")
    with fresh_cache():
        rows = [compared(name, given.rounds) for name in given.models]
    headers = ["model", "eager ms", "onnxruntime", "default", "compile s", "default s", "loss"]
    print(tabulate(rows, headers, floatfmt=".3g"))


if __name__ == "__main__":
    main()
