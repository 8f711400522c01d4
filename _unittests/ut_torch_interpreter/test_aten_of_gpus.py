"""Attention by the kernels of GPUs and other operators that only GPUs have: what the CPU computes in other words."""

import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment import comparison
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)
SCALE = 0.3


def normal(*shape):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR)


class Flash(torch.nn.Module):
    """The attended values, the logarithms of the sums and the gradients of an operator; it has no mask."""

    def __init__(self, is_causal):
        super().__init__()
        self.is_causal = is_causal

    def forward(self, query, key, value, mask, gradient):
        out, sums, *others = aten._scaled_dot_product_flash_attention.default(
            query, key, value, 0.0, self.is_causal, False, scale=SCALE
        )
        given = gradient, query, key, value, out, sums, *others[:4], 0.0, self.is_causal, *others[4:6]
        gradients = aten._scaled_dot_product_flash_attention_backward.default(*given, scale=SCALE)
        return out, sums, *gradients


class Efficient(Flash):
    """The same, and the gradient of the mask."""

    def forward(self, query, key, value, mask, gradient):
        out, sums, seed, offset = aten._scaled_dot_product_efficient_attention.default(
            query, key, value, mask, True, 0.0, self.is_causal, scale=SCALE
        )
        given = gradient, query, key, value, mask, out, sums, seed, offset, 0.0
        gradients = aten._scaled_dot_product_efficient_attention_backward.default(
            *given, [True, True, True, mask is not None], self.is_causal, scale=SCALE
        )
        return out, sums, *gradients[: 3 if mask is None else 4]


class Cudnn(Flash):
    """Without the gradient of the mask."""

    def forward(self, query, key, value, mask, gradient):
        out, sums, *others = aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, mask, True, 0.0, self.is_causal, False, scale=SCALE
        )
        given = gradient, query, key, value, out, sums, *others[4:6], mask, *others[:4], 0.0, self.is_causal
        return out, sums, *aten._scaled_dot_product_cudnn_attention_backward.default(*given, scale=SCALE)


class Overrideable(Flash):
    """With the gradient of the mask."""

    def forward(self, query, key, value, mask, gradient):
        out, sums, *others = aten._scaled_dot_product_fused_attention_overrideable.default(
            query, key, value, mask, 0.0, self.is_causal, False, scale=SCALE
        )
        given = (
            gradient,
            query,
            key,
            value,
            mask,
            [True, True, True, mask is not None],
            out,
            sums,
            *others[:4],
        )
        gradients = aten._scaled_dot_product_fused_attention_overrideable_backward.default(
            *given, 0.0, self.is_causal, *others[4:6], scale=SCALE
        )
        return out, sums, *gradients[: 3 if mask is None else 4]


def expected(query, key, value, mask, gradient, is_causal):
    """The attended values, the logarithms of the sums and the gradients, by torch's decomposition."""
    leaves = [x.clone().requires_grad_() for x in (query, key, value, mask) if x is not None]
    query, key, value, *masks = leaves
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, masks[0] if masks else None, is_causal=is_causal, scale=SCALE, enable_gqa=True
    )
    scores = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(-1, -2) * SCALE
    if masks:
        scores = scores + masks[0]
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return [x.detach() for x in (out, scores.logsumexp(-1), *torch.autograd.grad(out, leaves, gradient))]


def arguments(batch, queries, keys, groups, has_mask):
    """Query, key and value, the mask, the gradient of the attended values."""
    mask = normal(batch, 4, queries, keys) if has_mask else None
    rows = normal(batch, groups, keys, 8), normal(batch, groups, keys, 8)
    return normal(batch, 4, queries, 8), *rows, mask, normal(batch, 4, queries, 8)


class Attended(torch.nn.Module):
    """The attended values alone."""

    def forward(self, query, key, value):
        return aten._scaled_dot_product_flash_attention.default(query, key, value, 0.1, True)[0]


class TestFusedAttention(ExporterTestCase):
    CASES = {
        "flash": (Flash(False), 2, False),
        "flash, causal": (Flash(True), 4, False),
        "memory-efficient": (Efficient(False), 4, True),
        "memory-efficient, causal": (Efficient(True), 4, False),
        "cuDNN": (Cudnn(False), 2, True),
        "cuDNN, causal": (Cudnn(True), 4, False),
        "of another backend": (Overrideable(False), 2, True),
        "of another backend, causal": (Overrideable(True), 4, False),
    }

    def test_same_as_the_decomposition(self):
        for name, (model, groups, has_mask) in self.CASES.items():
            queries, keys = {0: "batch", 2: "queries"}, {0: "batch", 2: "keys"}
            mask = {0: "batch", 2: "queries", 3: "keys"} if has_mask else None
            example = arguments(2, 5, 7, groups, has_mask)
            onx = to_onnx(model, example, dynamic_shapes=(queries, keys, keys, mask, queries))
            session = comparison.session(onx)
            for call in (example, arguments(3, 36, 4, groups, has_mask)):
                with self.subTest(name, queries=call[0].shape[2]):
                    want = expected(*call, model.is_causal)
                    found = comparison.run(session, [x for x in call if x is not None])
                    found[1] = found[1].flatten(2)
                    if isinstance(model, Efficient):
                        self.assertEqual(0, found[1].shape[2] % 32)
                        found[1] = found[1][:, :, : want[1].shape[2]]
                    for ours, theirs in zip(found, want, strict=not isinstance(model, Cudnn)):
                        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    def test_without_gradients(self):
        class Model(torch.nn.Module):
            def forward(self, query, key, value):
                half = (x.half() for x in (query, key, value))
                values = aten._scaled_dot_product_cudnn_attention.default(
                    query, key, value, None, False, 0.0, True, False
                )
                return aten._scaled_dot_product_flash_attention.default(*half, 0.0, True)[0], values[0]

        given = arguments(2, 5, 7, 2, False)[:3]
        onx = to_onnx(Model(), given)
        want = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
        half, whole = comparison.run(comparison.session(onx), given)
        torch.testing.assert_close(half, want.half(), rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(whole, want, rtol=1e-5, atol=1e-5)

    def test_dropout(self):
        class Kept(Attended):
            def forward(self, query, key, value):
                return aten._scaled_dot_product_flash_attention.default(query, key, value, 0.1, True)[:2]

        given = arguments(2, 5, 7, 4, False)[:3]
        self.assertIn("RandomUniformLike", [node.op_type for node in to_onnx(Attended(), given).graph.node])
        with self.assertRaisesRegex(
            ExportError, "dropout_p=0.1 with a gradient, which draws the same numbers again"
        ):
            to_onnx(Kept(), given)


class TestOthers(ExporterTestCase):
    def exported_there(self, model, *args):
        """The results, by the CPU, of a model that was exported with tensors that say that they are on a GPU."""
        with FakeTensorMode():
            fakes = [torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in args]
        onx = to_onnx(torch.export.export(model, tuple(fakes)))
        return comparison.run(comparison.session(onx), args)

    def assert_close(self, found, want):
        """The same values, one by one."""
        for ours, theirs in zip(found, want, strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_statistics_without_training(self):
        """On a GPU the gradient is given the running statistics, on a CPU nothing."""

        class Normalized(torch.nn.Module):
            def forward(self, x, mean, var):
                return aten._native_batch_norm_legit_no_training(x, None, None, mean, var, 0.1, 1e-5)

        x, mean, var = normal(2, 3, 4), normal(3), normal(3).abs()
        want = Normalized()(x, mean, var)[0], mean, (var + 1e-5).rsqrt()
        self.assert_close(self.exported_there(Normalized(), x, mean, var), want)

    def test_rows_without_a_key(self):
        """onnxruntime's CUDA provider takes the lowest float32 for the largest one of minus infinities."""

        class Attended(torch.nn.Module):
            def forward(self, x, mask):
                attended = torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)
                return attended, aten._safe_softmax.default(mask, -1)

        x, mask = normal(2, 3, 4, 8), normal(2, 1, 4, 4)
        mask[0, 0, 1], mask[1, 0, 2, :3] = -torch.inf, -torch.inf
        mask[1, 0, 3] = torch.finfo(torch.float32).min
        self.assert_close(self.exported_there(Attended(), x, mask), Attended()(x, mask))

    def test_what_is_not_kept_for_the_gradient(self):
        """On a GPU log_sigmoid keeps no buffer and bags keep no indices of largest elements that they have not."""

        class Kept(torch.nn.Module):
            def forward(self, x, weight, indices, offsets):
                return *aten.log_sigmoid_forward(x), *aten._embedding_bag(weight, indices, offsets, False, 1)

        given = normal(2, 3), normal(6, 4), torch.tensor([1, 2, 0, 5]), torch.tensor([0, 3])
        want = list(Kept()(*given))
        want[1], want[-1] = torch.empty(0), torch.empty(0, dtype=torch.int64)
        self.assert_close(self.exported_there(Kept(), *given), want)

    def test_step_of_an_lstm(self):
        """The fused step and its gradient are those of the step in torch's own words."""

        class Step(torch.nn.Module):
            def forward(self, a, b, cell, bias, of_hidden, of_cell):
                hidden, new, workspace = aten._thnn_fused_lstm_cell.default(a, b, cell, bias, bias)
                gradients = aten._thnn_fused_lstm_cell_backward_impl.default(
                    of_hidden, of_cell, cell, new, workspace, True
                )
                return hidden, new, *gradients

        def step(a, b, cell, bias):
            entry, forget, new, exit = (a + b + 2 * bias).chunk(4, 1)
            cell = forget.sigmoid() * cell + entry.sigmoid() * new.tanh()
            return exit.sigmoid() * cell.tanh(), cell

        a, b, cell, of_hidden, of_cell = (normal(5, size) for size in (12, 12, 3, 3, 3))
        given = a, b, cell, normal(12), of_hidden, of_cell
        leaves = [x.clone().requires_grad_() for x in (a, cell, given[3])]
        results = step(leaves[0], b, *leaves[1:])
        of_gates, of_before, of_biases = torch.autograd.grad(results, leaves, (of_hidden, of_cell))
        want = *results, of_gates, of_before, of_biases / 2  # the operator gives that of one of two biases
        found = comparison.run(comparison.session(to_onnx(Step(), given)), given)
        for ours, theirs in zip(found, want, strict=True):
            torch.testing.assert_close(ours, theirs.detach())

    def test_products_of_halves_in_float32(self):
        class Products(torch.nn.Module):
            def forward(self, x, y, z):
                flat = aten.mm.dtype(x[0], y[0], torch.float32)
                return (
                    flat,
                    aten.bmm.dtype(x, y, torch.float32),
                    aten.addmm.dtype(z, x[0], y[0], torch.float32, alpha=2),
                )

        x, y, z = normal(2, 3, 4).half(), normal(2, 4, 5).half(), normal(3, 5)
        want = x[0].float() @ y[0].float(), x.float() @ y.float(), z + 2 * (x[0].float() @ y[0].float())
        found = comparison.run(comparison.session(to_onnx(Products(), (x, y, z))), (x, y, z))
        for ours, theirs in zip(found, want, strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_gradient_of_rms_norm(self):
        class Gradient(torch.nn.Module):
            def forward(self, gradient, x, weight):
                result, factor = aten._fused_rms_norm.default(x, [4], weight, 1e-5)
                return result, *aten._fused_rms_norm_backward.default(
                    gradient, x, [4], factor, weight, [True, True]
                )

        gradient, x, weight = normal(5, 4), normal(5, 4), normal(4)
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        result = torch.nn.functional.rms_norm(leaves[0], [4], leaves[1], 1e-5)
        want = result.detach(), *torch.autograd.grad(result, leaves, gradient)
        found = comparison.run(
            comparison.session(to_onnx(Gradient(), (gradient, x, weight))), (gradient, x, weight)
        )
        for ours, theirs in zip(found, want, strict=True):
            torch.testing.assert_close(ours, theirs)


if __name__ == "__main__":
    unittest.main()
