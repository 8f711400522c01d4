"""Models with states, of convolutions and recurrences: their tokens are those of transformers' generate; what does not fit is refused."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch
from transformers import (
    DynamicCache,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from experimental_experiment.decoding import DecodingError, Generator, in_place, left_padded
from experimental_experiment.torch_interpreter import to_onnx

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "initializer_range": 0.4,  # large enough for the tokens to vary
}
HEADS = {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
# the embedding of LFM2's padding is zero: 0, which stands for padding here, is another token
MODELS = {
    "Mamba": lambda: MambaForCausalLM(MambaConfig(**SHAPE, state_size=4, tie_word_embeddings=False)),
    "LFM2": lambda: Lfm2ForCausalLM(
        Lfm2Config(**SHAPE, **HEADS, layer_types=["conv", "full_attention"], pad_token_id=VOCABULARY - 1)
    ),
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS)),
}
PROMPTS = [[5, 6, 7, 8], [9, 3], [1, 2, 3, 4, 11, 12]]
BATCH, GROWING = {0: "batch"}, {0: "batch", 2: "past"}
STATES = {f"{layer}_{kind}_states_0": BATCH for layer in (0, 1) for kind in ("conv", "recurrent")}
ENTRIES = {
    "Mamba": STATES,
    "LFM2": {"0_conv_states_0": BATCH, "1_key": GROWING, "1_value": GROWING},
    "Llama": [[GROWING, GROWING], [GROWING, GROWING]],
}


def exported(name: str, model: torch.nn.Module, mask: bool = True) -> onnx.ModelProto:
    """One token, after five in the cache: states alone are given no mask unless they ask for one."""
    past, cache = 5, DynamicCache(config=model.config)
    kwargs: dict[str, Any] = {"input_ids": torch.randint(0, VOCABULARY, (2, 1))}
    shapes: dict[str, Any] = {"input_ids": BATCH}
    place = "cache_params" if name == "Mamba" else "past_key_values"
    with torch.no_grad():
        model(input_ids=torch.randint(0, VOCABULARY, (2, past)), use_cache=True, **{place: cache})
    if mask:
        kwargs["attention_mask"] = torch.ones(2, past + 1, dtype=torch.int64)
        shapes["attention_mask"] = {0: "batch", 1: "total"}
    if name != "Mamba":
        kwargs["position_ids"], shapes["position_ids"] = torch.full((2, 1), past), BATCH
    kwargs[place], shapes[place] = cache, ENTRIES[name]
    return to_onnx(model, (), kwargs, dynamic_shapes=shapes)


class TestStates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(0)
        cls.models = {name: build().eval() for name, build in MODELS.items()}
        cls.programs = {name: exported(name, model, name != "Mamba") for name, model in cls.models.items()}

    def generated(self, name: str, prompts: np.ndarray, count: int) -> np.ndarray:
        """The tokens of transformers, of prompts without padding."""
        tokens = torch.from_numpy(prompts)
        with torch.no_grad():
            found = self.models[name].generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                max_new_tokens=count,
            )
        return found.numpy()

    def assert_generates(self, name: str, generator: Generator) -> None:
        """Equal prompts, one of one token, padded ones; one after the other, from states that begin anew."""
        tokens = np.array([[5, 6, 7, 8, 9], [9, 3, 2, 7, 12]])
        for prompts in (tokens, tokens[:1, :1]):
            expected = self.generated(name, prompts, 20)
            self.assertGreater(len(np.unique(expected)), 8)
            np.testing.assert_array_equal(generator.generate(prompts, max_new_tokens=20), expected)
        padded, mask = left_padded(PROMPTS)
        rows = [self.generated(name, np.array([prompt]), 20)[0] for prompt in PROMPTS]
        expected, _ = left_padded(rows)
        np.testing.assert_array_equal(generator.generate(padded, mask, max_new_tokens=20), expected)
        wide = [np.pad(array, ((0, 0), (2, 0))) for array in (padded, mask)]  # padding in every row
        np.testing.assert_array_equal(generator.generate(*wide, max_new_tokens=20)[:, 2:], expected)

    def test_tokens_are_those_of_transformers(self):
        for name, (tensors, states) in {"Mamba": (0, 4), "LFM2": (2, 1), "Llama": (4, 0)}.items():
            with self.subTest(name):
                generator = Generator(self.programs[name], max_length=30, threads=1)
                found = generator.interface
                self.assertEqual((len(found.cache), len(found.states)), (tensors, states))
                self.assertTrue(found.takes_one)
                self.assertFalse(found.is_shared)
                self.assert_generates(name, generator)

    def test_logits_are_those_of_the_whole_sequence(self):
        tokens = np.arange(1, 19).reshape(2, 9)
        for name in ("Mamba", "LFM2"):
            with self.subTest(name):
                generator = Generator(self.programs[name], max_length=9, threads=1)
                got = [generator.prefill(tokens[:, :5])]
                got += [generator.step(tokens[:, index]) for index in range(5, 9)]
                with torch.no_grad():
                    expected = self.models[name](torch.from_numpy(tokens)).logits[:, 4:].numpy()
                np.testing.assert_allclose(np.stack(got, axis=1), expected, rtol=1e-4, atol=1e-4)
                self.assertEqual(generator.length, 9)
                got = generator.prefill(*left_padded(PROMPTS))
                for prompt, logits in zip(PROMPTS, got):
                    with torch.no_grad():
                        expected = self.models[name](torch.tensor([prompt])).logits[0, -1].numpy()
                    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)

    def test_keys_and_values_are_in_place_and_states_change_places(self):
        generator = Generator(in_place(self.programs["LFM2"]), max_length=30, threads=1)
        self.assertTrue(generator.interface.is_shared)
        self.assert_generates("LFM2", generator)
        generator.prefill(np.array([[1, 2]]))
        cache = generator.cache
        by_name = {tensor.past: pair for tensor, pair in zip(cache.tensors, cache.buffers)}
        for name, (past, present) in by_name.items():
            self.assertEqual(past is present, "conv_states" not in name)
        self.assertEqual(cache.nbytes, 4 * (2 * 2 * 30 * 8 + 2 * 32 * 3))
        places = list(cache.addresses)
        generator.step(np.array([3]))
        self.assertEqual(cache.addresses, [(present, past) for past, present in places])

    def test_a_prompt_that_fails_in_the_middle_is_none(self):
        generator = Generator(self.programs["Mamba"], max_length=6, threads=1)
        expected = generator.prefill(np.array([[1, 2, 3]]))
        message = "does not take 1 rows of 1 tokens after 1, or one of these tokens: .*idx=61"
        with self.assertRaisesRegex(DecodingError, message):
            generator.prefill(np.array([[1, VOCABULARY, 3]]))
        for wrong, message in {
            (1, 2, -1): "a token is at least 0, not -1",
            (1,) * 7: "7 tokens are more than max_length=6",
        }.items():
            with self.assertRaisesRegex(DecodingError, message):
                generator.prefill(np.array([wrong]))
        with self.assertRaisesRegex(DecodingError, "there is no prompt"):
            generator.step(np.array([1]))
        np.testing.assert_array_equal(generator.prefill(np.array([[1, 2, 3]])), expected)

    def test_a_mask_that_states_read_is_refused(self):
        with self.assertRaises(DecodingError) as caught:
            Generator(exported("Mamba", self.models["Mamba"]), max_length=6)
        self.assertEqual(
            str(caught.exception),
            "there are states alone, which know no tokens before, and attention_mask is read: export the model without it",
        )

    REFUSED = {
        "a model with states takes one token a row, input_ids is to be exported as int64[batch, 1]": (
            "(int64[B,S] input_ids, float[B,8] past_0_conv_states) => (float[B,S,4] logits, float[B,8] present_0_conv_states)"
        ),
        "past_0_conv_states and present_0_conv_states need one type and the same sizes": (
            "(int64[B,1] input_ids, float[B,8] past_0_conv_states) => (float[B,1,4] logits, float[B,9] present_0_conv_states)"
        ),
        "past_0_conv_states, present_0_recurrent_states: each past needs a present of the same layer, and the reverse": (
            "(int64[B,1] input_ids, float[B,8] past_0_conv_states) => (float[B,1,4] logits, float[B,8] present_0_recurrent_states)"
        ),
        "the input past_1_conv_states, tensor(float)['B', 'N'], has no role in decoding": (
            "(int64[B,1] input_ids, float[B,8] past_0_conv_states, float[B,N] past_1_conv_states)"
            "=> (float[B,1,4] logits, float[B,8] present_0_conv_states)"
        ),
        "the input past_0_other, tensor(float)['B', 8], has no role in decoding": (
            "(int64[B,1] input_ids, float[B,8] past_0_conv_states, float[B,8] past_0_other)"
            "=> (float[B,1,4] logits, float[B,8] present_0_conv_states)"
        ),
        "the cache is float32 or float16, past_0_conv_states is a tensor(double)": (
            "(int64[B,1] input_ids, double[B,8] past_0_conv_states) => (float[B,1,4] logits, double[B,8] present_0_conv_states)"
        ),
    }

    def test_states_that_do_not_fit_are_refused(self):
        constants = "<float[1,1,4] zero = {0, 0, 0, 0}, int64[3] shape = {1, 1, 4}>"
        for message, head in self.REFUSED.items():
            with self.subTest(message):
                present = "conv" if "present_0_conv" in head else "recurrent"
                state = (
                    "Identity(past_0_conv_states)" if "B,9]" not in head else "Pad(past_0_conv_states, pads)"
                )
                body = f"{{ pads = Constant<value_ints = [0, 0, 0, 1]>() logits = Expand(zero, shape) present_0_{present}_states = {state} }}"
                model = onnx.parser.parse_model(
                    f'<ir_version: 10, opset_import: ["" : 20]> g {head} {constants} {body}'
                )
                with self.assertRaises(DecodingError) as caught:
                    Generator(model, max_length=4)
                self.assertEqual(str(caught.exception), message)


if __name__ == "__main__":
    unittest.main()
