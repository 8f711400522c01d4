"""torch.compile on onnxruntime: backends for inference and training.

compiled = torch.compile(model, backend=onnx_custom_backend)
"""

from experimental_experiment.torch_dynamo.backend import onnx_custom_backend, onnx_debug_backend
from experimental_experiment.torch_dynamo.compiled import OrtBackend
from experimental_experiment.torch_dynamo.decompositions import (
    filter_decomposition_table,
    get_decomposition_table,
)
from experimental_experiment.torch_dynamo.providers import ProviderError

__all__ = [
    "OrtBackend",
    "ProviderError",
    "filter_decomposition_table",
    "get_decomposition_table",
    "onnx_custom_backend",
    "onnx_debug_backend",
]
