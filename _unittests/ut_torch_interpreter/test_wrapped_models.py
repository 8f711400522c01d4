"""Models inside of others: compiled, parallel, scripted, made under inference_mode, parametrized, called with other weights."""

import unittest

import torch
import torch.distributed
from torch import nn
from torch.nn.utils import parametrizations, prune

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx

torch.manual_seed(0)

X = torch.randn(4, 3)
ROWS = ({0: "rows"},)


class Sum(torch.Tensor):
    """A tensor that holds two others, and is their sum."""

    @staticmethod
    def __new__(cls, left, right):
        return torch.Tensor._make_wrapper_subclass(cls, left.shape, dtype=left.dtype)

    def __init__(self, left, right):
        self.left, self.right = left, right

    def __tensor_flatten__(self):
        return ["left", "right"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Sum(inner["left"], inner["right"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return type(args[0])(function(args[0].left), function(args[0].right))
        args, kwargs = torch.utils._pytree.tree_map_only(
            Sum, lambda x: x.left + x.right, (args, kwargs or {})
        )
        return function(*args, **kwargs)


class Read(Sum):
    """A sum that a linear layer reads by its parts, as it does the weights of torchao."""

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Read(inner["left"], inner["right"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight, bias = args
            return function(x, 2 * weight.left + weight.right, bias)
        return super().__torch_function__(function, types, args, kwargs or {})


class Holder(nn.Module):
    """Calls the module that it holds."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x).exp()


class Borrowing(nn.Module):
    """Calls a layer with a weight of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return torch.func.functional_call(self.layer, {"weight": self.weight}, (x,))


class Ensemble(nn.Module):
    """Calls several networks as one."""

    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList([network() for _ in range(3)])

    def forward(self, x):
        weights, _ = torch.func.stack_module_state(list(self.members))
        return torch.func.vmap(self.one, in_dims=(0, None))(weights, x)

    def one(self, weights, x):
        return torch.func.functional_call(self.members[0], weights, (x,))


def network():
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))


class TestWrappers(ExporterTestCase):
    def assert_is(self, proto, module):
        """The model computes what *module* does, with its names."""
        y = torch.randn(6, 3)
        torch.testing.assert_close(run(session(proto), [y])[0], module(y).detach())
        self.assertLessEqual(set(module.state_dict()), {weight.name for weight in proto.graph.initializer})

    def test_parallel_wrappers_are_taken_off(self):
        module = network()
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        for wrapper in (nn.DataParallel, nn.parallel.DistributedDataParallel):
            with self.subTest(wrapper.__name__):
                proto = to_onnx(wrapper(module), (X,), dynamic_shapes=ROWS)
                self.assert_is(proto, module)
                self.assertEqual("input", proto.graph.input[0].name)
                inner = wrapper(module)
                self.assert_is(to_onnx(Holder(inner), (X,), dynamic_shapes=ROWS), Holder(inner))
                self.assertNotIn("forward", vars(inner))
        self.assert_is(to_onnx(torch.compile(nn.DataParallel(module)), (X,), dynamic_shapes=ROWS), module)

    def test_scripted_submodules(self):
        traced = Holder(torch.jit.trace(network(), X))
        self.export_and_compare(
            traced, (X,), others=[(torch.randn(6, 3),)], dynamic_shapes=ROWS, target_opset=20
        )
        for options in (ExportOptions(), ExportOptions(tracing="make_fx")):
            with self.assertRaisesRegex(
                CaptureError,
                "the submodule part.1 is TorchScript, which the capture could not follow\n"
                "  hint   put the nn.Module that was scripted or traced in its place",
            ):
                scripted = Holder(nn.Sequential(nn.Tanh(), torch.jit.script(network())))
                to_onnx(scripted, (X,), export_options=options)

    def test_a_weight_that_holds_other_tensors(self):
        def held(*sizes):
            return nn.Parameter(Sum(torch.randn(sizes), torch.randn(sizes)), requires_grad=False)

        model = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 3))
        model[0].weight, model[2].weight = held(50, 3), held(3, 50)
        message = (
            r"the weight 0\.weight is a Sum, which holds other tensors: "
            r"ExportOptions\(tracing='make_fx'\) takes them, run_decompositions\(\) those of an ExportedProgram, or make an ordinary one of it first"
        )
        with self.assertRaisesRegex(ExportError, message):
            to_onnx(model, (X,), dynamic_shapes=ROWS)
        options = ExportOptions(tracing="make_fx")
        self.export_and_compare(
            model, (X,), others=[(torch.randn(6, 3),)], dynamic_shapes=ROWS, export_options=options
        )
        program = torch.export.export(
            model, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        ).run_decompositions()
        (got,) = session(to_onnx(program)).run(None, {"input": X.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), model(X))
        self.assertIsInstance(model[0].weight, Sum)

    def test_a_weight_whose_tensors_the_program_reads(self):
        def held(*sizes):
            return nn.Parameter(Read(torch.randn(sizes), torch.randn(sizes)), requires_grad=False)

        model = nn.Sequential(nn.Linear(3, 2000), nn.Tanh(), nn.Linear(2000, 3))
        model[0].weight, model[2].weight = held(2000, 3), held(3, 2000)
        program = torch.export.export(model, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        read = torch.ops.export.access_subclass_inner_tensor.default
        self.assertIn(read, [node.target for node in program.graph.nodes])
        for exported in (
            to_onnx(program, optimize=False),
            to_onnx(model, (X,), dynamic_shapes=ROWS, optimize=False),
        ):
            self.assertIn("0.weight.right", [tensor.name for tensor in exported.graph.initializer])
        self.export_and_compare(model, (X,), others=[(torch.randn(6, 3),)], dynamic_shapes=ROWS)

    def test_an_input_whose_tensors_the_program_reads(self):
        weight = Read(torch.randn(50, 3), torch.randn(50, 3))
        with self.assertRaisesRegex(ExportError, "an input that holds other tensors"):
            to_onnx(lambda x, weight: nn.functional.linear(x, weight, None), (X, weight))

    def test_inference_mode(self):
        with torch.inference_mode():
            module = network()
        ordinary = network()
        for tracing in ("export", "make_fx"):
            options = ExportOptions(tracing=tracing)
            for model in (module, ordinary):
                with self.subTest(tracing, model=model is module):
                    outside = to_onnx(model, (X,), dynamic_shapes=ROWS, export_options=options)
                    with torch.inference_mode():
                        y = torch.randn(6, 3)
                        inside = to_onnx(model, (X + 0,), dynamic_shapes=ROWS, export_options=options)
                        for proto in (outside, inside):
                            torch.testing.assert_close(run(session(proto), [y])[0], model(y))

    def test_parametrizations_and_hooks(self):
        linear = lambda: nn.Linear(3, 3)
        models = {
            "weight_norm": parametrizations.weight_norm(linear()),
            "spectral_norm": parametrizations.spectral_norm(linear()).eval(),
            "orthogonal": parametrizations.orthogonal(linear()),
            "old weight_norm": nn.utils.weight_norm(linear()),
            "old spectral_norm": nn.utils.spectral_norm(linear()).eval(),
            "pruned": prune.l1_unstructured(linear(), "weight", 0.5),
            "functional_call": Borrowing(),
            "an ensemble": Ensemble(),
        }
        for promise, model in models.items():
            for tracing in ("export", "make_fx"):
                with self.subTest(promise, tracing=tracing):
                    proto = to_onnx(
                        model, (X,), dynamic_shapes=ROWS, export_options=ExportOptions(tracing=tracing)
                    )
                    for x in (X, torch.randn(6, 3)):
                        torch.testing.assert_close(run(session(proto), [x])[0], model(x).detach())


if __name__ == "__main__":
    unittest.main()
