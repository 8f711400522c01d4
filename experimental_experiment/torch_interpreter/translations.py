"""Every translation and every row of the runtime: importing this module registers them."""

import importlib
import pkgutil

from experimental_experiment.torch_interpreter import aten, control_flow, runtime, symbolic  # noqa: F401

for _family in (runtime, aten, control_flow):
    for _module in sorted(module.name for module in pkgutil.iter_modules(_family.__path__)):
        importlib.import_module(f"{_family.__name__}.{_module}")

# the last one: most of its operators are translated as their twins in ATen
importlib.import_module(f"{__package__}.prims")
