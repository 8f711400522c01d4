"""What the tests of this room share: a model compiled and the same model in eager, step after step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from experimental_experiment.comparison import TOLERANCES
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_dynamo import onnx_custom_backend


class BackendTestCase(ExporterTestCase):
    """Compiles models with the backend; eager is the truth."""

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.storage: dict[str, Any] = {}

    @property
    def instances(self) -> list[dict[str, Any]]:
        """What was compiled."""
        return self.storage.get("instance", [])

    def compiled(
        self, model: Callable, dynamic: bool | None = False, fullgraph: bool = True, **options: Any
    ) -> Callable:
        """A model on the backend, in one graph unless *fullgraph* says that there may be several."""

        def backend(*args):  # errors show the backend: the storage is long
            return onnx_custom_backend(*args, storage=self.storage, **options)

        return torch.compile(model, backend=backend, fullgraph=fullgraph, dynamic=dynamic)

    def assert_same_gradients(
        self, model: torch.nn.Module, calls: Sequence[tuple], dynamic: bool | None = False, **options: Any
    ) -> None:
        """Results, gradients of the parameters and of the float inputs, and buffers are eager's, call after call."""
        model, eager = copy.deepcopy(model), copy.deepcopy(model)
        compiled = self.compiled(model, dynamic, **options)
        for call in calls:
            seed = torch.randint(2**31, ()).item()
            expected, expected_inputs = self.step(eager, call, seed)
            found, found_inputs = self.step(compiled, call, seed)
            self.assert_close(found, expected, "results")
            self.assert_close(found_inputs, expected_inputs, "gradients of the inputs")
            for (name, ours), (_, theirs) in zip(model.named_parameters(), eager.named_parameters()):
                self.assert_close(ours.grad, theirs.grad, f"gradient of {name}")
            for (name, ours), (_, theirs) in zip(model.named_buffers(), eager.named_buffers()):
                self.assert_close(ours, theirs, name)

    def step(self, model: Callable, call: tuple, seed: int) -> tuple[Any, Any]:
        """The results of a call and the gradients of its inputs, of a loss that weighs every element."""
        torch.manual_seed(seed)
        inputs = [
            x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x
            for x in call
        ]
        results = model(*inputs)
        leaves = results if isinstance(results, (list, tuple)) else [results]
        loss = sum(
            (leaf * torch.linspace(-1, 1, leaf.numel()).to(leaf).reshape(leaf.shape)).sum()
            for leaf in leaves
            if leaf.requires_grad
        )
        if isinstance(loss, torch.Tensor):
            loss.backward()
        return results, [x.grad for x in inputs if isinstance(x, torch.Tensor)]

    def assert_close(self, found: Any, expected: Any, what: str) -> None:
        """Same dtype, shape and values, nested as they are."""
        ours, theirs = (torch.utils._pytree.tree_leaves(x) for x in (found, expected))
        self.assertEqual(len(ours), len(theirs), what)
        for a, b in zip(ours, theirs):
            relative, absolute = TOLERANCES.get(getattr(b, "dtype", torch.float32), (0, 0))
            message = lambda text: f"{what}: {text}"
            torch.testing.assert_close(a, b, rtol=relative, atol=absolute, msg=message)
