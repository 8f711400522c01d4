"""Execution providers: which one runs the graphs of a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnxruntime
import torch

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

Provider = str | tuple[str, dict[str, Any]]


class ProviderError(RuntimeError):
    """onnxruntime cannot run a graph where its tensors are."""


def device_of(values: Iterable[Any]) -> torch.device:
    """The device that a graph runs on: the GPU that tensors among its inputs or outputs are on, else the CPU.

    Tensors of the CPU beside it are moved, as the program says. Raises ProviderError when there are two GPUs, or when onnxruntime has
    no provider for the device.
    """
    devices = {value.device for value in values if isinstance(value, torch.Tensor)} - {torch.device("cpu")}
    if not devices:
        return torch.device("cpu")
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ProviderError(
            f"the tensors of one graph are on {names}: move the model and its inputs to one device"
        )
    (device,) = devices
    if device.type not in PROVIDERS:
        raise ProviderError(f"onnxruntime does not run graphs of the device {device}: only cpu and cuda")
    return device


def providers_for(device: torch.device, given: Sequence[Provider] | None) -> list[Provider]:
    """What a session is created with: *given*, or the provider of the device.

    Raises ProviderError when the installed onnxruntime lacks one, TypeError when *given* is no list.
    """
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise TypeError(f"providers is a list of execution providers, not {given!r}")
    if given is None and device.type == "cuda":
        stream = torch.cuda.current_stream(device).cuda_stream
        options = {
            "device_id": str(device.index or 0),
            "user_compute_stream": str(stream),
            "use_tf32": str(int(products_in_tf32())),  # onnxruntime's own default is 1, torch's 0
        }
        given = [(PROVIDERS["cuda"], options), PROVIDERS["cpu"]]
    chosen: list[Provider] = [PROVIDERS["cpu"]] if given is None else list(given)
    available = onnxruntime.get_available_providers()
    for provider in chosen:
        name = provider if isinstance(provider, str) else provider[0]
        if name not in available:
            raise ProviderError(
                f"onnxruntime {onnxruntime.__version__} has no {name} here, only {', '.join(available)}"
            )
    return chosen


def products_in_tf32() -> bool:
    """Whether torch may round the operands of float32 matrix products to TF32 (10 bits) on a GPU.

    ``torch.backends.cuda.matmul.fp32_precision``, which ``torch.set_float32_matmul_precision`` writes too. onnxruntime has one option for
    products and convolutions: a convolution that torch would round is then more exact.
    """
    return torch.backends.cuda.matmul.fp32_precision == "tf32"
