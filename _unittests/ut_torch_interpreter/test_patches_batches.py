"""Batches of any size under ``torch.vmap``, of operators whose rules in functorch are written for numbers."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches.batches import symbolic_rules

SIZES = (1, 2, 5)
"""Those of the other batches."""


class Mapped(torch.nn.Module):
    """A function under ``torch.vmap``; a module among its attributes when it is one."""

    def __init__(self, function, **options):
        super().__init__()
        self.function = function
        self.options = options

    def forward(self, *args):
        return torch.vmap(self.function, **self.options)(*args)


def floats(*shape):
    return lambda batch: torch.randn(batch, *shape)


def places(high, *shape):
    return lambda batch: torch.randint(0, high, (batch, *shape))


def shared(*shape, high=None):
    value = torch.randn(shape) if high is None else torch.randint(0, high, shape)
    return lambda batch: value


def norm(training, **weights):
    def batch_norm(x, *given):
        found = dict(zip(weights, given))
        statistics = (None, None) if training else (torch.ones(2), torch.full((2,), 2.0))
        return F.batch_norm(x, *statistics, **found, training=training)

    return batch_norm


def grids(x, theta):
    return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


def resized(mode, **options):
    return lambda x: F.interpolate(x, size=(5,) * (x.dim() - 2), mode=mode, **options)


IMAGES, LINES, VOLUMES = floats(3, 2, 6, 6), floats(3, 2, 6), floats(2, 1, 4, 4, 4)


class TestBatchesOfAnySize(ExporterTestCase):
    """Each row: a function of one sample, the makers of its batches, options of ``torch.vmap``."""

    CASES = {
        "gather": (lambda x, i: x.gather(0, i), floats(3), places(3, 2)),
        "gather of shared values": (
            lambda x, i: x.gather(-1, i),
            shared(4, 5),
            places(5, 4, 2),
            {"in_dims": (None, 0)},
        ),
        "gather at shared places": (
            lambda x, i: x.gather(1, i),
            floats(4, 5),
            shared(4, 2, high=5),
            {"in_dims": (0, None)},
        ),
        "quantile": (lambda x: x.quantile(0.3), floats(5)),
        "quantiles of an axis": (lambda x: torch.nanquantile(x, 0.3, 1, True), floats(3, 5)),
        "index_select": (lambda x: x.index_select(-1, torch.tensor([2, 0])), floats(4, 3)),
        "index_select at its own places": (lambda x, i: x.index_select(1, i), floats(3, 5, 2), places(5, 4)),
        "index_add": (
            lambda x, y: x.index_add(0, torch.tensor([1, 1]), y, alpha=2),
            floats(3, 4),
            floats(2, 4),
        ),
        "index_add at its own places": (
            lambda x, i, y: x.index_add(1, i, y, alpha=2),
            shared(2, 5),
            places(5, 3),
            floats(2, 3),
            {"in_dims": (None, 0, 0), "out_dims": 1},
        ),
        "scatter": (lambda x, i: x.scatter(0, i, 1.0), floats(5), places(5, 3)),
        "scatter of values": (
            lambda x, y: x.scatter(0, torch.tensor([3, 1]), y),
            shared(5),
            floats(2),
            {"in_dims": (None, 0)},
        ),
        "scatter that multiplies": (
            lambda x: (
                x.scatter(0, torch.tensor([3]), x[:1], reduce="multiply")
                + x.scatter(0, torch.tensor([1]), 2.0, reduce="add")
            ),
            floats(5),
        ),
        "scatter that reduces": (
            lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
            floats(5),
            places(5, 3),
            floats(3),
        ),
        "scatter in place": (lambda x, i: x.clone().scatter_(0, i, 1.0), floats(5), places(5, 3)),
        "scatter in place, of values": (
            lambda x, i, y: (
                x.clone().scatter_(-1, i, y).scatter_add_(0, i, y).scatter_reduce_(0, i, y, "amin")
            ),
            floats(5),
            places(1, 1),
            floats(1),
        ),
        "scatter in place, that multiplies": (
            lambda x, i: x.clone().scatter_(0, i, x[:1], reduce="multiply").scatter_(0, i, 2.0, reduce="add"),
            floats(5),
            places(5, 1),
        ),
        "rows in place": (
            lambda x, y: (
                x.clone().index_add_(0, torch.tensor([1, 1]), y).index_copy_(0, torch.tensor([2, 0]), y)
            ),
            floats(3, 4),
            floats(2, 4),
        ),
        "renorm": (lambda x: x.renorm(2, 0, 1.0) - x.clone().renorm_(1, 1, 0.5), floats(3, 4)),
        "copies of views": (
            lambda x: (
                torch.unbind_copy(x, 1)[2] + torch.split_with_sizes_copy(x, [1, 2], 1)[1][:, 0],
                torch.select_copy(x, 0, 1) + torch.slice_copy(x, 0, 1).sum(0),
                torch.squeeze_copy(x[:1]) + torch.squeeze_copy(x[:1], 0) + torch.squeeze_copy(x[:1], (0, 1)),
                torch.unsqueeze_copy(x, -1),
                torch.t_copy(x) + torch.transpose_copy(x, 0, 1) + torch.permute_copy(x, (1, 0)),
                torch.view_copy(x, (6,)) + torch.detach_copy(x).flatten(),
            ),
            floats(2, 3),
            {"out_dims": 0},
        ),
        "cat": (lambda x, y: torch.cat([x, y, x[:1]]), floats(3, 4), floats(2, 4)),
        "cat with shared values": (
            lambda x: torch.cat([torch.ones(3, 1, dtype=torch.int64), x], -1),
            floats(3, 4),
        ),
        "cat after an empty vector": (lambda x: torch.cat([torch.tensor([]), x.half()], 1), floats(3, 4)),
        "hstack of numbers": (lambda x: torch.hstack([x.sum(), x.mean()]), floats(3)),
        "vander": (lambda x: torch.vander(x) + torch.vander(x, 4, increasing=True), floats(4)),
        "searchsorted": (
            lambda x, y: torch.searchsorted(x.sort().values, y, right=True),
            floats(5),
            floats(3, 2),
        ),
        "searchsorted of a number": (
            lambda x, y: torch.searchsorted(x, y, sorter=x.argsort()),
            floats(5),
            floats(),
        ),
        "searchsorted of rows": (
            lambda x, y: torch.searchsorted(x.sort().values, y, side="left"),
            floats(2, 5),
            floats(2, 3),
        ),
        "take": (lambda x, i: x.take(i) + x.take(torch.tensor([5, 0])), floats(2, 3), places(6, 2)),
        "isin": (
            lambda i: torch.isin(i, torch.tensor([1, 3])) | torch.isin(i, 2, invert=True),
            places(5, 6),
        ),
        "gradient": (lambda x: torch.gradient(x, spacing=0.5, dim=0, edge_order=2)[0], floats(4, 2)),
        "tensorsolve": (
            lambda a, b: torch.linalg.tensorsolve(a + 9 * torch.eye(4), b),
            floats(4, 4),
            floats(4),
        ),
        "losses": (
            lambda x, y: (
                F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
                F.margin_ranking_loss(x, y, y.sign(), margin=0.5),
                F.triplet_margin_loss(x, y, x * 2, reduction="none"),
                F.soft_margin_loss(x, y.sign()),
                F.multi_margin_loss(x, torch.tensor([0, 3, 1])),
            ),
            floats(3, 4),
            floats(3, 4),
        ),
        "scatter_add": (lambda i, y: torch.zeros(4).scatter_add(0, i, y), places(4, 3), floats(3)),
        "cross_entropy": (lambda x, i: F.cross_entropy(x, i), floats(3, 5), places(5, 3)),
        "layer_norm": (torch.nn.LayerNorm(4), floats(3, 4)),
        "layer_norm with weights of its own": (
            lambda x, w, b: F.layer_norm(x, (4,), w, b),
            floats(3, 4),
            floats(4),
            floats(4),
        ),
        "layer_norm of one sample": (
            lambda x, w: F.layer_norm(x, (4,), w),
            shared(3, 4),
            floats(4),
            {"in_dims": (None, 0)},
        ),
        "group_norm": (torch.nn.GroupNorm(2, 4), floats(3, 4, 5)),
        "batch_norm": (torch.nn.BatchNorm2d(2).eval(), IMAGES),
        "batch_norm with weights of its own": (norm(False, weight=1, bias=1), LINES, floats(2), floats(2)),
        "batch_norm of the batch": (norm(True), LINES),
        "batch_norm of the batch with weights": (norm(True, weight=1, bias=1), LINES, floats(2), floats(2)),
        "instance_norm": (torch.nn.InstanceNorm2d(2, affine=True), IMAGES),
        "convolution": (torch.nn.Conv2d(2, 4, 3, groups=2), IMAGES),
        "convolution of one image": (torch.nn.Conv1d(2, 3, 3), floats(2, 6)),
        "transposed convolution": (torch.nn.ConvTranspose1d(2, 3, 3, stride=2), LINES),
        "pools": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, 2)), IMAGES),
        "pools of volumes": (
            lambda x: (F.max_pool3d(x, 2), F.avg_pool3d(x, 2), F.adaptive_avg_pool3d(x, 2)),
            VOLUMES,
        ),
        "adaptive maxima": (lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True), IMAGES),
        "pools of one image": (lambda x: F.max_pool2d(x, 2), floats(2, 6, 6)),
        "pads": (lambda x: (F.pad(x, (1, 2), "reflect"), F.pad(x, (1, 2), "replicate")), LINES),
        "pads of images": (
            torch.nn.Sequential(torch.nn.ReflectionPad2d(1), torch.nn.ReplicationPad2d(1)),
            IMAGES,
        ),
        "upsampling": (
            lambda x: (resized("nearest")(x), resized("bilinear")(x), resized("bicubic")(x)),
            IMAGES,
        ),
        "upsampling with antialias": (resized("bilinear", antialias=True), IMAGES),
        "upsampling of lines": (lambda x: (resized("nearest-exact")(x), resized("linear")(x)), LINES),
        "upsampling of volumes": (lambda x: (resized("nearest")(x), resized("trilinear")(x)), VOLUMES),
        "upsampling by a factor": (torch.nn.Upsample(scale_factor=2), IMAGES),
        "grids": (grids, IMAGES, floats(3, 2, 3)),
        "patches": (lambda x: (F.unfold(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)), IMAGES),
        "linear": (torch.nn.Linear(4, 3), floats(2, 5, 4)),
        "linear with weights of its own": (F.linear, floats(2, 5, 4), floats(3, 4), floats(3)),
        "attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), floats(2, 3, 5, 4)),
        "attention with a mask": (
            F.scaled_dot_product_attention,
            floats(2, 3, 5, 4),
            floats(2, 3, 5, 4),
            floats(2, 3, 5, 4),
            floats(5, 5),
        ),
        "attention with a shared mask": (
            F.scaled_dot_product_attention,
            floats(3, 5, 4),
            shared(3, 5, 4),
            floats(3, 5, 4),
            shared(5, 5),
            {"in_dims": (0, None, 0, None)},
        ),
        "a layer of a transformer": (
            torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).eval(),
            floats(2, 3, 8),
        ),
        "solve": (lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b), floats(3, 3), floats(3, 2)),
        "solve for a vector": (
            lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b),
            shared(3, 3),
            floats(3),
            {"in_dims": (None, 0)},
        ),
        "cross": (
            lambda x, y: torch.linalg.cross(x, y, dim=0),
            floats(3, 2),
            shared(3, 2),
            {"in_dims": (0, None)},
        ),
        "one in another": (
            lambda x, i: torch.vmap(lambda a: F.layer_norm(a.gather(-1, i), (2,)))(x),
            floats(3, 4, 5),
            places(5, 4, 2),
        ),
        "another axis": (
            torch.nn.LayerNorm(4),
            lambda batch: torch.randn(3, batch, 4),
            {"in_dims": 1, "out_dims": 1},
        ),
    }

    def exported(self, promise):
        function, *makers = self.CASES[promise]
        options = makers.pop() if isinstance(makers[-1], dict) else {}
        module = Mapped(function, **options)
        axes = options.get("in_dims", 0)
        axes = axes if isinstance(axes, tuple) else (axes,) * len(makers)
        shapes = tuple({} if axis is None else {axis: "batch"} for axis in axes)
        return module, lambda batch: tuple(make(batch) for make in makers), (shapes,)

    def test_any_size(self):
        for promise in self.CASES:
            module, inputs, shapes = self.exported(promise)
            with self.subTest(promise), torch.no_grad():
                self.export_and_compare(
                    module, inputs(3), others=[inputs(n) for n in SIZES], dynamic_shapes=shapes
                )

    def test_static_sizes(self):
        """functorch's own rules are those of a batch of a static size."""
        for promise in ("gather", "convolution", "linear"):
            module, inputs, _ = self.exported(promise)
            with self.subTest(promise), torch.no_grad():
                self.export_and_compare(module, inputs(3))

    def test_refused_without_the_patch(self):
        for promise in (
            "gather",
            "layer_norm",
            "convolution",
            "attention",
            "upsampling by a factor",
        ):
            module, inputs, shapes = self.exported(promise)
            message = (
                "torch.vmap takes the size of the batch for a number|Cannot call sizes|keeps dynamic sizes"
            )
            with self.subTest(promise), self.assertRaisesRegex((CaptureError, ExportError), message):
                options = ExportOptions(patches=False)
                to_onnx(module, inputs(3), dynamic_shapes=shapes, export_options=options)

    def test_what_stays_refused(self):
        rows, zeros = torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)
        lines, heads = torch.randn(3, 5, 2, 6), torch.randn(3, 2, 5, 4)
        cases = {
            "aten.convolution.default under torch.vmap has weights of each sample, for which the batch must have a static size": (
                F.conv1d,
                (torch.randn(3, 1, 2, 6), torch.randn(3, 4, 2, 3)),
            ),
            "an operator under torch.vmap takes the size of the batch for a number: give the function whole batches, or call "
            "torch._higher_order_ops.map": (lambda x: torch.histc(x, 4, -2, 2), (lines,)),
            "aten.gather.default under torch.vmap has numbers: give each an axis of one element": (
                lambda x, i: x.gather(0, i),
                (rows[:, 0], zeros),
            ),
            "aten.quantile.scalar of all axes that are kept, under torch.vmap": (
                lambda x: x.quantile(0.5, keepdim=True),
                (rows,),
            ),
            "aten.scaled_dot_product_attention.default with dropout under torch.vmap, of a batch of any size": (
                lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
                (heads,),
            ),
            "aten.native_batch_norm.default that counts under torch.vmap, with a batch of any size": (
                lambda x: torch.native_batch_norm(
                    x, None, None, torch.ones(2), torch.ones(2), True, 0.1, 1e-5
                )[0],
                (lines,),
            ),
        }
        for message, (function, inputs) in cases.items():
            with self.subTest(message), self.assertRaisesRegex(CaptureError, message):
                module = Mapped(function, randomness="different")
                to_onnx(module, inputs, dynamic_shapes=(({0: "batch"},) * len(inputs),))

    def test_the_rules_go(self):
        """functorch has its own rules again afterwards."""
        with symbolic_rules(), symbolic_rules():
            pass
        x, i = torch.randn(3, 4), torch.randint(0, 4, (3, 2))
        self.assertTrue(torch.equal(torch.vmap(lambda a, b: a.gather(0, b))(x, i), x.gather(1, i)))


if __name__ == "__main__":
    unittest.main()
