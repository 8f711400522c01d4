"""Caches of transformers as inputs and outputs: every kind, its names, other sizes, tokens beyond the window."""

import contextlib
import io
import pathlib
import re
import unittest
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.utils import _pytree as pytree
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    StaticCache,
)
from transformers.integrations import executorch
from transformers.models.minimax.modeling_minimax import MiniMaxCache

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, to_onnx
from experimental_experiment.torch_interpreter.patches.caches import known_caches

VOCABULARY = 61
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
WINDOW = 8


def llama() -> torch.nn.Module:
    """Full attention."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval()


def gemma() -> torch.nn.Module:
    """A layer with a sliding window, one with full attention."""
    layers = ["sliding_attention", "full_attention"]
    config = transformers.Gemma2Config(
        **SMALL | {"num_hidden_layers": 2}, head_dim=8, sliding_window=WINDOW, layer_types=layers
    )
    return transformers.Gemma2ForCausalLM(config).eval()


def lfm2() -> torch.nn.Module:
    """A layer with the state of a convolution, one with full attention."""
    layers = ["conv", "full_attention"]
    return transformers.Lfm2ForCausalLM(
        transformers.Lfm2Config(**SMALL | {"num_hidden_layers": 2}, layer_types=layers)
    ).eval()


def tokens(batch: int, length: int) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(3, VOCABULARY, (batch, length))


def call(model: torch.nn.Module, batch: int, new: int, past: int, cache: Cache) -> dict[str, Any]:
    """The arguments of a step: new tokens, a mask over all positions, *cache* filled with past ones."""
    ids = tokens(batch, past + new)
    with torch.no_grad():
        model(input_ids=ids[:, :past], past_key_values=cache, use_cache=True)
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    return {"input_ids": ids[:, past:], "attention_mask": mask, "past_key_values": cache}


def static_cache(config: Any) -> StaticCache:
    """An empty cache of 16 positions whose tensors are there."""
    cache = StaticCache(config=config, max_cache_len=16)
    cache.early_initialization(1, 1, 8, torch.float32, torch.device("cpu"))
    return cache


def names(values: Any) -> list[str]:
    """The names of inputs or outputs."""
    return [value.name for value in values]


STEP = {"input_ids": {0: "batch", 1: "new"}, "attention_mask": {0: "batch", 1: "total"}}
GROWING = {0: "batch", 2: "past"}


class TestCaches(ExporterTestCase):
    """Each export is also run on other sizes."""

    def setUp(self):
        super().setUp()
        if DynamicCache in pytree.SUPPORTED_NODES:  # by a test of another file
            pytree._deregister_pytree_node(DynamicCache)

    def check(self, model: torch.nn.Module, cache: Callable[[], Cache], entries: Any, new: int = 2) -> Any:
        """Export a step of *model*, run it on two batches; the ONNX model."""
        calls = [
            call(model, batch, length, past, cache())
            for batch, length, past in ((2, new, 4), (3, new + 1, 2))
        ]
        steps = STEP | {"past_key_values": entries}
        if new == 1:  # the state of a convolution is updated token by token
            steps["input_ids"] = {0: "batch"}
            calls[1] = call(model, 3, 1, 2, cache())
        return self.export_and_compare(
            model, (), calls[0], others=[((), calls[1])], dynamic_shapes=steps, target_opset=20
        )

    def test_dynamic_cache(self):
        model = llama()
        names_of_parts = {"0_key": GROWING, "0_value": GROWING}
        found = self.check(model, lambda: DynamicCache(config=model.config), names_of_parts)
        self.assertEqual(
            names(found.graph.input),
            ["input_ids", "attention_mask", "past_key_values_0_key", "past_key_values_0_value"],
        )
        self.assertEqual(names(found.graph.output), ["logits", "present_0_key", "present_0_value"])
        sizes = [size.dim_param or size.dim_value for size in found.graph.input[2].type.tensor_type.shape.dim]
        self.assertEqual(sizes, ["batch", 1, "past", 8])
        self.assertNotIn(DynamicCache, pytree.SUPPORTED_NODES)

    def test_sliding_window_keeps_every_token(self):
        model = gemma()
        found = self.check(
            model, lambda: DynamicCache(config=model.config), [[GROWING, GROWING], [GROWING, GROWING]]
        )
        runner = session(found)
        ids, size = tokens(2, 3 * WINDOW), model.config.head_dim
        cache = [torch.zeros(2, 1, 0, size) for _ in range(4)]
        for start in range(0, 3 * WINDOW, 4):  # the outputs of a step are inputs of the next one
            mask = torch.ones(2, start + 4, dtype=torch.int64)
            logits, *cache = run(runner, [ids[:, start : start + 4], mask, *cache])
        with torch.no_grad():
            expected = model(input_ids=ids).logits[:, -4:]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        self.assertEqual(cache[0].shape[2], 3 * WINDOW)
        self.assertIn("cumulative_length", DynamicSlidingWindowLayer.update.__code__.co_names)

    def test_full_window_in_the_example_is_refused(self):
        model = gemma()
        given = call(model, 2, 2, WINDOW + 2, DynamicCache(config=model.config))
        with self.assertRaises(CaptureError) as caught:
            to_onnx(model, (), given)
        self.assertIn("the cache of the example has forgotten 3 of its 10 tokens", str(caught.exception))
        self.assertIn("give one of less than 8 tokens, the sliding window", str(caught.exception))

    def test_names_of_a_cache_that_is_called_cache(self):
        """As transformers calls it from 5.24 on; any other argument of that name is a tensor."""

        class Appended(torch.nn.Module):
            def forward(self, x, cache):
                cache = [tuple(torch.cat([part, x], 1) for part in layer) for layer in cache]
                return {"y": x * 2, "cache": cache}

        x = torch.randn(2, 1)
        found = to_onnx(Appended(), (x, [(torch.randn(2, 3), torch.randn(2, 3))]))
        self.assertEqual(names(found.graph.input), ["x", "cache_0_0", "cache_0_1"])
        self.assertEqual(names(found.graph.output), ["y", "present_0_0", "present_0_1"])
        found = to_onnx(lambda x, cache: {"cache": cache * x}, (x, x))
        self.assertEqual(names(found.graph.output), ["cache_out"])

    def test_static_cache(self):
        model = llama()
        entries = [{0: "batch"}, {0: "batch"}, None]
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            found = self.check(model, lambda: StaticCache(config=model.config, max_cache_len=12), entries)
        self.assertNotIn("the model writes", "".join(logged.output))  # what it writes is what it returns
        self.assertEqual(
            names(found.graph.output),
            ["logits", "present_0_key", "present_0_value", "present_0_cumulative_length"],
        )

    def test_static_cache_of_buffers(self):
        """Its tensors, which the model reaches through the cache, have the names of the buffers, and all that is written goes in and out."""
        config = transformers.LlamaConfig(**SMALL | {"num_hidden_layers": 2})
        llama_of_two = transformers.LlamaForCausalLM(config).eval()
        counts_in_tensors = isinstance(
            vars(static_cache(config).layers[0]).get("cumulative_length"), torch.Tensor
        )
        held = ("cumulative_length", "keys", "values") if counts_in_tensors else ("keys", "values")

        class Decoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.cache = llama_of_two, static_cache(config)
                for place, layer in enumerate(self.cache.layers):
                    for name in held:
                        self.register_buffer(f"{name}_{place}", getattr(layer, name))

            def forward(self, ids, position):
                return self.model(ids, position_ids=position, past_key_values=self.cache).logits

        ids, position = tokens(1, 1), torch.tensor([[0]])
        with torch.no_grad():
            model = to_onnx(Decoder(), (ids, position), mutated_buffers="outputs")
            expected = [f"{name}_{place}" for place in range(2) for name in held]
            self.assertEqual(sorted(expected), sorted(names(model.graph.input)[2:]))
            self.assertEqual(
                [f"{name}_out" for name in names(model.graph.input)[2:]], names(model.graph.output)[1:]
            )
            eager, state = Decoder(), [getattr(Decoder(), name) for name in names(model.graph.input)[2:]]
            for turn in range(5):
                result, *state = run(session(model), [ids + turn, position + turn, *state])
                torch.testing.assert_close(result, eager(ids + turn, position + turn))

    def test_counter_in_python_is_refused(self):
        """Also one that is 0, of tensors that hold no token yet: the next call would begin anew."""
        model = gemma()
        filled = call(model, 1, 2, 4, StaticCache(config=model.config, max_cache_len=12))
        empty = filled | {"past_key_values": static_cache(model.config)}
        for given in (filled, empty):
            with self.assertRaises(CaptureError) as caught:
                to_onnx(model, (), given)
            self.assertIn(
                "a StaticSlidingWindowLayer counts its tokens in cumulative_length_int, a Python number that the program "
                "would hold as a constant",
                str(caught.exception),
            )
            self.assertIn("as DynamicCache(config=...) has", str(caught.exception))

    def test_a_cache_that_the_model_keeps(self):
        """Its layers are left as they were: no fake tensors, and no token counted."""

        class Keeping(torch.nn.Module):
            def __init__(self, model, cache):
                super().__init__()
                self.model, self.cache = model, cache

            def forward(self, ids):
                return self.model(ids, past_key_values=self.cache).logits

        model, of_windows = llama(), gemma()
        for keeping in (
            Keeping(model, DynamicCache(config=model.config)),
            Keeping(of_windows, static_cache(of_windows.config)),
        ):
            layers = keeping.cache.layers
            before = [vars(layer).copy() for layer in layers]
            with torch.no_grad():
                to_onnx(keeping, (tokens(1, 3),))
            self.assertEqual([*map(vars, layers)], before)

    def test_linear_attention(self):
        model = lfm2()
        entries = {"0_conv_states_0": {0: "batch"}, "1_key": GROWING, "1_value": GROWING}
        found = self.check(model, lambda: DynamicCache(config=model.config), entries, new=1)
        self.assertEqual(
            names(found.graph.output),
            ["logits", "present_0_conv_states_0", "present_1_key", "present_1_value"],
        )

    def test_states_beside_the_layers(self):
        """The name of the input has the word cache twice."""
        layers = ["full_attention", "linear_attention"]
        sizes = SMALL | {"num_hidden_layers": 2, "num_local_experts": 2}
        model = transformers.MiniMaxForCausalLM(
            transformers.MiniMaxConfig(**sizes, head_dim=8, layer_types=layers)
        ).eval()
        entries = {"0_key": GROWING, "0_value": GROWING, "linear_cache_1": {0: "batch"}}
        found = self.check(model, MiniMaxCache, entries, new=1)
        self.assertEqual(names(found.graph.input)[-1], "past_key_values_linear_cache_1")
        self.assertEqual(names(found.graph.output)[-1], "present_linear_cache_1")

    def test_beside_those_that_transformers_registers(self):
        executorch.register_dynamic_cache_export_support()
        self.addCleanup(pytree._deregister_pytree_node, DynamicCache)
        before = pytree.SUPPORTED_NODES[DynamicCache]
        self.test_linear_attention()  # which transformers' own function refuses
        model = llama()
        example = call(model, 2, 2, 4, DynamicCache(config=model.config))
        shapes = STEP | {"past_key_values": [[{0: "batch", 2: "past"}]] * 2}
        found = to_onnx(model, (), example, dynamic_shapes=shapes)
        self.assertEqual(names(found.graph.input)[2:], ["past_key_values_0_key", "past_key_values_0_value"])
        self.assert_matches(found, model, (), call(model, 3, 1, 5, DynamicCache(config=model.config)))
        self.assertIs(pytree.SUPPORTED_NODES[DynamicCache], before)

    def test_encoder_decoder_cache(self):
        config = transformers.T5Config(
            vocab_size=VOCABULARY,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
        )
        model = transformers.T5ForConditionalGeneration(config).eval()

        def step(batch: int, source: int, past: int) -> dict[str, Any]:
            encoded = torch.randn(batch, source, 16)
            ids = tokens(batch, past + 2)
            with torch.no_grad():
                cache = model(encoder_outputs=(encoded,), decoder_input_ids=ids[:, :past]).past_key_values
            self.assertIsInstance(cache, EncoderDecoderCache)
            return {
                "encoder_outputs": (encoded,),
                "decoder_input_ids": ids[:, past:],
                "past_key_values": cache,
            }

        source, past = {0: "batch", 2: "source"}, {0: "batch", 2: "past"}
        found = self.export_and_compare(
            model,
            (),
            step(2, 5, 3),
            others=[((), step(3, 7, 6))],
            dynamic_shapes={
                "encoder_outputs": [{0: "batch", 1: "source"}],
                "decoder_input_ids": {0: "batch"},
                "past_key_values": {
                    "0_self_key": past, "0_self_value": past, "0_cross_key": source, "0_cross_value": source,
                },
            },
            target_opset=20,
        )  # fmt: skip
        self.assertEqual(
            names(found.graph.output)[1:5],
            ["present_0_self_key", "present_0_self_value", "present_0_cross_key", "present_0_cross_value"],
        )

    def test_the_document(self):
        text = (pathlib.Path(__file__).parents[2] / "docs" / "caches.md").read_text(encoding="utf-8")
        first, states, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            written = {}
            exec(first, written)
            ids = torch.ones(3, 3, dtype=torch.int64)
            cache = DynamicCache(config=written["config"])
            self.assert_matches(
                written["step"],
                written["model"],
                (),
                call(written["model"], 3, 1, 6, cache) | {"input_ids": ids[:, :1]},
            )
            exec(states, written)
            prompt, found = torch.tensor([[3, 1, 4, 1, 5]]), torch.from_numpy(written["tokens"])
            expected = written["hybrid"].generate(
                prompt, do_sample=False, max_new_tokens=20, pad_token_id=0, eos_token_id=None
            )
            torch.testing.assert_close(found, expected)
            printed.truncate(0)
            exec(second, written)
        self.addCleanup(pytree._deregister_pytree_node, written["Memory"])
        self.assertIn(printed.getvalue().strip("\0\n"), text)
        given = (torch.randn(2, 3), written["Memory"](torch.ones(3), torch.tensor(4.0)))
        self.assert_matches(written["running"], written["Mean"](), given)

    def test_bound_method_is_refused(self):
        cache = DynamicCache()
        cache.length = cache.get_seq_length
        with (
            known_caches(),
            self.assertRaisesRegex(TypeError, "the method get_seq_length is bound to a cache"),
        ):
            pytree.tree_flatten(cache)

    def test_leaves_rebuild_the_cache(self):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for part in (cache.self_attention_cache, cache.cross_attention_cache):
            part.update(torch.ones(1, 1, 2, 3), torch.zeros(1, 1, 2, 3), 0)
        with known_caches():
            leaves, spec = pytree.tree_flatten(cache)
            again = pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
            self.assertEqual(pytree.tree_structure(again), spec)
        self.assertEqual(len(leaves), 4)
        self.assertEqual(float(again.self_attention_cache.layers[0].keys.mean()), 2)
        self.assertEqual(again.get_seq_length(), 2)
        self.assertEqual(cache.self_attention_cache.layers[0].keys.mean(), 1)


if __name__ == "__main__":
    unittest.main()
