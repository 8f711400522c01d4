"""Weights given apart: models of the meta device and of FakeTensorMode, safetensors that stay where they are."""

import json
import os
import tempfile
import unittest

import onnx_ir as ir
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.conversion import to_ir
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.torch_interpreter.weights import WeightsError, weights_errors

ROWS = ({0: "rows"},)
X = torch.randn(3, 8)
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.float64: "F64"}


class Network(nn.Module):
    """Layers, one weight under two names, a buffer of the state and one that is not."""

    def __init__(self, width=16, has_constant=False):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.inner = nn.Linear(width, width)
        self.tied = nn.Linear(width, width)
        self.tied.weight = self.inner.weight
        self.register_buffer("scale", torch.rand(width))
        if has_constant:
            self.register_buffer("constant", torch.rand(width), persistent=False)

    def forward(self, x):
        y = self.tied(torch.tanh(self.inner(self.first(x)))) * self.scale
        return y + self.constant if hasattr(self, "constant") else y


def empty(kind, **options):
    """A network without values."""
    with torch.device("meta") if kind == "meta" else FakeTensorMode():
        return Network(**options)


def write_safetensors(tensors, filename):
    header, data = {}, b""
    for name, tensor in tensors.items():
        added = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": [*tensor.shape],
            "data_offsets": [len(data), len(data) + len(added)],
        }
        data += added
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with open(filename, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


class TestWeights(ExporterTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        path = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def assert_is(self, proto, model, tolerance=1e-5):
        for rows in (3, 5):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(
                run(session(proto), [x])[0], model(x).detach(), rtol=tolerance, atol=tolerance
            )

    def test_a_state_dict(self):
        model = Network()
        for kind in ("meta", "fake"):
            for tracing in ("export", "make_fx"):
                with self.subTest(kind, tracing=tracing):
                    options = ExportOptions(tracing=tracing)
                    proto = to_onnx(
                        empty(kind),
                        (X,),
                        dynamic_shapes=ROWS,
                        weights=model.state_dict(),
                        export_options=options,
                    )
                    self.assert_is(proto, model)

    def test_an_example_without_values(self):
        model = Network()
        with torch.device("meta"):
            x = torch.randn(3, 8)
        proto = to_onnx(empty("meta"), (x,), dynamic_shapes=ROWS, weights=model.state_dict())
        self.assert_is(proto, model)

    def test_the_model_is_as_before(self):
        model = empty("meta")
        to_onnx(model, (X,), weights=Network().state_dict())
        self.assertTrue(all(tensor.is_meta for tensor in model.state_dict().values()))
        self.assertIs(model.tied.weight, model.inner.weight)

    def test_a_layer_under_two_names_stays_on_the_meta_device(self):
        with torch.device("meta"):
            layer = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        model = nn.Sequential(layer, layer).eval()
        values = {name: torch.rand(weight.shape) for name, weight in layer.state_dict().items()}
        proto = to_onnx(model, (X,), weights={f"0.{name}": value for name, value in values.items()})
        self.assertEqual({"meta"}, {weight.device.type for weight in model.state_dict().values()})
        layer.load_state_dict(values, assign=True)
        self.assert_matches(proto, model, (X,))

    def test_other_values_of_a_model_that_has_some(self):
        model = Network()
        self.assert_is(to_onnx(Network(), (X,), dynamic_shapes=ROWS, weights=model.state_dict()), model)

    def test_a_tied_weight_under_one_name(self):
        model = Network()
        for name in ("inner.weight", "tied.weight"):
            with self.subTest(name):
                state = {key: value for key, value in model.state_dict().items() if key != name}
                file = self.path("model.safetensors")
                write_safetensors(state, file)
                proto = to_onnx(empty("meta"), (X,), dynamic_shapes=ROWS, weights=file, optimize=False)
                self.assert_is(proto, model)
                square = [weight for weight in proto.graph.initializer if list(weight.dims) == [16, 16]]
                self.assertEqual(1, len(square))

    def test_places_of_safetensors(self):
        model = Network(width=2**11)
        state = model.state_dict()
        shards = [dict(list(state.items())[:2]), dict(list(state.items())[2:])]
        cases = {
            "beside the model": ("model.safetensors", "model.onnx", {"model.safetensors"}),
            "below the model": ("weights/model.safetensors", "model.onnx", {"weights/model.safetensors"}),
            "elsewhere": ("weights/model.safetensors", "out/model.onnx", {"model.onnx.data"}),
        }
        for promise, (file, written, expected) in cases.items():
            with self.subTest(promise):
                write_safetensors(state, self.path(promise, file))
                filename = self.path(promise, written)
                proto = to_onnx(
                    empty("meta", width=2**11),
                    (X,),
                    dynamic_shapes=ROWS,
                    weights=self.path(promise, file),
                    filename=filename,
                )
                places = {w.external_data[0].value for w in proto.graph.initializer if w.external_data}
                self.assertEqual(expected, places)
                self.assertEqual("model.onnx.data" in expected, os.path.exists(filename + ".data"))
                self.assert_is(filename, model, 1e-3)
        for place, shard in enumerate(shards):
            write_safetensors(shard, self.path("shards", f"{place}.safetensors"))
        index = {"weight_map": {name: f"{k}.safetensors" for k, shard in enumerate(shards) for name in shard}}
        for has_index in (False, True):
            with self.subTest("a folder", has_index=has_index):
                if has_index:
                    with open(self.path("shards", "model.safetensors.index.json"), "w") as file:
                        json.dump(index, file)
                filename = self.path("shards", "model.onnx")
                proto = to_onnx(
                    empty("fake", width=2**11),
                    (X,),
                    dynamic_shapes=ROWS,
                    weights=self.path("shards"),
                    filename=filename,
                )
                places = {w.external_data[0].value for w in proto.graph.initializer if w.external_data}
                self.assertEqual({"0.safetensors", "1.safetensors"}, places)
                self.assert_is(filename, model, 1e-3)

    def test_a_model_in_one_piece(self):
        model = Network()
        file = self.path("weights", "model.safetensors")
        write_safetensors(model.state_dict(), file)
        self.assert_is(to_onnx(empty("meta"), (X,), dynamic_shapes=ROWS, weights=file), model)
        filename = self.path("model.onnx")
        to_onnx(empty("meta"), (X,), dynamic_shapes=ROWS, weights=file, filename=filename)
        os.remove(file)
        self.assert_is(filename, model)

    def test_another_dtype_is_cast(self):
        model = Network()
        for dtype, tolerance in ((torch.float16, 1e-2), (torch.float64, 1e-5)):
            with self.subTest(dtype):
                state = {name: value.to(dtype) for name, value in model.state_dict().items()}
                file = self.path("model.safetensors")
                write_safetensors(state, file)
                for weights in (state, file):
                    proto = to_onnx(empty("meta"), (X,), dynamic_shapes=ROWS, weights=weights)
                    self.assert_is(proto, model, tolerance)

    def test_a_buffer_that_is_not_in_the_state(self):
        model = Network(has_constant=True)
        state = model.state_dict()
        with self.assertRaisesRegex(WeightsError, "weights does not fit the model: missing constant$"):
            to_onnx(empty("meta", has_constant=True), (X,), weights=state)
        given = {**state, "constant": model.constant}
        proto = to_onnx(empty("meta", has_constant=True), (X,), dynamic_shapes=ROWS, weights=given)
        self.assert_is(proto, model)
        held = empty("meta", has_constant=True)
        held.constant = model.constant
        self.assert_is(to_onnx(held, (X,), dynamic_shapes=ROWS, weights=state), model)

    def test_an_exported_program(self):
        """One that was made off the meta device, one that was made on it, tied weights under one name."""
        model = Network(has_constant=True)
        x, dims = X.to("meta"), ({0: torch.export.Dim("rows")},)
        state = {**model.state_dict(), "constant": model.constant}
        tied = {name: value for name, value in state.items() if name != "tied.weight"}
        cases = {
            "others": (Network(has_constant=True), X, state),
            "none": (empty("meta", has_constant=True), x, state),
            "tied": (empty("meta", has_constant=True), x, tied),
        }
        for kind, (module, example, weights) in cases.items():
            with self.subTest(kind):
                program = torch.export.export(module, (example,), dynamic_shapes=dims)
                self.assert_is(to_onnx(program, weights=weights), model)
        program = torch.export.export(Network(), (X,))
        with self.assertRaisesRegex(WeightsError, "missing scale; unexpected more$"):
            to_onnx(
                program,
                weights={**{k: v for k, v in state.items() if k not in ("scale", "constant")}, "more": X},
            )

    def test_verify_needs_values(self):
        state = Network().state_dict()
        message = "verify runs the model that is given in eager, and first.weight has no values there"
        for kind in ("meta", "fake"):
            with self.subTest(kind), self.assertRaisesRegex(ValueError, message):
                to_onnx(empty(kind), (X,), weights=state, verify=True)
        with self.assertRaisesRegex(ValueError, "input 0 of the example has no values"):
            to_onnx(Network(), (X.to("meta"),), verify=True)
        model = Network()
        to_onnx(model, (X,), weights=model.state_dict(), verify=True)

    def test_weights_of_another_model(self):
        state = Network().state_dict()
        state["more"] = state.pop("first.weight")
        state["scale"] = torch.ones(3)
        with self.assertRaisesRegex(
            WeightsError,
            r"weights does not fit the model: missing first\.weight; unexpected more; scale is \[3\] and not \[16\]$",
        ):
            to_onnx(empty("meta"), (X,), weights=state)
        many = {**Network().state_dict(), **{f"other{k}": torch.ones(1) for k in range(12)}}
        with self.assertRaisesRegex(WeightsError, "unexpected other0, .*, other9 and 2 more$"):
            to_onnx(empty("meta"), (X,), weights=many)

    def test_what_is_no_weights(self):
        with self.assertRaisesRegex(
            TypeError, "weights is a state_dict, or the path of safetensors, not Network"
        ):
            to_onnx(empty("meta"), (X,), weights=Network())
        arrays = {name: value.numpy() for name, value in Network().state_dict().items()}
        with self.assertRaisesRegex(
            TypeError, "the weight first.weight is no tensor but ndarray: torch.as_tensor"
        ):
            to_onnx(empty("meta"), (X,), weights=arrays)
        with self.assertRaisesRegex(WeightsError, "the folder .* holds no safetensors"):
            to_onnx(empty("meta"), (X,), weights=self.folder)
        with open(self.path("text.safetensors"), "w") as file:
            file.write("no header at all")
        with self.assertRaisesRegex(WeightsError, "text.safetensors' is no safetensors file"):
            to_onnx(empty("meta"), (X,), weights=self.path("text.safetensors"))
        with self.assertRaises(FileNotFoundError):
            to_onnx(empty("meta"), (X,), weights=self.path("none.safetensors"))

    def test_malformed_headers(self):
        place = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        unclear = "does not say what the weight first.weight is"
        outside = "does not hold the weight first.weight, F32"
        cases = {
            "[1, 2, 3]": "is no safetensors file",
            "{": "is no safetensors file",
            "[" * 100000: "is no safetensors file",
            "3": "is no safetensors file",
            json.dumps({"first.weight": 3}): f"{unclear}: 3",
            json.dumps({"first.weight": {"shape": [2], "data_offsets": [0, 8]}}): unclear,
            json.dumps({"first.weight": place | {"dtype": 3}}): unclear,
            json.dumps({"first.weight": place | {"shape": [-2]}}): unclear,
            json.dumps({"first.weight": place | {"shape": 2}}): unclear,
            json.dumps({"first.weight": place | {"data_offsets": [0]}}): unclear,
            json.dumps({"first.weight": place | {"data_offsets": [0, True]}}): unclear,
            json.dumps({"first.weight": place | {"data_offsets": [8, 16]}}): outside + r"\[2\] from 8 to 16",
            json.dumps({"first.weight": place | {"shape": [3]}}): outside,
            json.dumps({"first.weight": place | {"dtype": "C64"}}): "is C64, which ONNX does not have",
        }
        path = self.path("header.safetensors")
        for text, message in cases.items():
            with open(path, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text.encode() + bytes(8))
            with (
                self.subTest(text[:80]),
                self.assertRaisesRegex(WeightsError, f"header.safetensors' .*{message}"),
            ):
                to_onnx(empty("meta"), (X,), weights=path)

    def test_malformed_indices(self):
        path = self.path("index", "model.safetensors.index.json")
        for content in (
            b"[]",
            b'{"weight_map": 3}',
            b'{"weight_map": {"a": []}}',
            b'{"weight_map": {"a": 3}}',
            b"\xff",
            b"{}",
        ):
            with open(path, "wb") as file:
                file.write(content)
            with (
                self.subTest(content),
                self.assertRaisesRegex(WeightsError, "index.json' does not say in which file each weight is"),
            ):
                to_onnx(empty("meta"), (X,), weights=os.path.dirname(path))

    def test_weights_that_are_written_after_the_export(self):
        """A weight itself, one that is cast, joined with others or scaled when it is written, a tensor of a closure."""
        double = {name: value.double() for name, value in Network().state_dict().items()}
        recurrent = nn.LSTM(8, 4)
        scaled = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).eval()
        scale = torch.rand(8)
        cases = {
            "a parameter": (Network(), {}, lambda model: model.first.weight),
            "one given apart": (empty("meta"), {"weights": double}, lambda model: double["first.weight"]),
            "a recurrent one": (recurrent, {}, lambda model: model.weight_hh_l0),
            "a scaled one": (scaled, {}, lambda model: model[0].weight),
            "a closure's": (lambda x: x * scale, {}, lambda model: scale),
        }
        message = "the weight .* was written after the export: export the model again"
        for kind, (model, options, written) in cases.items():
            with self.subTest(kind):
                exported = to_ir(model, (X,), **options)
                save(exported, self.path("model.onnx"))
                with torch.no_grad():
                    written(model).add_(1)
                with self.assertRaisesRegex(WeightsError, message), weights_errors():
                    save(exported, self.path("model.onnx"))
                self.assertEqual(["model.onnx"], os.listdir(self.folder))

    def test_weights_that_are_replaced_after_the_export(self):
        """The model keeps those that it was made of; what torch does not count is no write."""
        model = Network()
        expected = Network()
        expected.load_state_dict(model.state_dict())
        with torch.inference_mode():
            model.scale = model.scale.clone()
        exported = to_ir(model, (X,), dynamic_shapes=ROWS)
        model.first.weight.data = torch.zeros(16, 8)
        self.assert_is(ir.to_proto(exported), expected)

    def test_no_weights(self):
        for kind in ("meta", "fake"):
            for tracing in ("export", "make_fx"):
                with self.subTest(kind, tracing=tracing):
                    with self.assertRaisesRegex(ExportError, r"the weight .* give to_onnx\(weights=\.\.\.\)"):
                        to_onnx(empty(kind), (X,), export_options=ExportOptions(tracing=tracing))


if __name__ == "__main__":
    unittest.main()
