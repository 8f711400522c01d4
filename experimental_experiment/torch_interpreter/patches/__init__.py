"""What gets a model through torch.export that refuses it: one small object a problem.

`patch` holds the room's mechanics; the other files hold the patches, by what they are about. Importing this package registers them.
"""

import importlib
import pkgutil

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
