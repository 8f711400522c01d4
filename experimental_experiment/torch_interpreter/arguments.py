"""Arguments of `to_onnx` as other exporters call them: one sentence that says what to write instead."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

FOREIGN = {
    "artifacts_dir": 'report="report.html"',
    "autograd_inlining": "nothing: the capture is always torch.export's",
    "custom_opsets": 'target_opset={"": 20, "my.domain": 1}',
    "custom_translation_table": "translations={operator: function}",
    "do_constant_folding": "optimize=True, the default",
    "dump_exported_program": 'report="report.html"',
    "dynamic_axes": 'dynamic_shapes={"x": {0: "batch"}}, by argument of forward',
    "dynamo": "nothing: the capture is always torch.export's",
    "export_modules_as_functions": "modules_as_functions=True",
    "export_params": "nothing: the weights are always part of the model",
    "external_data": "nothing: weights of more than 16 MB go to a file of their own",
    "f": 'filename="model.onnx"',
    "fallback": "nothing: what cannot be translated stops the export",
    "keep_initializers_as_inputs": "nothing: the weights are always part of the model",
    "operator_export_type": "nothing: what cannot be translated stops the export",
    "opset_version": "target_opset=20",
    "profile": 'report="report.html", which has the times',
    "strict": "export_options=ExportOptions(strict=True)",
    "training": "model.train() or model.eval() before",
    "verbose": "nothing: python -m experimental_experiment print shows a model",
}
"""Names of arguments in ``torch.onnx.export`` and what to write here."""


def explains_foreign_arguments(function: Callable) -> Callable:
    """Raise TypeError with what to write instead for an argument of `FOREIGN`; the signature stays *function*'s."""

    @functools.wraps(function)
    def explained(*args, **kwargs):
        for name, value in kwargs.items():
            if name in FOREIGN:
                instead = FOREIGN[name] if name != "opset_version" else f"target_opset={value}"
                raise TypeError(f"{function.__name__} has no argument {name}: write {instead}")
        if len(args) > 3:
            raise TypeError(
                f"{function.__name__} takes the model, args and kwargs by position: write the others by name"
            )
        return function(*args, **kwargs)

    return explained


def refuse_foreign_arguments(kwargs: Any, export_options: Any) -> None:
    """Raise TypeError when a file name stands for the keyword arguments, or a dict for the options of the capture."""
    if isinstance(kwargs, (str, os.PathLike)):
        raise TypeError(
            f"the third argument is the model's keyword arguments: write filename={os.fspath(kwargs)!r}"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs is a dict of keyword arguments, not {type(kwargs).__name__}")
    if isinstance(export_options, Mapping):
        written = ", ".join(f"{name}={value!r}" for name, value in export_options.items())
        raise TypeError(f"export_options is an ExportOptions, not a dict: write ExportOptions({written})")
    if isinstance(export_options, type):
        raise TypeError(
            f"export_options is an ExportOptions, not the class: write {export_options.__name__}()"
        )
    if export_options is not None and not hasattr(export_options, "capture"):
        raise TypeError(f"export_options is an ExportOptions, not {type(export_options).__name__}")


def refuse_misfits(filename: Any, report: Any, verify: Any, progress: Any) -> None:
    """Raise TypeError for a file that is no path of text, for *verify* that is neither True nor False, for *progress* that is not called."""
    for name, path in (("filename", filename), ("report", report)):
        is_path = isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str)
        if path is not None and not is_path:
            raise TypeError(f"{name} is the path of a file, not {path!r}")
    refuse_no_switches(verify=verify)
    refuse_no_progress(progress)


def refuse_no_names(**lists: Any) -> None:
    """Raise TypeError for the first that is one text, has no order or holds something else, ValueError when a name is empty; None is no list."""
    for argument, names in lists.items():
        is_list = isinstance(names, Iterable) and not isinstance(names, (str, dict, set, frozenset))
        if names is not None and not (is_list and all(isinstance(name, str) for name in names)):
            raise TypeError(f"{argument} is a list of names, not {names!r}")
        if "" in (names or ()):
            raise ValueError(f"{argument} holds an empty name, which in ONNX stands for nothing")


def refuse_no_switches(may_be_none: bool = False, **switches: Any) -> None:
    """Raise TypeError for the first that is neither True nor False, nor None where it *may_be_none*."""
    for name, value in switches.items():
        if not isinstance(value, bool) and not (may_be_none and value is None):
            allowed = "None, True or False" if may_be_none else "True or False"
            raise TypeError(f"{name} is {allowed}, not {value!r}")


def refuse_no_progress(progress: Any) -> None:
    """Raise TypeError for what is not called as a progress is."""
    if not callable(progress):
        raise TypeError(f"progress is a function of a stage and its number of steps, not {progress!r}")


def refuse_no_count(least: int, **counts: Any) -> None:
    """Raise TypeError for the first that is no whole number, ValueError for one below *least*."""
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"{name} is a whole number, not {count!r}")
        if count < least:
            raise ValueError(f"{name} is {least} at least, not {count}")


def opsets_by_domain(target: Mapping[str, int]) -> dict[str, int]:
    """Versions by domain, ``"ai.onnx"`` being another name of ``""``.

    Raises TypeError for a domain that is no text or a version that is no int, ValueError for two versions of ai.onnx, and for one that
    com.microsoft, or any domain, does not have.
    """
    versions: dict[str, int] = {}
    for domain, version in target.items():
        if not isinstance(domain, str) or not isinstance(version, int) or isinstance(version, bool):
            raise TypeError(f"target_opset is an int or a dict of versions by domain, not {dict(target)!r}")
        domain = "" if domain == "ai.onnx" else domain
        if versions.setdefault(domain, version) != version:
            raise ValueError(f"target_opset names two versions of ai.onnx, {versions[domain]} and {version}")
        if domain and (version < 1 or (domain == "com.microsoft" and version > 1)):
            raise ValueError(f"target_opset names version {version} of {domain}, which there is not")
    return versions
