"""Models that loop over their tokens: any number of tokens, in every form of their loops."""

import importlib.util
import sys
import unittest

import torch
from transformers.models.kimi_linear import modeling_kimi_linear as kimi_linear
from transformers.models.mamba import modeling_mamba as mamba
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next
from transformers.models.recurrent_gemma import modeling_recurrent_gemma as recurrent_gemma
from transformers.models.rwkv import modeling_rwkv as rwkv
from transformers.models.xlstm import modeling_xlstm as xlstm

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

CHANNELS, STATES = 3, 2
LARA = "transformers.models.lara_mini"  # since transformers 5.24
GATED = [
    qwen3_next,
    *([importlib.import_module(f"{LARA}.modeling_lara_mini")] if importlib.util.find_spec(LARA) else []),
]


class Selective(torch.nn.Module):
    """Mamba's loop, with what is added to its result or not."""

    def __init__(self, is_whole):
        super().__init__()
        self.is_whole = is_whole
        self.A = torch.nn.Parameter(-torch.rand(CHANNELS, STATES))
        self.D = torch.nn.Parameter(torch.randn(CHANNELS))

    def forward(self, x, dt, B, C):
        if not self.is_whole:
            return mamba.mamba_selective_scan(x, dt, self.A, B, C)
        return mamba.mamba_selective_scan(
            x, dt, self.A, B, C, self.D, z=x, delta_bias=self.D, delta_softplus=True, return_last_state=True
        )


class LinearAttention(torch.nn.Module):
    """RWKV's loop, from given states or from nothing."""

    def __init__(self):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(CHANNELS))
        self.first = torch.nn.Parameter(torch.randn(CHANNELS))

    def forward(self, key, value, states=None):
        return rwkv.rwkv_linear_attention(self.decay, self.first, key, value, states)


def selective(batch, tokens):
    """Arguments of `Selective`."""
    sizes = (CHANNELS, CHANNELS, STATES, STATES)
    return tuple(torch.randn(batch, size, tokens) for size in sizes)


def attended(batch, tokens, with_states=False):
    """Arguments of `LinearAttention`."""
    tensors = tuple(torch.randn(batch, tokens, CHANNELS) for _ in range(2))
    states = [torch.rand(batch, CHANNELS), 1 + torch.rand(batch, CHANNELS), torch.randn(batch, CHANNELS)]
    return (*tensors, states) if with_states else tensors


class DeltaRule(torch.nn.Module):
    """The delta rule of a model, its final state too."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module.__name__, function

    def forward(self, query, key, value, decay, rate, state=None):
        rule = getattr(sys.modules[self.module], self.function)
        decay = torch.nn.functional.logsigmoid(decay)
        return rule(
            query,
            key,
            value,
            g=decay,
            beta=rate.sigmoid(),
            initial_state=state,
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )


def ruled(batch, tokens, per_channel, with_state=False):
    """Arguments of `DeltaRule`: two heads of keys, four of values where that is allowed."""
    heads = 4 if per_channel else 2
    keys = [torch.randn(batch, tokens, heads, 3) for _ in range(2)]
    decay = torch.randn(batch, tokens, 4, 3) if per_channel else torch.randn(batch, tokens, 4)
    state = (torch.randn(batch, 4, 3, 5),) if with_state else ()
    return (*keys, torch.randn(batch, tokens, 4, 5), decay, torch.randn(batch, tokens, 4), *state)


class MatrixMemory(torch.nn.Module):
    """xLSTM's memory, its last states too."""

    def __init__(self, **options):
        super().__init__()
        self.backend = xlstm.xLSTMBackend(xlstm.xLSTMConfig(chunk_size=16, **options))

    def forward(self, query, key, value, igate, fgate, states=(None,) * 3):
        return self.backend(query, key, value, igate, fgate, *states)


def remembered(batch, tokens, with_states=False):
    """Arguments of `MatrixMemory`: two heads, keys of 3 channels, values of 5."""
    tensors = [torch.randn(batch, 2, tokens, width) for width in (3, 3, 5)]
    gates = [torch.randn(batch, 2, tokens) for _ in range(2)]
    states = tuple(torch.randn(batch, 2, *size) for size in ((3, 5), (3,), (1,)))
    return (*tensors, *gates, states) if with_states else (*tensors, *gates)


class TestTokenLoops(ExporterTestCase):
    def check(self, model, example, others, shapes):
        """Any number of tokens with the patches, that of the example without."""
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_selective_scan(self):
        shapes = ({0: "batch", 2: "tokens"},) * 4
        others = [selective(3, 9), selective(1, 2)]
        self.check(Selective(True), selective(2, 5), others, shapes)
        self.export_and_compare(
            Selective(False), selective(2, 5), others=others, dynamic_shapes=shapes, target_opset=20
        )

    def test_linear_attention(self):
        tokens = {0: "batch", 1: "tokens"}
        self.check(LinearAttention(), attended(2, 5), [attended(3, 9), attended(1, 2)], (tokens, tokens))
        shapes = (tokens, tokens, [{0: "batch"}] * 3)
        example, other = attended(2, 5, with_states=True), attended(3, 9, with_states=True)
        self.export_and_compare(
            LinearAttention(), example, others=[other], dynamic_shapes=shapes, target_opset=20
        )

    def test_linear_recurrence(self):
        config = recurrent_gemma.RecurrentGemmaConfig(lru_width=4, num_attention_heads=2, hidden_size=4)
        layer = recurrent_gemma.RecurrentGemmaRglru(config).eval()
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)

        class Scan(torch.nn.Module):
            def forward(self, x, gate, reset, states=None):
                return layer._rnn_scan(x, gate, reset, states)

        def call(batch, tokens, *states):
            reset = torch.arange(tokens).expand(batch, -1)[:, :, None] == 0
            return torch.randn(batch, tokens, 4), torch.rand(batch, tokens, 4), reset, *states

        shapes = ({0: "batch", 1: "tokens"},) * 3
        self.check(Scan(), call(2, 5), [call(3, 9)], shapes)
        example, other = call(2, 5, torch.randn(2, 4)), call(3, 9, torch.randn(3, 4))
        self.export_and_compare(
            Scan(), example, others=[other], dynamic_shapes=(*shapes, {0: "batch"}), target_opset=20
        )

    def test_matrix_memory(self):
        """Chunks of 16 tokens in eager, none of them in the model."""
        shapes = ({0: "batch", 2: "tokens"},) * 5
        others = [remembered(3, 9), remembered(1, 1), remembered(2, 16), remembered(2, 40)]
        self.check(MatrixMemory(), remembered(2, 5), others, shapes)
        example, *others = (remembered(*size, with_states=True) for size in ((2, 20), (3, 9), (1, 1)))
        self.export_and_compare(
            MatrixMemory(),
            example,
            others=others,
            dynamic_shapes=(*shapes, ({0: "batch"},) * 3),
            target_opset=20,
        )

    def test_memory_in_training_is_left_to_its_chunks(self):
        model, others = MatrixMemory(mode="train"), [remembered(3, 16)]
        shapes = ({0: "batch"},) * 5
        self.export_and_compare(model, remembered(2, 16), others=others, dynamic_shapes=shapes)
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            to_onnx(model, remembered(2, 16), dynamic_shapes=({2: "tokens"},) * 5)
        self.assertRegex(logged.output[0], r"\(tokens//16\) == 1\n(.|\n)*which are tokens: 16$")

    def test_delta_rule(self):
        """The program of transformers' own loop holds one chunk of 64 tokens."""
        cases = (
            *((module, "torch_chunk_gated_delta_rule", False) for module in GATED),
            (kimi_linear, "chunk_kimi_delta_attention", True),
        )
        for module, function, is_kimi in cases:
            with self.subTest(module.__name__):
                shapes = ({0: "batch", 1: "tokens"},) * 5 + ({0: "batch"},) * is_kimi
                sizes = ((2, 5), (3, 9), (1, 70), (2, 130))
                example, *others = (ruled(*size, is_kimi, with_state=is_kimi) for size in sizes)
                self.export_and_compare(
                    DeltaRule(module, function),
                    example,
                    others=others,
                    dynamic_shapes=shapes,
                    target_opset=20,
                )

    def test_known_number_of_tokens_is_left_to_the_loop(self):
        shapes = ({0: "batch"},) * 4
        options = [ExportOptions(patches=patches) for patches in (None, False)]
        looped, without = (
            to_onnx(Selective(True), selective(2, 3), dynamic_shapes=shapes, export_options=option)
            for option in options
        )
        self.assertEqual(
            [node.op_type for node in looped.graph.node], [node.op_type for node in without.graph.node]
        )


if __name__ == "__main__":
    unittest.main()
