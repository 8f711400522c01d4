"""Positions of Reformer and Funnel: any number of texts, of any length."""

import unittest

import torch
from transformers.models.funnel import modeling_funnel
from transformers.models.reformer import modeling_reformer

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Axial(torch.nn.Module):
    """Reformer's axial embeddings, of 4 rows and 8 columns."""

    def __init__(self):
        super().__init__()
        config = modeling_reformer.ReformerConfig(
            axial_pos_shape=(4, 8), axial_pos_embds_dim=(3, 5), hidden_size=8
        )
        self.embeddings = modeling_reformer.AxialPositionEmbeddings(config)
        for weight in self.embeddings.weights:
            torch.nn.init.normal_(weight)

    def forward(self, places):
        return self.embeddings(places)


class Pooled(torch.nn.Module):
    """Funnel's embeddings of the distances in each of its blocks."""

    def __init__(self, **options):
        super().__init__()
        config = modeling_funnel.FunnelConfig(block_sizes=[1, 1, 1], d_model=6, **options)
        self.structure = modeling_funnel.FunnelAttentionStructure(config)

    def forward(self, x):
        return self.structure.get_position_embeds(x.shape[1], x.dtype, x.device)


class Funnel(torch.nn.Module):
    """The whole model, which keeps the last length that it was called with: that of torch.export is a symbol, and not copied."""

    def __init__(self, **options):
        super().__init__()
        config = modeling_funnel.FunnelConfig(
            vocab_size=30, block_sizes=[1, 1], d_model=8, n_head=2, d_head=4, d_inner=12, num_decoder_layers=1, **options
        )  # fmt: skip
        torch.manual_seed(0)
        self.model = modeling_funnel.FunnelModel(config)

    def forward(self, input_ids, attention_mask, token_type_ids):
        result = self.model(input_ids, attention_mask, token_type_ids).last_hidden_state
        for part in (self.model.encoder, self.model.decoder):
            del part.attention_structure.seq_len
        return result


class TestTextPositions(ExporterTestCase):
    def check(self, model, example, others, shapes):
        """Any size with the patches, a refusal without."""
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_axial(self):
        torch.manual_seed(0)
        calls = [(torch.randint(0, 32, size),) for size in ((2, 7), (3, 32), (1, 1), (5, 9))]
        self.check(Axial().eval(), calls[0], calls[1:], ({0: "batch", 1: "length"},))

    def test_axial_of_too_many_tokens(self):
        """As in eager, and as torch.export says it."""
        places = torch.arange(33).expand(2, -1)
        with self.assertRaisesRegex(ValueError, "axial_pos_shape"):
            Axial().eval()(places)
        with self.assertRaisesRegex(CaptureError, "33 tokens, and axial_pos_shape is"):
            to_onnx(Axial().eval(), (places,), dynamic_shapes=({0: "batch"},))

    def test_pooled(self):
        calls = [(torch.zeros(1, length),) for length in (9, 12, 5, 16, 17, 18, 19, 33)]
        for separate in (True, False):
            for truncated in (True, False):
                with self.subTest(separate_cls=separate, truncate_seq=truncated):
                    model = Pooled(separate_cls=separate, truncate_seq=truncated).eval()
                    self.check(model, calls[0], calls[1:], ({1: "length"},))

    def test_factorized_is_left_alone(self):
        """Its tables are those of the tokens: no list of Python's."""
        model = Pooled(attention_type="factorized").eval()
        options = [ExportOptions(patches=patches) for patches in (None, False)]
        exported = [
            to_onnx(model, (torch.zeros(1, 9),), dynamic_shapes=({1: "length"},), export_options=option)
            for option in options
        ]
        self.assertEqual(*([node.op_type for node in one.graph.node] for one in exported))

    def test_funnel(self):
        """The whole model, with types of tokens and padding, pooled before the attention or behind it."""
        for pool_q_only in (True, False):
            with self.subTest(pool_q_only=pool_q_only):

                def call(batch, length):
                    mask = torch.ones(batch, length, dtype=torch.int64)
                    mask[0, length - 2 :] = 0
                    ids = torch.randint(0, 30, (batch, length))
                    return ids, mask, ids % 3

                others = [call(*size) for size in ((3, 12), (1, 5), (2, 18))]
                self.export_and_compare(
                    Funnel(pool_q_only=pool_q_only).eval(),
                    call(2, 9),
                    others=others,
                    dynamic_shapes=({0: "batch", 1: "length"},) * 3,
                    target_opset=20,
                )

    def test_undone(self):
        owners = (
            (modeling_reformer.AxialPositionEmbeddings, "forward"),
            (
                modeling_funnel.FunnelAttentionStructure,
                "get_position_embeds",
            ),
        )
        before = [getattr(*owner) for owner in owners]
        with bypass_export_some_errors(patch_transformers=True):
            for owner, function in zip(owners, before):
                self.assertIsNot(getattr(*owner), function)
        self.assertEqual([getattr(*owner) for owner in owners], before)


if __name__ == "__main__":
    unittest.main()
