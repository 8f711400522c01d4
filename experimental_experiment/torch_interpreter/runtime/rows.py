"""All rows of the table: importing this module registers them."""

from experimental_experiment.torch_interpreter.runtime import (  # noqa: F401 (they register)
    activations,
    conversions,
    float64,
    integers,
    products,
    reductions,
    unsupported,
)
