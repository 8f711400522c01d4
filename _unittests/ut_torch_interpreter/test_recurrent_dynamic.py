"""Recurrent layers over a number of steps that changes from call to call."""

import unittest
import warnings

import torch
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from _unittests.ut_control_flow.holder import uncompiled_outputs
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

NETWORKS = {
    "LSTM": (torch.nn.LSTM, {}),
    "GRU": (torch.nn.GRU, {}),
    "RNN of tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "RNN of relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}
FORMS = {
    "one layer": {},
    "the batch first": {"batch_first": True},
    "two layers and two directions": {"num_layers": 2, "bidirectional": True},
    "no biases, the batch first, two directions": {"bias": False, "batch_first": True, "bidirectional": True},
}


class InBodies(torch.nn.Module):
    """A layer of each kind in a branch, one in the steps of a scan and behind it."""

    def __init__(self):
        super().__init__()
        self.gru, self.rnn = torch.nn.GRU(4, 4), torch.nn.RNN(4, 4)
        self.lstm = torch.nn.LSTM(4, 2, 2, bidirectional=True)

    def forward(self, x):
        def step(h, row):
            y = self.gru(row)[0]
            return h + y.sum(0), y * 2

        chosen = torch.cond(x.sum() > 0, lambda x: self.lstm(x)[0] * 1, lambda x: self.rnn(x)[0] * 1, (x,))
        return chosen, scan(step, torch.zeros(4), x), self.gru(x)[0]


def shapes_of(model):
    """The names and the dimensions of inputs and outputs."""
    return {
        value.name: tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in [*model.graph.input, *model.graph.output]
    }


def initial(module, *batch, dtype=torch.float32):
    """States to begin with, as the module takes them."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = torch.randn(count, *batch, module.proj_size or module.hidden_size, dtype=dtype)
    if module.mode != "LSTM":
        return hidden
    return hidden, torch.randn(count, *batch, module.hidden_size, dtype=dtype)


def axes_of(states, batch):
    """What `dynamic_shapes` says of states."""
    return ({1: batch}, {1: batch}) if isinstance(states, tuple) else {1: batch}


class Head(torch.nn.Module):
    """What a model does with the result: all steps, the last one, the states."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.out = torch.nn.Linear(layer.hidden_size, 2)

    def forward(self, tokens):
        x = torch.nn.functional.one_hot(tokens, 3).float()
        steps, states = self.layer(x)
        hidden = states[0] if isinstance(states, tuple) else states
        return self.out(steps), self.out(steps[:, -1]), hidden[-1] + steps.mean(1), steps.flip(1)


class TestLength(ExporterTestCase):
    def check(self, module, dtype=torch.float32):
        """One operator a layer, the dimensions named as asked, right for other sizes; without and with states."""
        module = module.eval()
        order = (
            (lambda batch, steps: (batch, steps))
            if module.batch_first
            else (lambda batch, steps: (steps, batch))
        )

        def inputs(batch, steps):
            return torch.randn(*order(batch, steps), 3, dtype=dtype), initial(module, batch, dtype=dtype)

        x, states = inputs(2, 5)
        axes = dict(enumerate(order("batch", "steps")))
        others = [inputs(3, 9), inputs(1, 1), inputs(2, 1), inputs(1, 4)]
        if dtype == torch.float32:
            self.export_and_compare(
                module,
                (x,),
                dynamic_shapes=(axes,),
                others=[(other,) for other, _ in others],
                target_opset=20,
            )
        model = self.export_and_compare(
            module,
            (x, states),
            dynamic_shapes=(axes, axes_of(states, "batch")),
            others=others,
            target_opset=20,
        )
        found = shapes_of(model)
        self.assertEqual(found["input"], (*order("batch", "steps"), 3))
        width = (module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1)
        self.assertEqual(found["output_0"], (*order("batch", "steps"), width))
        for name in set(found) - {"input", "output_0"}:
            self.assertEqual(found[name][1], "batch")
        return [node.op_type for node in model.graph.node]

    def test_forms(self):
        for name, (build, more) in NETWORKS.items():
            for promise, options in FORMS.items():
                with self.subTest(promise, network=name):
                    kinds = self.check(build(3, 4, **more, **options))
                    self.assertEqual(kinds.count(name.split(" ")[0]), options.get("num_layers", 1))
                    self.assertNotIn("Scan", kinds)

    def test_projections(self):
        for options in ({}, {"batch_first": True, "bidirectional": True, "num_layers": 2}):
            with self.subTest(options):
                self.check(torch.nn.LSTM(3, 4, proj_size=2, **options))

    def test_other_floats(self):
        for name, (build, more) in NETWORKS.items():
            for dtype in (torch.float16, torch.float64):
                with self.subTest(name, dtype=dtype):
                    self.check(build(3, 4, batch_first=True, dtype=dtype, **more), dtype)

    def test_dropout_in_evaluation(self):
        self.check(torch.nn.LSTM(3, 4, num_layers=2, dropout=0.5))

    def test_unbatched(self):
        for name, (build, more) in NETWORKS.items():
            with self.subTest(name):
                module = build(3, 4, num_layers=2, bidirectional=True, **more)
                states = initial(module)
                model = self.export_and_compare(
                    module,
                    (torch.randn(5, 3), states),
                    dynamic_shapes=({0: "steps"}, None),
                    others=[(torch.randn(steps, 3), initial(module)) for steps in (1, 2, 8)],
                )
                self.assertEqual(shapes_of(model)["output_0"], ("steps", 8))

    def test_in_a_model(self):
        for layer in (torch.nn.LSTM(3, 4, batch_first=True), torch.nn.GRU(3, 4, 2, batch_first=True)):
            with self.subTest(type(layer).__name__):
                model = self.export_and_compare(
                    Head(layer),
                    (torch.randint(0, 3, (2, 5)),),
                    dynamic_shapes=({0: "batch", 1: "steps"},),
                    others=[(torch.randint(0, 3, shape),) for shape in ((4, 9), (1, 1), (3, 1))],
                )
                self.assertEqual(shapes_of(model)["output_0"], ("batch", "steps", 2))

    def test_ways_to_call_a_dimension_dynamic(self):
        module, x = torch.nn.GRU(3, 4, batch_first=True), torch.randn(2, 5, 3)
        for steps in (Dim.DYNAMIC, Dim.AUTO, Dim("steps", min=2, max=64), "steps"):
            strict = steps == "steps"
            with self.subTest(steps, strict=strict):
                self.export_and_compare(
                    module,
                    (x,),
                    dynamic_shapes=({0: Dim.DYNAMIC, 1: steps},),
                    others=[(torch.randn(4, 8, 3),)],
                    export_options=ExportOptions(strict=strict),
                    target_opset=20,
                )

    def test_the_length_of_the_example_is_one(self):
        self.export_and_compare(
            torch.nn.LSTM(3, 4, batch_first=True),
            (torch.randn(1, 1, 3),),
            dynamic_shapes=({0: "batch", 1: "steps"},),
            others=[(torch.randn(4, 8, 3),)],
        )


class ScannedCell(torch.nn.Module):
    """A cell in a loop over the steps, as its user wrote it."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        zeros = x.new_zeros(x.shape[1], self.cell.hidden_size)

        def lstm_step(states, row):
            hidden, memory = self.cell(row, tuple(states))
            return [hidden, memory], hidden.clone()

        def step(hidden, row):
            hidden = self.cell(row, hidden)
            return hidden, hidden.clone()

        if isinstance(self.cell, torch.nn.LSTMCell):
            return scan(lstm_step, [zeros, zeros.clone()], x)
        return scan(step, zeros, x)


class TestScannedCells(ExporterTestCase):
    def test_over_any_length(self):
        for cell in (torch.nn.LSTMCell(3, 4), torch.nn.GRUCell(3, 4), torch.nn.RNNCell(3, 4)):
            with self.subTest(type(cell).__name__):
                self.export_and_compare(
                    ScannedCell(cell),
                    (torch.randn(5, 2, 3),),
                    dynamic_shapes=({0: "steps", 1: "batch"},),
                    others=[(torch.randn(9, 3, 3),), (torch.randn(2, 1, 3),)],
                    target_opset=20,
                )


class TestProgram(ExporterTestCase):
    """What torch.export gives."""

    def program(self, module, x, shapes, **options):
        with bypass_export_some_errors():
            return torch.export.export(module, (x,), dynamic_shapes=(shapes,), **options)

    def test_memory_is_laid_out_as_by_the_loop(self):
        for name, (build, more) in NETWORKS.items():
            for promise, options in FORMS.items():
                with self.subTest(promise, network=name):
                    module, x = build(3, 4, **more, **options), torch.randn(3, 5, 3)
                    both = []
                    for shapes in ({}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}):
                        program = self.program(module, x, shapes)
                        (node,) = (n for n in program.graph.nodes if str(n.target).endswith(".input"))
                        both.append(
                            [
                                (value.dtype, [int(n) for n in (*value.shape, *value.stride())])
                                for value in node.meta["val"]
                            ]
                        )
                    self.assertEqual(*both)

    def test_torch_runs_it(self):
        module = torch.nn.LSTM(3, 4, batch_first=True)
        program = self.program(module, torch.randn(2, 5, 3), {0: Dim.DYNAMIC, 1: Dim.DYNAMIC})
        x = torch.randn(3, 8, 3)
        torch.testing.assert_close(program.module()(x), module(x))

    def test_decomposed(self):
        """The layers stay: what they decompose into has the length of the example."""
        for build, table in ((torch.nn.LSTM, "default"), (torch.nn.RNN, {})):
            with self.subTest(build.__name__):
                module = build(3, 4, batch_first=True)
                model = self.export_and_compare(
                    module,
                    (torch.randn(2, 5, 3),),
                    dynamic_shapes=({0: "batch", 1: "steps"},),
                    others=[(torch.randn(3, 8, 3),)],
                    export_options=ExportOptions(decomposition_table=table),
                    target_opset=20,
                )
                self.assertEqual(shapes_of(model)["input"], ("batch", "steps", 3))

    def test_decomposed_into_steps(self):
        """The last states keep their three axes, for a batch of one too."""
        cases = ({"num_layers": 2}, {"bidirectional": True}, {"proj_size": 2}, {"bias": False})
        for options in cases:
            with self.subTest(options):
                self.export_and_compare(
                    torch.nn.LSTM(3, 4, batch_first=True, **options),
                    (torch.randn(2, 5, 3),),
                    dynamic_shapes=({0: "batch"},),
                    others=[(torch.randn(3, 5, 3),), (torch.randn(1, 5, 3),)],
                    export_options=ExportOptions(decomposition_table="default"),
                    target_opset=20,
                )

    def test_decomposed_as_the_user_says(self):
        table = torch.export.default_decompositions()
        with self.assertRaisesRegex(
            CaptureError,
            r"aten.lstm.input over a dynamic length decomposes into the steps of the example\n"
            r"  hint   leave aten.lstm.input out of decomposition_table",
        ):
            to_onnx(
                torch.nn.LSTM(3, 4),
                (torch.randn(5, 2, 3),),
                dynamic_shapes=({0: "steps"},),
                export_options=ExportOptions(decomposition_table=table),
            )

    def test_in_branches_and_bodies(self):
        module, x = InBodies(), torch.randn(3, 2, 4)
        lists = [module.gru._flat_weights, module.lstm._flat_weights, module.rnn._flat_weights]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The tensor attribute")
            self.export_and_compare(
                module,
                (x,),
                others=[(-x,), (torch.randn(5, 1, 4),), (torch.randn(1, 3, 4).abs(),)],
                dynamic_shapes=({0: "steps", 1: "batch"},),
                eager=uncompiled_outputs,
            )
        after = [module.gru._flat_weights, module.lstm._flat_weights, module.rnn._flat_weights]
        self.assertTrue(all(one is other for one, other in zip(lists, after)))
        with self.assertRaisesRegex(CaptureError, "HOP: Unsafe side effect"):
            to_onnx(module, (x,), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
