"""Attention: scaled_dot_product_attention in all its forms, and the fast path of nn.MultiheadAttention."""

import unittest

import torch
from onnx.reference import ReferenceEvaluator

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

aten = torch.ops.aten
sdpa = aten.scaled_dot_product_attention.default


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def closed_row(*shape):
    """A boolean mask that lets most positions through, and none in row 1."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[..., 0] = True
    mask[..., 1, :] = False
    return mask


def as_bias(mask, low=-torch.inf):
    return torch.where(mask, 0.0, low)


LOWEST = torch.finfo(torch.float32).min
Q, K, V = randn(2, 4, 3, 8), randn(2, 4, 5, 8), randn(2, 4, 5, 6)


class TestScaledDotProductAttention(ExporterTestCase):
    CASES = {
        "no mask, values of another size": (sdpa, Q, K, V),
        "causal with more keys": (sdpa, Q, K, V, None, 0.0, True),
        "causal with more queries": (sdpa, K, Q, randn(2, 4, 3, 6), None, 0.0, True),
        "a mask over positions": (sdpa, Q, K, V, closed_row(3, 5)),
        "a mask by batch": (sdpa, Q, K, V, closed_row(2, 1, 3, 5)),
        "a mask by head": (sdpa, Q, K, V, closed_row(4, 3, 5)),
        "a mask by batch and head": (sdpa, Q, K, V, closed_row(2, 4, 3, 5)),
        "a padding mask": (sdpa, Q, K, V, torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()[:, None, None]),
        "a mask with one column": (sdpa, Q, K, V, closed_row(3, 1)),
        "a bias": (sdpa, Q, K, V, randn(3, 5)),
        "a bias by batch": (sdpa, Q, K, V, randn(2, 1, 1, 5)),
        "a bias of minus infinity everywhere in a row": (sdpa, Q, K, V, as_bias(closed_row(3, 5))),
        "a bias of the lowest float everywhere in a row": (sdpa, Q, K, V, as_bias(closed_row(3, 5), LOWEST)),
        "three dimensions": (sdpa, Q[0], K[0], V[0], closed_row(3, 5)),
        "five dimensions": (sdpa, Q[None], K[None], V[None], closed_row(1, 2, 1, 3, 5)),
        "two dimensions": (sdpa, Q[0, 0], K[0, 0], V[0, 0]),
        "a scale": (sdpa, Q, K, V, None, 0.0, False, {"scale": 0.3}),
        "a negative scale": (sdpa, Q, K, V, None, 0.0, False, {"scale": -0.3}),
        "grouped queries": (sdpa, Q, K[:, :2], V[:, :2], None, 0.0, False, {"enable_gqa": True}),
        "grouped queries under a mask": (
            sdpa, Q, K[:, :1], V[:, :2], closed_row(2, 4, 3, 5), 0.0, False, {"enable_gqa": True},
        ),
        "grouped causal queries": (sdpa, Q, K[:, :2], V[:, :2], None, 0.0, True, {"enable_gqa": True}),
        "a NaN among the keys": (sdpa, Q, torch.where(K > 1.5, torch.nan, K), V),
        "scores beyond what exp holds": (sdpa, Q * 100, K * 100, V),
        "a batch that broadcasts": (sdpa, Q, K[:1], V[:1]),
    }  # fmt: skip

    def test_a_bias_on_top_of_the_causal_one(self):
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        function = lambda q, k, bias: flash(q, k, k, 0.0, True, attn_mask=bias)[0]
        self.assert_same_as_eager(function, Q, K, randn(3, 5))

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_every_float(self):
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            for mask in (closed_row(3, 5), randn(3, 5).to(dtype)):
                with self.subTest(dtype, mask=mask.dtype):
                    self.assert_same_as_eager(sdpa, *(x.to(dtype) for x in (Q, K, V)), mask, dynamic=False)

    def test_half_scores_beyond_float16(self):
        tensors = [(x * 60).to(torch.float16) for x in (Q, K, V)]
        self.assert_same_as_eager(sdpa, *tensors, dynamic=False)

    def test_sizes_change(self):
        others = [(randn(3, 4, 6, 8), randn(3, 4, 2, 8), randn(3, 4, 2, 6))]
        self.assert_same_as_eager(sdpa, Q, K, V, None, 0.0, True, others=others)
        masked = [(*others[0], closed_row(3, 1, 6, 2))]
        self.assert_same_as_eager(sdpa, Q, K, V, closed_row(2, 1, 3, 5), others=masked)

    def test_a_negative_scale_has_no_root(self):
        """The standard multiplies queries and keys by the square root of the scale."""
        args = (Q, K, V, None, 0.0, False)
        model = to_onnx(Call(sdpa, args, {"scale": -0.3}), (Q, K, V), runtime="onnx", target_opset=24)
        feeds = dict(zip("qkv", (Q.numpy(), K.numpy(), V.numpy())))
        feeds = {given.name: value for given, value in zip(model.graph.input, feeds.values())}
        (got,) = ReferenceEvaluator(model).run(None, feeds)
        torch.testing.assert_close(sdpa(*args, scale=-0.3), torch.from_numpy(got))

    def test_no_key_gives_zeros(self):
        self.assert_same_as_eager(sdpa, Q, K[:, :, :0], V[:, :, :0], dynamic=False)

    def test_one_operator_where_onnxruntime_agrees(self):
        for mask in (None, closed_row(3, 5)):
            model = self.assert_same_as_eager(sdpa, Q, K, V, mask, target_opset=23)
            self.assertEqual(["Attention"], [node.op_type for node in model.graph.node])

    def test_a_constant_mask_without_closed_row_costs_nothing(self):
        bias = torch.triu(torch.full((3, 5), -torch.inf), 1)
        model = self.assert_same_as_eager(lambda q, k, v: sdpa(q, k, v, bias), Q, K, V)
        self.assertNotIn("ReduceMax", [node.op_type for node in model.graph.node])

    def test_decomposed(self):
        flash = aten._scaled_dot_product_flash_attention_for_cpu.default
        math = aten._scaled_dot_product_attention_math.default
        bias = as_bias(closed_row(3, 5))
        self.assert_same_as_eager(lambda q, k, v: flash(q, k, v, attn_mask=bias)[0], Q, K, K)
        self.assert_same_as_eager(math, Q, K, V, bias)
        self.assert_same_as_eager(math, Q, K[:, :2], V[:, :2], None, 0.0, True, kwargs={"enable_gqa": True})

    def test_dropout_drops(self):
        model = to_onnx(Call(sdpa, (Q, K, V, None, 0.5), {}), (Q, K, V))
        ones = torch.ones(2, 4, 5, 1)
        (got,) = run(session(to_onnx(Call(sdpa, (Q, K, ones, None, 0.5), {}), (Q, K, ones))), [Q, K, ones])
        self.assertEqual(2, sum(node.op_type == "MatMul" for node in model.graph.node))
        self.assertFalse(torch.allclose(got, torch.ones(()), atol=1e-3))


def repeated(x):
    """Heads of [batch, heads, tokens, size] four times each, as in transformers."""
    batch, groups, tokens, size = x.shape
    return x[:, :, None].expand(batch, groups, 4, tokens, size).reshape(batch, groups * 4, tokens, size)


def repeated_in_tokens(x):
    """The same of [batch, tokens, heads, size], as in Llama's own code."""
    batch, tokens, groups, size = x.shape
    return x[:, :, :, None].expand(batch, tokens, groups, 4, size).reshape(batch, tokens, groups * 4, size)


class TestGroupedQueries(ExporterTestCase):
    """Four heads of queries share one of keys and values: no node copies it, however the model says so."""

    FORMS = {
        "enable_gqa": lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        "enable_gqa, causal": lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True),
        "expand": lambda q, k, v: sdpa(q, repeated(k), repeated(v)),
        "repeat_interleave": lambda q, k, v: sdpa(q, *(x.repeat_interleave(4, dim=1) for x in (k, v))),
        "unsqueeze and flatten": lambda q, k, v: sdpa(
            q, *(x.unsqueeze(2).expand(-1, -1, 4, -1, -1).flatten(1, 2) for x in (k, v))
        ),
        "products": lambda q, k, v: (q @ repeated(k).mT / 3).softmax(-1) @ repeated(v),
        "in tokens": lambda q, k, v: sdpa(
            q, *(repeated_in_tokens(x.transpose(1, 2)).transpose(1, 2) for x in (k, v))
        ),
        "repeat_interleave in tokens": lambda q, k, v: sdpa(
            q, *(x.transpose(1, 2).repeat_interleave(4, dim=2).transpose(1, 2) for x in (k, v))
        ),
    }

    def test_forms(self):
        sizes = {"static": (), "any number of tokens": (2,), "any batch and any number of tokens": (0, 2)}
        for promise, function in self.FORMS.items():
            for size, axes in sizes.items():
                with self.subTest(promise, size=size):
                    dims = {axis: torch.export.Dim.DYNAMIC for axis in axes}
                    model = self.export_and_compare(
                        Call(function, self.example(2, 3, 5), {}),
                        self.example(2, 3, 5),
                        dynamic_shapes=((dims,) * 3,),
                        others=[self.example(3 if 0 in axes else 2, 6, 4)] if axes else [],
                        target_opset=20,
                    )
                    found = [
                        node.op_type
                        for node in model.graph.node
                        if node.op_type in ("Expand", "Concat", "Tile")
                    ]
                    self.assertEqual(["Expand"] if "causal" in promise and axes else [], found)  # of the mask

    @staticmethod
    def example(batch, queries, keys):
        """Eight heads of queries, two of keys and values."""
        return randn(batch, 8, queries, 4), randn(batch, 2, keys, 4), randn(batch, 2, keys, 4)


class TestMultiheadAttention(ExporterTestCase):
    X, Y = randn(2, 5, 8), randn(2, 3, 8)
    PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]).bool()
    CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(5)
    FORMS = {
        "self-attention": {},
        "padding": {"key_padding_mask": PADDING},
        "a causal mask": {"attn_mask": CAUSAL, "is_causal": True},
        "a mask and padding": {"attn_mask": CAUSAL < 0, "key_padding_mask": PADDING},
        "a mask by head": {"attn_mask": randn(4, 5, 5)},
        "the weights of every head": {"average_attn_weights": False},
    }

    def test_module(self):
        module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        for promise, kwargs in self.FORMS.items():
            for need_weights in (True, False):
                with self.subTest(promise, need_weights=need_weights):
                    self.export_and_compare(module, (self.X,) * 3, {"need_weights": need_weights, **kwargs})

    def test_other_keys_and_values(self):
        module = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=4, vdim=6)
        self.export_and_compare(module.eval(), (self.X, randn(2, 5, 4), randn(2, 5, 6)))

    def test_every_float(self):
        for dtype in (torch.float64, torch.float16):
            with self.subTest(dtype):
                module = torch.nn.MultiheadAttention(8, 2, dtype=dtype).eval()
                self.export_and_compare(module, (self.X.to(dtype),) * 3)


class TestTransformer(ExporterTestCase):
    X, Y = randn(2, 5, 8), randn(2, 3, 8)

    def test_encoder_and_decoder(self):
        padding, causal = TestMultiheadAttention.PADDING, TestMultiheadAttention.CAUSAL
        for options in ({}, {"norm_first": True, "activation": "gelu"}):
            with self.subTest(**options):
                layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
                encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
                self.export_and_compare(encoder, (self.X,), {"src_key_padding_mask": padding})
                layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, **options)
                decoder = torch.nn.TransformerDecoder(layer, 2).eval()
                self.export_and_compare(
                    decoder, (self.X, self.Y), {"tgt_mask": causal, "tgt_is_causal": True}
                )

    def test_whole(self):
        self.export_and_compare(
            torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval(),
            (self.X, self.Y),
            dynamic_shapes=({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
            others=[(randn(3, 4, 8), randn(3, 6, 8))],
        )

    def test_fast_path(self):
        """torch.export with strict=True leaves the fused layer of the evaluation mode."""
        for options in ({}, {"norm_first": True, "activation": "gelu"}):
            for kwargs in ({}, {"src_mask": TestMultiheadAttention.CAUSAL < 0}):
                with self.subTest(**options, **kwargs):
                    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).eval()
                    layer.requires_grad_(False)
                    self.export_and_compare(
                        layer, (self.X,), kwargs, export_options=ExportOptions(strict=True)
                    )

    def test_fused_layer(self):
        norms, weights = (randn(8) + 1, randn(8)) * 2, (randn(16, 8), randn(16), randn(8, 16), randn(8))
        projections = randn(24, 8), randn(24), randn(8, 8), randn(8)
        for use_gelu, norm_first, mask, kind in (
            (True, False, None, None),
            (False, True, TestMultiheadAttention.PADDING, 1),
        ):
            with self.subTest(use_gelu=use_gelu, norm_first=norm_first):
                layer = aten._transformer_encoder_layer_fwd.default
                options = (use_gelu, norm_first, 1e-5, *norms, *weights, mask, kind)
                self.assert_same_as_eager(layer, self.X, 8, 2, *projections, *options)

    def test_native_attention(self):
        weights = [randn(24, 8), randn(24), randn(8, 8), randn(8)]
        masks = {
            None: None,
            0: TestMultiheadAttention.CAUSAL < 0,
            1: TestMultiheadAttention.PADDING,
            2: torch.rand(2, 2, 5, 5) > 0.7,
        }
        native = aten._native_multi_head_attention.default
        for kind, mask in masks.items():
            for average in (True, False):
                with self.subTest(mask_type=kind, average=average):
                    args = (self.X, self.X, self.X, 8, 2, *weights, mask, True, average, kind)
                    self.assert_same_as_eager(native, *args)


def attended_by_selected(x, mask):
    queries, keys = x[mask][None, None], x[None, None]
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, keys)


def attended_by_hand(x, mask):
    """Two products around a softmax, of the rows that the mask selects."""
    rows = x[mask][None]
    heads = rows.view(1, rows.shape[1], 2, 2).transpose(1, 2)
    return (heads @ heads.transpose(2, 3)).softmax(-1) @ heads


class TestSelectedPositions(ExporterTestCase):
    X, MASK = randn(5, 4), torch.tensor([True, False, True, True, False])
    SIZES = ({0: "rows"}, {0: "rows"})

    def test_no_position(self):
        others = [(self.X, torch.zeros(5, dtype=torch.bool)), (randn(3, 4), torch.arange(3) == 1)]
        for promise, function in {
            "queries": attended_by_selected,
            "by hand": attended_by_hand,
        }.items():
            with self.subTest(promise):
                self.export_and_compare(
                    function, (self.X, self.MASK), others=others, dynamic_shapes=self.SIZES, target_opset=23
                )

    def test_one_position_more_than_are_selected(self):
        """At least one is there: it is the operator."""

        def forward(x, mask):
            tokens = torch.cat([x[:1], x[mask]])[None, None]
            return torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)

        model = to_onnx(forward, (self.X, self.MASK), dynamic_shapes=self.SIZES, target_opset=23)
        self.assertIn("Attention", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
