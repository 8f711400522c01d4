"""Rows of Resize, and resizing between transpositions, which onnxruntime moves."""

import functools
import unittest

import onnx
import torch
from onnx.reference import ReferenceEvaluator

from experimental_experiment.testing import Call, ExporterTestCase, each, without_row
from experimental_experiment.torch_interpreter import to_onnx

interpolate = torch.nn.functional.interpolate
IMAGE = torch.randn(2, 7, 5, 3)
SIGNALS = torch.randn(2, 3, 6).index_put(
    (torch.tensor(1), torch.tensor(1), torch.tensor(0)), torch.tensor(torch.inf)
)


def last(x: torch.Tensor, **arguments) -> torch.Tensor:
    """A resized image whose channels come last."""
    return interpolate(x.permute(0, 3, 1, 2), **arguments).permute(0, 2, 3, 1)


ROWS = {
    "Resize.antialiased": (lambda x: interpolate(x, size=(4, 9), mode="bilinear", antialias=True), IMAGE.mT),
    "Resize.continued": (lambda x: interpolate(x, scale_factor=1.1, mode="bicubic"), IMAGE.mT),
    "Resize.of_one_sample": (lambda x: last(x, scale_factor=(2.0, 0.5), mode="bicubic"), IMAGE),
    "Resize.one_row_high": (lambda x: interpolate(x, scale_factor=2, mode="linear"), SIGNALS),
    "Resize.repeated_elements": (lambda x: interpolate(x, scale_factor=(2, 3)), IMAGE.double() * 1e300),
}

OTHER_ROWS = {
    "Resize.continued": (lambda x: interpolate(x, scale_factor=1.1, mode="bicubic"), IMAGE.mT),
    "Resize.neighbours_of_less": (lambda x: interpolate(x, scale_factor=0.5, mode="bicubic"), IMAGE.mT),
    "Resize.smoothed_nowhere": (lambda x: interpolate(x, scale_factor=1.5, mode="bicubic"), IMAGE.mT),
    "Resize.of_whole_lengths": (
        lambda x: interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
        IMAGE,
    ),
}
"""Rows for speed, and of the plain standard."""


def kinds_of(model: onnx.ModelProto) -> set[str]:
    """The operators of a model, those that smooth apart."""
    smoothed = {True: " antialias", False: ""}
    return {
        node.op_type + smoothed["antialias" in {item.name for item in node.attribute}]
        for node in model.graph.node
    }


class TestResampling(ExporterTestCase):
    CASES = {
        "nearest, twice": (last, IMAGE, {"scale_factor": 2.0}),
        "nearest, size": (last, IMAGE, {"size": (9, 4)}),
        "bilinear, twice": (last, IMAGE, {"scale_factor": 2.0, "mode": "bilinear"}),
        "bilinear, half": (last, IMAGE, {"scale_factor": 0.5, "mode": "bilinear"}),
        "bilinear, size": (last, IMAGE, {"size": (9, 4), "mode": "bilinear"}),
        "bilinear, corners": (last, IMAGE, {"size": (9, 4), "mode": "bilinear", "align_corners": True}),
        "bilinear, antialiased": (last, IMAGE, {"size": (9, 4), "mode": "bilinear", "antialias": True}),
        "bicubic": (last, IMAGE, {"scale_factor": 1.5, "mode": "bicubic"}),
        "bicubic, float16": (last, IMAGE.half(), {"size": (4, 9), "mode": "bicubic"}),
    }

    def test_between_transpositions(self):
        self.assert_cases(self.CASES)

    def test_no_sample_later(self):
        shrinks = {"scale_factor": 0.5, "mode": "bicubic"}
        others = [(IMAGE[:0],), (IMAGE[:1, :1],)]
        self.assert_same_as_eager(interpolate, IMAGE, kwargs=shrinks, others=others)

    def test_other_sizes_between_transpositions(self):
        every = each(
            lambda x, y: last(x, size=y.shape[:2], mode="bilinear"),
            lambda x, y: last(x, size=y.shape[:2], mode="nearest"),
            lambda x, y: last(x, scale_factor=1.5, mode="bicubic"),
        )
        others = [(torch.randn(3, 4, 11, 3), torch.randn(6, 8))]
        self.assert_same_as_eager(every, IMAGE, torch.randn(10, 4), others=others)

    def test_cubics_of_other_sizes_between_transpositions(self):
        every = each(
            lambda x, y: last(x, size=y.shape[:2], mode="bicubic"),
            lambda x, y: last(x, size=y.shape[:2], mode="bicubic", align_corners=True),
            lambda x, y: last(x, scale_factor=0.6, mode="bicubic"),
            lambda x, y: last(x, scale_factor=(0.5, 1.5), mode="bicubic"),
        )
        image, others = (
            torch.randn(2, 7, 5, 3),
            [(torch.randn(n, 9, 11, 3), torch.randn(6, 4)) for n in (3, 1, 0)],
        )
        shapes = ({0: "n", 1: "h", 2: "w"}, {0: "height", 1: "width"})
        example = image, torch.randn(9, 3)
        for opset in (17, 20):
            with self.subTest(opset=opset):
                call = Call(every, example, {})
                self.export_and_compare(
                    call, example, others=others, dynamic_shapes=(shapes,), target_opset=opset
                )
                self.assert_same_as_eager(every, *example, others=others[:2], target_opset=opset)

    def test_signals(self):
        """An infinity of one channel is in no other, for every way to say the size."""
        every = each(
            lambda x, y: interpolate(x, scale_factor=1.5, mode="linear"),
            lambda x, y: interpolate(x, size=9, mode="linear", align_corners=True),
            lambda x, y: interpolate(x, size=y.shape[0], mode="linear"),
        )
        others = [(torch.randn(4, 5, 7), torch.randn(3))]
        for dtype in (torch.float32, torch.float16):
            with self.subTest(dtype=dtype):
                given = [(x.to(dtype), y) for x, y in others]
                self.assert_same_as_eager(every, SIGNALS.to(dtype), torch.randn(12), others=given)

    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_rows_for_speed(self):
        """They write another form of the same numbers; what it gains stands in the row."""
        image = torch.randn(1, 3, 28, 28)
        for name, kinds in (
            ("Resize.smoothed_nowhere", {"Resize antialias"}),
            ("Resize.neighbours_of_less", {"Gather", "Mul", "ReduceSum"}),
        ):
            with self.subTest(name):
                function = OTHER_ROWS[name][0]
                with without_row(name):
                    slow = self.assert_same_as_eager(function, image, dynamic=False)
                fast = self.assert_same_as_eager(function, image, dynamic=False)
                self.assertEqual([{"Resize"}, kinds], [kinds_of(model) for model in (slow, fast)])

    def test_cubics_that_shrink(self):
        """In six nodes for every way to say the size, at the edges, and where one axis is as it was or grows."""
        image = torch.randn(2, 3, 41, 90) / 10  # positions are rounded in float32
        cases = {
            "a factor": ({"scale_factor": 0.3}, 6),
            "a factor that float32 does not say": ({"scale_factor": (1.0, 0.7)}, 6),
            "a size": ({"size": (41, 17)}, 6),
            "corners": ({"size": (13, 17), "align_corners": True}, 6),
            "one element": ({"size": (1, 1)}, 6),
            "one axis grows": ({"scale_factor": (2.0, 0.5)}, 3),
        }
        for promise, (arguments, count) in cases.items():
            with self.subTest(promise):
                function = functools.partial(interpolate, mode="bicubic", **arguments)
                model = self.assert_same_as_eager(function, image, dynamic=False)
                self.assertEqual(count, len(model.graph.node))

    def test_cubics_that_do_not_shrink(self):
        """At the edges, and where one axis is as it was."""
        every = each(
            lambda x: interpolate(x, scale_factor=(1.0, 1.5), mode="bicubic"),
            lambda x: interpolate(x, scale_factor=2.5, mode="bicubic"),
            lambda x: interpolate(x, scale_factor=(3.0, 0.5), mode="bicubic"),
            lambda x: interpolate(x, size=(9, 5), mode="bicubic"),
        )
        for dtype in (torch.float32, torch.float16):
            with self.subTest(dtype=dtype):
                self.assert_same_as_eager(
                    every, IMAGE.to(dtype), others=[(torch.randn(1, 7, 6, 2).to(dtype),)]
                )

    def test_corners_of_whole_lengths(self):
        """7 * 1.7 is 11, in the reference evaluator too."""
        function, image = OTHER_ROWS["Resize.of_whole_lengths"]
        sizes = ({2: "height", 3: "width"},)

        def differs():
            model = to_onnx(function, (image,), dynamic_shapes=sizes, runtime="onnx")
            evaluator, found = ReferenceEvaluator(model), []
            for x in (image, torch.randn(2, 3, 7, 9)):
                (got,) = evaluator.run(None, {model.graph.input[0].name: x.numpy()})
                found.append(not torch.allclose(torch.from_numpy(got), function(x), rtol=1e-4, atol=1e-4))
            return found

        self.assertEqual([False, False], differs())
        with without_row("Resize.of_whole_lengths"):
            self.assertIn(True, differs())
        plain = to_onnx(function, (image,), dynamic_shapes=sizes)
        self.assertEqual(["Resize"], [node.op_type for node in plain.graph.node])


if __name__ == "__main__":
    unittest.main()
