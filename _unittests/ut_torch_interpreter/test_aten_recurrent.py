"""Recurrent networks: one ONNX LSTM, GRU or RNN a layer; cells."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
NETWORKS = {
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
    "rnn_tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}
TARGETS = {
    "lstm": aten.lstm.input,
    "gru": aten.gru.input,
    "rnn_tanh": aten.rnn_tanh.input,
    "rnn_relu": aten.rnn_relu.input,
}
OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def weights(module):
    return [weight.detach() for weight in module._flat_weights]


def called_for_each(module: torch.nn.Module, order: list[int]):
    """A function that calls a network once for each of some results, by their numbers."""

    def results(x):
        return [
            torch.utils._pytree.tree_leaves(module(x))[number] + place for place, number in enumerate(order)
        ]

    return results


class TestRecurrent(ExporterTestCase):
    def run_overload(self, name, x, states, options, dtype=torch.float32, **kwargs):
        """Through the operator itself: its weights are inputs of the model, not constants."""
        build, more = NETWORKS[name]
        module = build(3, 4, dtype=dtype, **more, **options)
        self.assert_same_as_eager(
            TARGETS[name],
            x.to(dtype),
            [state.to(dtype) for state in states] if name == "lstm" else states[0].to(dtype),
            weights(module),
            module.bias,
            module.num_layers,
            0.0,
            False,
            module.bidirectional,
            module.batch_first,
            **kwargs,
        )

    def test_operators(self):
        x, states = torch.randn(5, 2, 3), [torch.randn(1, 2, 4), torch.randn(1, 2, 4)]
        for name in NETWORKS:
            with self.subTest(name):
                self.run_overload(name, x, states, {}, dynamic=False)

    def test_layers_and_directions_with_weights_as_inputs(self):
        x, states = torch.randn(5, 2, 3), [torch.randn(4, 2, 4), torch.randn(4, 2, 4)]
        for name in NETWORKS:
            with self.subTest(name):
                options = {"num_layers": 2, "bidirectional": True, "bias": name != "gru"}
                self.run_overload(name, x, states, options, dynamic=False)

    def test_every_float(self):
        x, states = torch.randn(5, 2, 3), [torch.randn(2, 2, 4), torch.randn(2, 2, 4)]
        for name in NETWORKS:
            for dtype in (torch.float64, torch.float16, torch.bfloat16):
                with self.subTest(name, dtype=dtype):
                    self.run_overload(name, x, states, {"bidirectional": True}, dtype, dynamic=False)

    def test_modules(self):
        """One ONNX operator a layer, its weights arranged once."""
        forms = {
            "one layer": {},
            "the batch first": {"batch_first": True},
            "two layers and two directions": {"num_layers": 2, "bidirectional": True},
            "no biases": {"bias": False, "num_layers": 2},
        }
        axis = {"the batch first": 0}
        for name, (build, more) in NETWORKS.items():
            for promise, options in forms.items():
                with self.subTest(promise, network=name):
                    module = build(3, 4, **more, **options)
                    batch = axis.get(promise, 1)
                    model = self.export_and_compare(
                        module,
                        (torch.randn(3, 3, 3),),
                        dynamic_shapes=({batch: "batch"},),
                        others=[(torch.randn(*((5, 3) if batch == 0 else (3, 5)), 3),)],
                    )
                    kinds = [node.op_type for node in model.graph.node]
                    self.assertEqual(module.num_layers, kinds.count(OPERATORS[name]))
                    self.assertNotIn("Split", kinds)

    def test_initial_states_and_unbatched_input(self):
        for name, (build, more) in NETWORKS.items():
            for batch in ((), (2,)):
                with self.subTest(name, batch=batch):
                    states = [torch.randn(2, *batch, 4) for _ in range(2 if name == "lstm" else 1)]
                    given = tuple(states) if name == "lstm" else states[0]
                    module = build(3, 4, num_layers=2, **more)
                    self.export_and_compare(module, (torch.randn(5, *batch, 3), given))

    def test_zero_states_are_left_out(self):
        for name, (build, more) in NETWORKS.items():
            for dtype in (torch.float32, torch.float64):
                with self.subTest(name, dtype=dtype):
                    module = build(3, 4, num_layers=2, bidirectional=True, **more).to(dtype)
                    model = self.export_and_compare(
                        module,
                        (torch.randn(5, 2, 3).to(dtype),),
                        others=[(torch.randn(3, 7, 3).to(dtype),), (torch.randn(1, 1, 3).to(dtype),)],
                        dynamic_shapes=({0: "steps", 1: "batch"},),
                    )
                    networks = [node for node in model.graph.node if node.op_type == OPERATORS[name]]
                    self.assertEqual([4] * len(networks), [len(node.input) for node in networks])

    def test_projected_lstm(self):
        for promise, options in {
            "one layer": {},
            "two layers, two directions, no biases": {"num_layers": 2, "bidirectional": True, "bias": False},
            "the batch first": {"batch_first": True, "bidirectional": True},
        }.items():
            with self.subTest(promise):
                self.export_and_compare(torch.nn.LSTM(3, 4, proj_size=2, **options), (torch.randn(5, 2, 3),))

    def test_dropout_between_layers(self):
        """Random in training, nothing in evaluation."""
        module, x = torch.nn.GRU(3, 4, num_layers=2, dropout=0.5), torch.randn(5, 2, 3)
        self.export_and_compare(module.eval(), (x,))
        runner = session(to_onnx(module.train(), (x,)))
        self.assertFalse(torch.equal(run(runner, [x])[0], run(runner, [x])[0]))

    def test_a_network_that_is_called_for_each_result(self):
        """One node gives all results, in any order, in the place of several that onnxruntime does not load."""
        for name, (network, options) in NETWORKS.items():
            module = network(3, 4, **options)
            count = 3 if name == "lstm" else 2
            for order in (range(count), reversed(range(count)), (1, 1, 0)):
                with self.subTest(name, order=order):
                    results = called_for_each(module, list(order))
                    self.assert_same_as_eager(results, torch.randn(5, 2, 3), others=[(torch.randn(4, 1, 3),)])


class TestCells(ExporterTestCase):
    CELLS = {
        aten.lstm_cell.default: (4, 2),
        aten.gru_cell.default: (3, 1),
        aten.rnn_tanh_cell.default: (1, 1),
        aten.rnn_relu_cell.default: (1, 1),
    }

    def test_same_as_eager(self):
        for target, (gates, states) in self.CELLS.items():
            for dtype in (torch.float32, torch.float64, torch.float16):
                for biases in (True, False):
                    with self.subTest(target, dtype=dtype, biases=biases):
                        shapes = [(4 * gates, 3), (4 * gates, 4), (4 * gates,), (4 * gates,)]
                        given = [torch.randn(shape).to(dtype) for shape in shapes[: 4 if biases else 2]]
                        hidden = [torch.randn(2, 4).to(dtype) for _ in range(states)]
                        self.assert_same_as_eager(
                            target, torch.randn(2, 3).to(dtype), hidden if states > 1 else hidden[0], *given
                        )


if __name__ == "__main__":
    unittest.main()
