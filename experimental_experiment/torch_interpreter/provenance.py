"""Where an ONNX node comes from, under the keys that Netron and model-explorer read.

Source of semantics: the ``metadata_props`` that ``torch.onnx`` writes.
"""

from __future__ import annotations

import re

import torch

from experimental_experiment.torch_interpreter.errors import target_name


def provenance(node: torch.fx.Node) -> dict[str, str]:
    """``metadata_props`` of the nodes written for *node*: its modules, its FX text, the user's stack."""
    stack = node.meta.get("nn_module_stack") or {}
    scopes, classes = [], []
    for path, module in stack.values():
        scopes.append(path.removeprefix("L['self'].").removeprefix("L['self']"))
        classes.append(module if isinstance(module, str) else f"{module.__module__}.{module.__qualname__}")
    target = target_name(node.target)
    levels = [f"{scope}: {name}" for scope, name in zip(scopes, classes)]
    return {
        "namespace": "/".join([*levels, f"{node.name}: {target}"]),
        "pkg.torch.onnx.class_hierarchy": repr([*classes, target]),
        "pkg.torch.onnx.name_scopes": repr([*scopes, node.name]),
        "pkg.torch.onnx.fx_node": node.format_node() or "",
        "pkg.torch.onnx.stack_trace": without_generated(node.meta.get("stack_trace") or ""),
    }


def without_generated(stack: str) -> str:
    """A stack without the frames of graphs of torch.fx: what these are called says how many the process has made before."""
    frames = re.split(r'^(?=\s*File ")', stack, flags=re.MULTILINE)
    return "".join(
        frame for frame in frames if not frame.lstrip().startswith('File "<eval_with_key>')
    ).rstrip("\n")


def module_calls(node: torch.fx.Node) -> tuple[tuple[str, str, str], ...]:
    """The calls of submodules around an FX node, outermost first: key of the call, path, qualified class."""
    stack = node.meta.get("nn_module_stack") or {}
    calls = [
        (key, path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
        for key, (path, kind) in stack.items()
    ]
    return tuple(calls[1:])
