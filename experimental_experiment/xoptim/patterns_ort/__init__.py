"""Rules that write operators of onnxruntime, or what is faster in it only, one family a file. Importing this package registers them."""

import importlib
import pkgutil

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
