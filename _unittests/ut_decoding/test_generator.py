"""The tokens of a decoder in onnxruntime are those of transformers' generate; what does not fit is refused."""

from __future__ import annotations

import copy
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
import torch
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.integrations.executorch import register_dynamic_cache_export_support

from experimental_experiment.decoding import DecodingError, Generator, Sampling, left_padded
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import quantize_weights

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,  # large enough for the tokens to vary
}
MODELS = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "Qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "Mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None)),
    "GPT-2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=None,
        )
    ),
}
PROMPTS = [[5, 6, 7, 8], [9, 3], [1, 2, 3, 4, 11, 12]]


def exported(
    model: torch.nn.Module, heads: int, positions: bool = True, last: bool = False, **more
) -> onnx.ModelProto:
    """One step of a model of two layers, heads of 8: new tokens, mask, positions, cache; *last*: logits of the last token alone."""
    past, count = 5, 3
    cache = [(torch.randn(2, heads, past, 8), torch.randn(2, heads, past, 8)) for _ in range(2)]
    kwargs = {
        "input_ids": torch.randint(0, VOCABULARY, (2, count)),
        "attention_mask": torch.ones(2, past + count, dtype=torch.int64),
        "position_ids": torch.arange(past, past + count).repeat(2, 1),
        "past_key_values": DynamicCache(cache),
    }
    shapes = {
        "input_ids": {0: "batch", 1: "sequence"},
        "attention_mask": {0: "batch", 1: "total"},
        "position_ids": {0: "batch", 1: "sequence"},
        "past_key_values": [[{0: "batch", 2: "past"}] * 2] * 2,
    }
    if not positions:
        del kwargs["position_ids"], shapes["position_ids"]
    if last:
        kwargs["logits_to_keep"], shapes["logits_to_keep"] = 1, None
    return to_onnx(model, (), kwargs, dynamic_shapes=shapes, **more)


class TestGenerator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        register_dynamic_cache_export_support()
        cls.addClassCleanup(torch.utils._pytree._deregister_pytree_node, DynamicCache)
        torch.manual_seed(0)
        cls.models = {name: build().eval() for name, build in MODELS.items()}
        cls.programs = {
            name: exported(model, 4 if name == "GPT-2" else 2) for name, model in cls.models.items()
        }

    def generated(self, name: str, tokens: np.ndarray, mask: np.ndarray, **more) -> np.ndarray:
        """The tokens of transformers."""
        with torch.no_grad():
            return (
                self.models[name]
                .generate(
                    torch.from_numpy(tokens),
                    attention_mask=torch.from_numpy(mask),
                    do_sample=False,
                    pad_token_id=0,
                    **{"eos_token_id": None, **more},
                )
                .numpy()
            )

    def test_tokens_are_those_of_transformers(self):
        tokens, mask = left_padded(PROMPTS)
        for name, program in self.programs.items():
            with self.subTest(name):
                generator = Generator(program, max_length=40, threads=1)
                self.assertFalse(generator.interface.is_shared)
                expected = self.generated(name, tokens, mask, max_new_tokens=34)
                self.assertGreater(len(np.unique(expected[:, 6:])), 10)
                np.testing.assert_array_equal(generator.generate(tokens, mask), expected)
                for prompt in PROMPTS[:2]:  # other batches, the same generator
                    row = np.array([prompt])
                    expected = self.generated(name, row, np.ones_like(row), max_new_tokens=7)
                    np.testing.assert_array_equal(generator.generate(row, max_new_tokens=7), expected)

    def test_logits_of_the_last_token_alone(self):
        tokens, mask = left_padded(PROMPTS)
        program = exported(self.models["Llama"], 2, last=True)
        generator = Generator(program, max_length=20, threads=1)
        self.assertTrue(generator.interface.gives_last)
        expected = self.generated("Llama", tokens, mask, max_new_tokens=14)
        np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_rows_end_with_a_stop_token(self):
        tokens, mask = left_padded(PROMPTS)
        for name in ("Llama", "GPT-2"):
            with self.subTest(name):
                generator = Generator(self.programs[name], max_length=40, threads=1)
                free = generator.generate(tokens, mask)[:, 6:]
                stop = [int(free[0, 4]), int(free[1, 9])]
                expected = self.generated(name, tokens, mask, max_new_tokens=34, eos_token_id=stop)
                np.testing.assert_array_equal(generator.generate(tokens, mask, stop=stop), expected)
                every = sorted({int(token) for token in free[:, 0]})
                self.assertEqual(generator.generate(tokens, mask, stop=every).shape, (3, 7))

    def test_what_follows_the_end_of_a_row_is_no_token_of_the_model(self):
        tokens, mask = left_padded(PROMPTS)
        generator = Generator(self.programs["Llama"], max_length=30, threads=1)
        stop = [int(generator.generate(tokens, mask)[0, 9])]
        expected = generator.generate(tokens, mask, stop=stop, padding=0)
        ends = np.cumsum(np.isin(expected[:, tokens.shape[1] :], stop), axis=1)
        follows = np.pad(ends > 0, ((0, 0), (tokens.shape[1] + 1, 0)))[:, :-1]
        self.assertTrue(follows.any())
        for padding in (-1, VOCABULARY):
            got = generator.generate(tokens, mask, stop=stop, padding=padding)
            np.testing.assert_array_equal(got, np.where(follows, padding, expected))

    def test_logits_are_those_of_the_whole_sequence(self):
        model = self.models["Llama"]
        generator = Generator(self.programs["Llama"], max_length=9, threads=1)
        tokens = np.arange(1, 19).reshape(2, 9)
        got = [generator.prefill(tokens[:, :5]), *(generator.step(tokens[:, index]) for index in range(5, 9))]
        with torch.no_grad():
            expected = model(torch.from_numpy(tokens)).logits[:, 4:].numpy()
        np.testing.assert_allclose(np.stack(got, axis=1), expected, rtol=1e-4, atol=1e-4)
        self.assertEqual(generator.length, 9)

    def test_quantized_weights(self):
        tokens = np.arange(1, 19).reshape(2, 9)
        program = self.programs["Llama"]
        exact = Generator(program, max_length=12, threads=1).prefill(tokens)
        for bits, bound in ((8, 0.05), (4, 0.6)):
            generator = Generator(quantize_weights(program, bits), max_length=12, threads=1)
            error = np.linalg.norm(generator.prefill(tokens) - exact) / np.linalg.norm(exact)
            self.assertLess(error, bound)
            self.assertEqual(generator.generate(tokens).shape, (2, 12))

    def test_buffers_stay_where_they_are(self):
        generator = Generator(self.programs["Llama"], max_length=20, threads=1)
        generator.prefill(np.array([[1, 2, 3]]))
        places = {address for pair in generator.cache.addresses for address in pair}
        self.assertEqual(len(places), 8)
        self.assertEqual({address % 64 for address in places}, {0})
        self.assertEqual(generator.cache.nbytes, 2 * 4 * 2 * 20 * 8 * 4)
        for token in range(5):
            generator.step(np.array([token]))
        generator.prefill(np.array([[4, 5]]))
        self.assertEqual(places, {address for pair in generator.cache.addresses for address in pair})

    def test_results_do_not_keep_the_buffers_of_earlier_ones(self):
        generator = Generator(self.programs["Llama"], max_length=20, threads=1)
        self.assertFalse(generator.session.get_session_options().enable_mem_reuse)

    def test_sampling_depends_on_the_seed_alone(self):
        generator = Generator(self.programs["Llama"], max_length=40, threads=1)
        tokens = np.array([[1, 2, 3]])
        drawn = [generator.generate(tokens, sampling=Sampling(seed=seed)).tolist() for seed in (0, 0, 1)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        best = generator.generate(tokens)
        np.testing.assert_array_equal(generator.generate(tokens, sampling=Sampling(top_k=1)), best)
        np.testing.assert_array_equal(generator.generate(tokens, sampling=Sampling(top_p=1e-6)), best)
        np.testing.assert_array_equal(generator.generate(tokens, sampling=Sampling(temperature=1e-6)), best)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(copy.deepcopy(self.programs["Llama"]), path, save_as_external_data=True)
            self.assertGreater(len(os.listdir(folder)), 1)
            tokens = np.array([[1, 2, 3]])
            from_file = Generator(path, max_length=20).generate(tokens)
        np.testing.assert_array_equal(from_file, Generator(self.programs["Llama"], 20).generate(tokens))

    def assert_refused(self, message: str, call) -> None:
        with self.assertRaises(DecodingError) as caught:
            call()
        self.assertEqual(str(caught.exception), message)

    def test_one_token_that_ends_a_row_is_a_list_of_one(self):
        generator = Generator(self.programs["Llama"], max_length=6, threads=1)
        with self.assertRaisesRegex(TypeError, "stop is a list of tokens, not 3"):
            generator.generate(np.array([[1, 2, 3]]), stop=3)

    def test_what_does_not_fit_is_refused(self):
        generator = Generator(self.programs["Llama"], max_length=6, threads=1)
        tokens = np.array([[1, 2, 3], [4, 5, 6]])
        left = "the mask has zeros on the left, for padding, then ones up to the last token"
        for message, call in (
            (
                "there is no prompt: prefill comes before the first step",
                lambda: generator.step(np.array([1])),
            ),
            ("7 tokens are more than max_length=6", lambda: generator.prefill(np.ones((1, 7), np.int64))),
            (
                "3 tokens of the prompts and 4 new ones do not fit in max_length=6",
                lambda: generator.generate(tokens, max_new_tokens=4),
            ),
            (
                "9 tokens of the prompts and 0 new ones do not fit in max_length=6",
                lambda: generator.generate(np.ones((1, 9), np.int64)),
            ),
            ("max_new_tokens is at least 0, not -1", lambda: generator.generate(tokens, max_new_tokens=-1)),
            ("the mask is [2, 2], the tokens are [2, 3]", lambda: generator.generate(tokens, tokens[:, :2])),
            (left, lambda: generator.generate(tokens, np.array([[1, 1, 0], [1, 1, 1]]))),
            (left, lambda: generator.generate(tokens, np.array([[0, 0, 0], [1, 1, 1]]))),
            (left, lambda: generator.generate(tokens, np.array([[0, 1, 2], [1, 1, 1]]))),
            ("tokens are integers [batch, sequence], not int64[3]", lambda: generator.generate(tokens[0])),
            (
                "tokens are integers [batch, sequence], not float32[2, 3]",
                lambda: generator.generate(tokens.astype(np.float32)),
            ),
            (
                "tokens are integers [batch, sequence], not int64[2, 0]",
                lambda: generator.prefill(tokens[:, :0]),
            ),
            ("each prompt has at least one token", lambda: left_padded([[1], []])),
            ("a prompt is a list of integers, not float64[1]", lambda: left_padded([[1], [1.7]])),
            ("a prompt is a list of integers, not int64[]", lambda: left_padded([[1], 3])),
            ("prompts are a list of lists of integers, not 3", lambda: left_padded(3)),
            ("padding is a whole number, not 0.5", lambda: left_padded([[1]], padding=0.5)),
            ("padding is a whole number, not 0.5", lambda: generator.generate(tokens, padding=0.5)),
            ("a token of stop is a whole number, not 1.5", lambda: generator.generate(tokens, stop=[1.5])),
            (
                "max_new_tokens is a whole number, not 1.5",
                lambda: generator.generate(tokens, max_new_tokens=1.5),
            ),
            (
                "tokens are rows of one length: left_padded fills those of prompts",
                lambda: generator.generate([[1, 2], [3]]),
            ),
            (
                "threads is a whole number, not 1.5",
                lambda: Generator(self.programs["Llama"], 6, threads=1.5),
            ),
            ("max_length is a whole number, not 2.5", lambda: Generator(self.programs["Llama"], 2.5)),
            ("a token is at least 0, not -1", lambda: generator.prefill(np.array([[1, -1]]))),
            ("max_length is at least 1, not 0", lambda: Generator(self.programs["Llama"], 0)),
        ):
            with self.subTest(message):
                self.assert_refused(message, call)
        with self.assertRaisesRegex(
            DecodingError, "does not take 1 rows of 2 tokens after 0, or one of these tokens: .*idx=61"
        ):
            generator.prefill(np.array([[1, VOCABULARY]]))
        generator.prefill(tokens)
        expected = generator.prefill(np.array([[0, 5]]), np.array([[0, 1]]))
        for padding in (-1, -100, VOCABULARY):  # whatever stands for padding is not seen
            got = generator.prefill(np.array([[padding, 5]]), np.array([[0, 1]]))
            np.testing.assert_array_equal(got, expected)
        for wrong in ({"temperature": 0.5}, Sampling):
            with self.assertRaisesRegex(TypeError, "^sampling is a Sampling, not "):
                generator.generate(tokens, sampling=wrong)
        generator.prefill(tokens)
        self.assert_refused(
            "one token for each of the 2 rows, not [3]", lambda: generator.step(np.array([1, 2, 3]))
        )
        for _ in range(3):
            generator.step(np.array([1, 2]))
        self.assert_refused("7 tokens are more than max_length=6", lambda: generator.step(np.array([1, 2])))

    def test_padding_needs_positions(self):
        generator = Generator(exported(self.models["GPT-2"], 4, positions=False), max_length=12, threads=1)
        row = np.array([PROMPTS[0]])
        expected = self.generated("GPT-2", row, np.ones_like(row), max_new_tokens=8)
        np.testing.assert_array_equal(generator.generate(row), expected)
        self.assert_refused(
            "the model takes no positions, and counts padding: give it prompts of one length",
            lambda: generator.generate(*left_padded(PROMPTS)),
        )


TENSORS = {"embed": (32, 16), "wq": (16, 32), "wk": (16, 16), "wv": (16, 16), "head": (32, 32)}
GROUPED = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
grouped (int64[B,S] input_ids, int64[B,T] attention_mask, int64[B,S] position_ids,
         float[B,2,P,8] past_0_key, float[B,2,P,8] past_0_value)
    => (float[B,S,32] logits, float[B,2,N,8] present_0_key, float[B,2,N,8] present_0_value)
    <int64[1] one = {1}, int64[1] three = {3}, int64[2] axes = {1, 2}, float big = {-10000.0}, float zero = {0.0}>
{
    shifted = Mul(position_ids, three)
    rank = Add(input_ids, shifted)
    places = Constant<value = int64 {32}>()
    which = Mod(rank, places)
    x = Gather(embed, which)
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    length = Shape<start=1, end=2>(attention_mask)
    rows = Shape<start=0, end=1>(attention_mask)
    ones = Expand(one, rows)
    lengths = Mul(ones, length)
    before = Sub(lengths, one)
    seqlens = Cast<to=6>(before)
    scalar = Squeeze(length)
    total = Cast<to=6>(scalar)
    seen = Cast<to=9>(attention_mask)
    kept = Where(seen, zero, big)
    wide = Unsqueeze(kept, axes)
    count = Shape<start=1, end=2>(input_ids)
    shape = Concat<axis=0>(rows, one, count, length)
    bias = Expand(wide, shape)
    y, present_0_key, present_0_value = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>
        (q, k, v, past_0_key, past_0_value, seqlens, total, , , , BIAS)
    EXTRA
    logits = MatMul(y, head)
}"""


class TestSharedBuffer(unittest.TestCase):
    """A decoder of one layer whose GroupQueryAttention may read and write one buffer."""

    WEIGHTS = {
        name: np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 0.5
        for seed, (name, shape) in enumerate(TENSORS.items())
    }

    def built(self, bias: str = "bias", extra: str = "") -> onnx.ModelProto:
        text = GROUPED.replace("BIAS", bias).replace("EXTRA", extra)
        if not bias:
            text = text.replace("total, , , , )", "total)")
        model = onnx.parser.parse_model(text)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(value, name) for name, value in self.WEIGHTS.items()
        )
        return model

    def logits(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What follows each row, computed without a cache."""
        weights = self.WEIGHTS
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        x = weights["embed"][(tokens + 3 * positions) % 32]
        batch, count = tokens.shape

        def heads(name, number):
            parts = (x @ weights[name]).reshape(batch, count, number, 8).transpose(0, 2, 1, 3)
            return np.repeat(parts, 4 // number, axis=1)

        scores = heads("wq", 4) @ heads("wk", 2).swapaxes(2, 3) / 8**0.5
        open_ = np.tril(np.ones((count, count), bool)) & (mask[:, None, None] > 0)
        scores = np.where(open_, scores, -10000.0)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attended = (scores / scores.sum(axis=-1, keepdims=True)) @ heads("wv", 2)
        return attended.transpose(0, 2, 1, 3).reshape(batch, count, 32)[:, -1] @ weights["head"]

    def assert_generates(self, generator: Generator, prompts: list[list[int]]) -> None:
        tokens, mask = left_padded(prompts)
        expected = tokens
        for _ in range(generator.max_length - tokens.shape[1]):
            best = self.logits(
                expected, np.pad(mask, [(0, 0), (0, expected.shape[1] - mask.shape[1])], constant_values=1)
            )
            expected = np.concatenate([expected, best.argmax(axis=1)[:, None]], axis=1)
        self.assertGreater(len(np.unique(expected[:, tokens.shape[1] :])), 2)
        np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_past_and_present_are_one_buffer(self):
        generator = Generator(self.built(), max_length=16, threads=1)
        self.assertTrue(generator.interface.is_shared)
        self.assert_generates(generator, [[5, 6, 7]])
        self.assertEqual(generator.cache.nbytes, 2 * 2 * 16 * 8 * 4)
        for past, present in generator.cache.buffers:
            self.assertIs(past, present)
        self.assert_generates(generator, PROMPTS)

    def test_a_past_that_another_node_reads_is_not_shared(self):
        model = self.built(extra="size = Shape(past_0_key)")
        generator = Generator(model, max_length=16, threads=1)
        self.assertFalse(generator.interface.is_shared)
        self.assert_generates(generator, PROMPTS)

    def test_padding_needs_the_mask_in_the_scores(self):
        generator = Generator(self.built(bias=""), max_length=16, threads=1)
        self.assert_generates(generator, [[5, 6, 7], [1, 2, 3]])
        with self.assertRaises(DecodingError) as caught:
            generator.generate(*left_padded(PROMPTS))
        self.assertEqual(
            str(caught.exception), "the model reads no mask of its keys: give it prompts of one length"
        )


class TestInterface(unittest.TestCase):
    CASES = {
        "the model has no cache: no input is a tensor of floats [batch, heads, tokens, size], as past_key_values are, or a state": (
            "(int64[B,S] input_ids) => (float[B,S,4] logits) { a = Unsqueeze(input_ids, two) logits = Expand(zero, shape) }"
        ),
        "the cache is float32 or float16, past_0_key is a tensor(bfloat16)": (
            "(int64[B,S] input_ids, bfloat16[B,2,P,8] past_0_key) => (float[B,S,4] logits, bfloat16[B,2,P,8] present_0_key)"
            "{ logits = Expand(zero, shape) present_0_key = Identity(past_0_key) }"
        ),
        "past_1_key, present_0_key: each past needs a present of the same layer, and the reverse": (
            "(int64[B,S] input_ids, float[B,2,P,8] past_1_key) => (float[B,S,4] logits, float[B,2,P,8] present_0_key)"
            "{ logits = Expand(zero, shape) present_0_key = Identity(past_1_key) }"
        ),
        "past_0_key and past_0_key_more are of the same layer: they need names that differ": (
            "(int64[B,S] input_ids, float[B,2,P,8] past_0_key, float[B,2,P,8] past_0_key_more) => (float[B,S,4] logits)"
            "{ logits = Expand(zero, shape) }"
        ),
        "the input scale, tensor(float)[], has no role in decoding": (
            "(int64[B,S] input_ids, float scale, float[B,2,P,8] past_0_key) => (float[B,S,4] logits, float[B,2,P,8] present_0_key)"
            "{ logits = Expand(zero, shape) present_0_key = Mul(past_0_key, scale) }"
        ),
        "a decoder takes tokens, int64[batch, sequence], and gives logits[batch, sequence, size of the vocabulary]": (
            "(int64[B,S] input_ids, float[B,2,P,8] past_0_key) => (float[B,2,P,8] present_0_key)"
            "{ present_0_key = Identity(past_0_key) }"
        ),
        "past_0_key and present_0_key need one type, a number of heads and a size of the heads": (
            "(int64[B,S] input_ids, float[B,H,P,8] past_0_key) => (float[B,S,4] logits, float[B,H,P,8] present_0_key)"
            "{ logits = Expand(zero, shape) present_0_key = Identity(past_0_key) }"
        ),
    }

    def test_a_model_that_is_no_decoder_is_refused(self):
        constants = "<float[1,1,4] zero = {0, 0, 0, 0}, int64[3] shape = {1, 1, 4}, int64[1] two = {2}>"
        for message, text in self.CASES.items():
            with self.subTest(message):
                head, body = text.split("{")
                model = onnx.parser.parse_model(
                    f'<ir_version: 10, opset_import: ["" : 20]> g {head} {constants} {{ {body}'
                )
                with self.assertRaises(DecodingError) as caught:
                    Generator(model, max_length=4)
                self.assertEqual(str(caught.exception), message)

    def test_a_model_that_onnxruntime_refuses(self):
        refused = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Nothing(x) }'
        )
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text.onnx")
            with open(path, "w") as file:
                file.write("no model")
            for message, model in {
                "there is no model: .*No such file or directory: 'no/such/file.onnx'": "no/such/file.onnx",
                "there is no model: '.*text.onnx' is not an ONNX model, or it is truncated": path,
                "there is no model: .*Is a directory": folder,
                "onnxruntime refuses the model: .*Nothing": refused,
            }.items():
                with self.subTest(message), self.assertRaisesRegex(DecodingError, message):
                    Generator(model, max_length=4)
        with self.assertRaisesRegex(
            TypeError, "a model is an onnx.ModelProto or the path of a file, not int"
        ):
            Generator(3, max_length=4)


if __name__ == "__main__":
    unittest.main()
