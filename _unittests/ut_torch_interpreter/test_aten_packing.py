"""Packed sequences: recurrent layers over rows of different lengths."""

import unittest

import torch
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

T = torch.tensor
BATCH_FIRST = {"dynamic_shapes": ({0: "batch", 1: "steps"}, {0: "batch"})}
STEPS_FIRST = {"dynamic_shapes": ({1: "batch", 0: "steps"}, {0: "batch"})}
SORTED = ([5, 4, 2], [6, 5, 3, 2, 1], [4], [1], [3, 1])
UNSORTED = ([2, 5, 4], [3, 6, 1, 5, 2], [4], [1], [1, 3])


class Tagger(torch.nn.Module):
    """Pack, run, pad: what most models do."""

    def __init__(self, layer, sorted=True, padding=0.0, total=None):
        super().__init__()
        self.layer = layer
        self.sorted = sorted
        self.padding = padding
        self.total = total

    def forward(self, x, lengths):
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.sorted)
        result, states = self.layer(packed)
        total = x.shape[1 if first else 0] if self.total == "steps" else self.total
        return *pad_packed_sequence(result, first, self.padding, total), states


aten = torch.ops.aten
NETWORKS = {
    aten.gru.data: torch.nn.GRU(3, 4),
    aten.lstm.data: torch.nn.LSTM(3, 4),
    aten.rnn_relu.data: torch.nn.RNN(3, 4, nonlinearity="relu"),
    aten.rnn_tanh.data: torch.nn.RNN(3, 4),
}


def kinds(model):
    return [node.op_type for node in model.graph.node]


class TestOperators(ExporterTestCase):
    def test_networks(self):
        """Told the elements and how many rows have each step, which are inputs of the model."""
        data, batch_sizes = torch.randn(9, 3), T([4, 3, 1, 1])
        for target, module in NETWORKS.items():
            with self.subTest(target):
                hidden = torch.randn(1, 4, 4)
                states = [hidden, hidden * 2] if target is aten.lstm.data else hidden
                weights = [weight.detach() for weight in module._flat_weights]
                args = (data, batch_sizes, states, weights, True, 1, 0.0, False, False)
                self.assert_same_as_eager(target, *args, dynamic=False, target_opset=20)

    def test_packing(self):
        x = torch.randn(3, 4, 2)
        self.assert_cases(
            {
                "steps first": (aten._pack_padded_sequence.default, x, T([3, 2, 2, 1]), False),
                "the batch first": (aten._pack_padded_sequence.default, x, T([4, 2, 1]), True),
                "of integers": (
                    aten._pack_padded_sequence.default,
                    torch.arange(6).reshape(2, 3),
                    T([2, 1]),
                    True,
                ),
            },
            dynamic=False,
        )

    def test_padding(self):
        data, batch_sizes = torch.randn(6, 2), T([3, 2, 1])
        self.assert_cases(
            {
                "steps first": (aten._pad_packed_sequence.default, data, batch_sizes, False, 0.0, 0),
                "another value": (aten._pad_packed_sequence.default, data, batch_sizes, True, -2.5, 3),
                "longer than the longest": (
                    aten._pad_packed_sequence.default,
                    data,
                    batch_sizes,
                    True,
                    1.0,
                    5,
                ),
                "without features": (
                    aten._pad_packed_sequence.default,
                    data[:, 0],
                    batch_sizes,
                    False,
                    7.0,
                    4,
                ),
            },
            dynamic=False,
        )


class TestPacked(ExporterTestCase):
    def check(self, module, all_lengths=SORTED, more=0, dtype=torch.float32, **options):
        """Right for other lengths, of batches padded to *more* steps than the longest row has."""
        first = getattr(getattr(module, "layer", None), "batch_first", True)

        def call(lengths):
            steps, batch = max(lengths) + more, len(lengths)
            x = torch.randn(*((batch, steps) if first else (steps, batch)), 3).to(dtype)
            return x, T(lengths)

        return self.export_and_compare(
            module.eval(),
            call(all_lengths[0]),
            others=[call(lengths) for lengths in all_lengths],
            target_opset=20,
            **({**(BATCH_FIRST if first else STEPS_FIRST), **options}),
        )

    def test_networks(self):
        for build, operator in ((torch.nn.LSTM, "LSTM"), (torch.nn.GRU, "GRU"), (torch.nn.RNN, "RNN")):
            with self.subTest(operator):
                model = self.check(Tagger(build(3, 4, batch_first=True)))
                self.assertEqual(kinds(model).count(operator), 1)
                self.assertNotIn("ScatterND", kinds(model), "the batch that was packed is at hand")
                self.assertTrue(next(node for node in model.graph.node if node.op_type == operator).input[4])
                output = model.graph.output[0].type.tensor_type.shape.dim
                self.assertEqual((output[0].dim_param, output[2].dim_value), ("batch", 4))

    def test_forms(self):
        relu = {"nonlinearity": "relu"}
        cases = {
            "steps first, two directions": (torch.nn.GRU(3, 4, bidirectional=True), {}, {}),
            "two layers, no biases": (torch.nn.RNN(3, 4, 2, bias=False, **relu), {}, {}),
            "rows in any order": (torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), {"sorted": False}, {}),
            "the padding is another value": (torch.nn.GRU(3, 4, batch_first=True), {"padding": -7.0}, {"more": 2}),
            "as long as the input": (torch.nn.LSTM(3, 4, batch_first=True), {"total": "steps", "sorted": False}, {"more": 2}),
            "steps first, as long as the input": (torch.nn.GRU(3, 4), {"total": "steps", "padding": 2.0}, {"more": 1}),
            "longer than every batch": (torch.nn.GRU(3, 4, batch_first=True), {"total": 9, "padding": 1.0}, {"more": 1}),
            "projected": (torch.nn.LSTM(3, 4, proj_size=2, bidirectional=True), {"sorted": False}, {"more": 1}),
            "float64": (torch.nn.LSTM(3, 4, bidirectional=True, dtype=torch.float64), {}, {"dtype": torch.float64}),
            "float16": (torch.nn.GRU(3, 4, dtype=torch.float16), {}, {"dtype": torch.float16}),
        }  # fmt: skip
        for promise, (layer, options, check) in cases.items():
            with self.subTest(promise):
                module = Tagger(layer, **options)
                self.check(module, SORTED if module.sorted else UNSORTED, **check)

    def test_static_sizes(self):
        module = Tagger(torch.nn.LSTM(3, 4, batch_first=True), sorted=False, total=5).eval()
        others = [(torch.randn(3, 5, 3), T(lengths)) for lengths in ([1, 1, 1], [5, 5, 5], [2, 3, 1])]
        self.export_and_compare(module, (torch.randn(3, 5, 3), T([2, 5, 4])), others=others)

    def test_initial_states(self):
        class Decoder(torch.nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.layer = layer

            def forward(self, x, lengths, states):
                packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                result, states = self.layer(packed, states)
                return pad_packed_sequence(result, batch_first=True)[0], states

        for build in (torch.nn.GRU, torch.nn.LSTM):
            with self.subTest(build.__name__):

                def call(lengths, build=build):
                    hidden = torch.randn(1, len(lengths), 4)
                    states = (hidden, hidden * 2) if build is torch.nn.LSTM else hidden
                    return torch.randn(len(lengths), max(lengths), 3), T(lengths), states

                axes = ({1: "batch"}, {1: "batch"}) if build is torch.nn.LSTM else {1: "batch"}
                self.export_and_compare(
                    Decoder(build(3, 4, batch_first=True)),
                    call([2, 4, 3]),
                    others=[call(lengths) for lengths in UNSORTED],
                    dynamic_shapes=({0: "batch", 1: "steps"}, {0: "batch"}, axes),
                    target_opset=20,
                )

    def test_a_classifier_reads_the_last_states(self):
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
                self.out = torch.nn.Linear(8, 2)

            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
                _, (hidden, _) = self.layer(packed)
                return self.out(torch.cat([hidden[0], hidden[1]], dim=-1)).softmax(-1)

        model = self.check(Classifier(), UNSORTED, more=1)
        self.assertNotIn("Compress", kinds(model))
        self.assertNotIn("ReduceSum", kinds(model))

    def test_the_elements_are_changed(self):
        """What was packed is unpacked when the elements between two layers are no longer the same."""

        class Between(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.GRU(3, 4, batch_first=True)
                self.second = torch.nn.LSTM(4, 2, batch_first=True, bidirectional=True)

            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths, batch_first=True)
                result, _ = self.layer(packed)
                changed = PackedSequence(result.data.relu() * 2, result.batch_sizes)
                result, states = self.second(changed)
                return result.data, result.batch_sizes, *pad_packed_sequence(result, batch_first=True), states

        self.check(Between(), more=1)

    def test_packing_alone(self):
        def forward(x, lengths):
            packed = pack_padded_sequence(x, lengths, batch_first=True)
            other = pack_padded_sequence(x, torch.ones_like(lengths), batch_first=True)
            padded, sizes = pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
            return packed.data * 2, packed.batch_sizes, padded, sizes, other.data, other.batch_sizes

        module = torch.nn.Module()
        module.forward = forward
        self.check(module, more=1)

    def test_a_list_of_sequences(self):
        def forward(x, y):
            packed = pack_sequence([x, y], enforce_sorted=False)
            return pad_sequence([x, y], batch_first=True), *pad_packed_sequence(packed), packed.data

        module = torch.nn.Module()
        module.forward = forward
        self.export_and_compare(module, (torch.randn(2, 3), torch.randn(4, 3)))

    def test_the_program_runs_in_torch(self):
        module = Tagger(torch.nn.GRU(3, 4, batch_first=True), sorted=False, total="steps")
        axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        with bypass_export_some_errors():
            program = torch.export.export(
                module,
                (torch.randn(3, 5, 3), T([2, 5, 4])),
                dynamic_shapes=(axes, {0: torch.export.Dim.DYNAMIC}),
            )
        x, lengths = torch.randn(4, 7, 3), T([1, 6, 2, 2])
        torch.testing.assert_close(program.module()(x, lengths), module(x, lengths))

    def test_decomposed(self):
        """The layers stay: what they decompose into has the lengths of the example."""
        options = {"export_options": ExportOptions(decomposition_table="default")}
        self.check(Tagger(torch.nn.LSTM(3, 4, batch_first=True), sorted=False), UNSORTED, **options)

    def test_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "FakeTensor"):
            to_onnx(
                Tagger(torch.nn.GRU(3, 4, batch_first=True)),
                (torch.randn(3, 5, 3), T([5, 4, 2])),
                export_options=ExportOptions(patches=False),
            )


if __name__ == "__main__":
    unittest.main()
