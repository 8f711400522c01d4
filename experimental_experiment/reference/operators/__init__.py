"""The operators that `ExtendedReferenceEvaluator` adds to those of onnx: com.microsoft's, and what onnx computes wrongly.

Source of semantics: onnxruntime's documentation of its contrib operators, and its CPU kernels, which the tests compare with.
"""

from experimental_experiment.reference.operators import (  # noqa: F401 (they register)
    activations,
    attention,
    convolution,
    corrections,
    normalization,
    products,
    quantization,
    recurrent,
)
