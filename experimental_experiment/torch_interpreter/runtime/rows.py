"""All rows of the table: importing this module registers them."""

from experimental_experiment.torch_interpreter.runtime import (  # noqa: F401 (they register)
    activations,
    attention,
    compositions,
    conversions,
    convolutions,
    float64,
    folds,
    grids,
    integers,
    normalization,
    operator_sets,
    pads,
    products,
    reductions,
    resampling,
    scans,
    scattering,
    transforms,
    unsupported,
)
