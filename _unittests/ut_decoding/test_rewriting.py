"""A decoder whose cache stays in one buffer gives the tokens of transformers; what cannot be rewritten is refused."""

from __future__ import annotations

import unittest

import numpy as np
import onnx_ir as ir
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    CodeGenConfig,
    CodeGenForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    MptConfig,
    MptForCausalLM,
)
from transformers.cache_utils import DynamicCache
from transformers.integrations.executorch import register_dynamic_cache_export_support

from _unittests.ut_decoding.test_generator import MODELS, PROMPTS, SHAPE, exported
from _unittests.ut_xoptim.cases import parsed
from _unittests.ut_xoptim.test_cache import PROMPT, TEXT
from experimental_experiment.decoding import DecodingError, Generator, in_place, left_padded


class TestInPlace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        register_dynamic_cache_export_support()
        cls.addClassCleanup(torch.utils._pytree._deregister_pytree_node, DynamicCache)
        torch.manual_seed(0)
        cls.models = {name: MODELS[name]().eval() for name in ("Llama", "Qwen2", "GPT-2")}
        cls.programs = {
            name: exported(model, 4 if name == "GPT-2" else 2, target_opset=20)
            for name, model in cls.models.items()
        }

    def generated(self, name: str, tokens: np.ndarray, mask: np.ndarray, count: int) -> np.ndarray:
        """The tokens of transformers."""
        given = {"attention_mask": torch.from_numpy(mask), "max_new_tokens": count, "pad_token_id": 0}
        with torch.no_grad():
            return (
                self.models[name]
                .generate(torch.from_numpy(tokens), do_sample=False, eos_token_id=None, **given)
                .numpy()
            )

    def test_tokens_are_those_of_transformers(self):
        tokens, mask = left_padded(PROMPTS)
        for name, program in self.programs.items():
            with self.subTest(name):
                before = program.SerializeToString()
                generator = Generator(in_place(program), max_length=40, threads=1)
                self.assertEqual(before, program.SerializeToString())
                self.assertTrue(generator.interface.is_shared and generator.interface.reads_padding)
                expected = self.generated(name, tokens, mask, 34)
                self.assertGreater(len(np.unique(expected[:, 6:])), 10)
                np.testing.assert_array_equal(generator.generate(tokens, mask), expected)
                row = np.array([PROMPTS[0]])
                expected = self.generated(name, row, np.ones_like(row), 7)
                np.testing.assert_array_equal(generator.generate(row, max_new_tokens=7), expected)

    def test_capped_scores(self):
        """Gemma 2, whose scores a tanh caps, and which sees the last tokens only in one of its layers."""
        sizes = {"head_dim": 8, "sliding_window": 6, "attn_logit_softcapping": 1.5}
        tokens_of = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}
        config = Gemma2Config(**SHAPE, **sizes, **tokens_of)
        self.models["Gemma 2"] = Gemma2ForCausalLM(config).eval()
        self.addCleanup(self.models.pop, "Gemma 2")
        tokens, mask = left_padded(PROMPTS)
        expected = self.generated("Gemma 2", tokens, mask, 34)
        self.assertGreater(len(np.unique(expected[:, 6:])), 5)
        for opset in (20, 23):
            with self.subTest(opset=opset):
                placed = in_place(exported(self.models["Gemma 2"], 2, target_opset=opset))
                attributes = [item for node in placed.graph.node for item in node.attribute]
                self.assertEqual([1.5, 1.5], [item.f for item in attributes if item.name == "softcap"])
                np.testing.assert_array_equal(
                    Generator(placed, 40, threads=1).generate(tokens, mask), expected
                )

    def test_sinks_and_quotients(self):
        """gpt-oss, where a number of each head takes its share of the weights, and GPT-J, which divides the scores."""
        sizes = {
            "vocab_size": SHAPE["vocab_size"],
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
        }
        none = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 6}
        models = {
            "GPT-J": GPTJForCausalLM(GPTJConfig(**sizes, rotary_dim=4, initializer_range=0.4, **none)),
            "gpt-oss": GptOssForCausalLM(GptOssConfig(**SHAPE, **experts, **none, pad_token_id=None)),
        }
        tokens, mask = left_padded(PROMPTS)
        for name, model in models.items():
            with self.subTest(name):
                for parameter, value in model.named_parameters():
                    if parameter.endswith("sinks"):
                        torch.nn.init.normal_(value, std=2.0)
                self.models[name] = model.eval()
                self.addCleanup(self.models.pop, name)
                expected = self.generated(name, tokens, mask, 34)
                self.assertGreater(len(np.unique(expected[:, 6:])), 5)
                heads = 4 if name == "GPT-J" else 2
                for opset in (20, 23):
                    placed = in_place(exported(model, heads, target_opset=opset))
                    generator = Generator(placed, 40, threads=1)
                    self.assertTrue(generator.interface.is_shared)
                    np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_masks_of_eager_attention(self):
        """Numbers of heads in Bloom and MPT, which take no positions, and masks that stand elsewhere, in CodeGen and GPT-Neo."""
        torch.manual_seed(0)
        none = {"vocab_size": SHAPE["vocab_size"], "bos_token_id": None, "eos_token_id": None}
        none["tie_word_embeddings"] = False  # for the tokens to vary
        sizes = {**none, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}
        kinds = {"attention_types": [[["global", "local"], 1]], "window_size": 6}
        shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64}
        mpt = {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}
        models = {
            "Bloom": BloomForCausalLM(BloomConfig(**sizes, hidden_size=32)),
            "MPT": MptForCausalLM(MptConfig(**none, **mpt, initializer_range=0.4)),
            "CodeGen": CodeGenForCausalLM(CodeGenConfig(**sizes, n_embd=32, n_positions=64, rotary_dim=4)),
            "GPT-Neo": GPTNeoForCausalLM(GPTNeoConfig(**none, **kinds, **shape, initializer_range=0.4)),
        }
        for name, model in models.items():
            with self.subTest(name):
                self.models[name] = model.eval()
                self.addCleanup(self.models.pop, name)
                positions = name in ("CodeGen", "GPT-Neo")
                tokens, mask = left_padded(
                    PROMPTS if positions else [[5, 6, 7, 8, 9, 1], [9, 3, 2, 7, 12, 4]]
                )
                expected = self.generated(name, tokens, mask, 34)
                self.assertGreater(len(np.unique(expected[:, 6:])), 5)
                generator = Generator(in_place(exported(model, 4, positions, target_opset=20)), 40, threads=1)
                self.assertTrue(generator.interface.is_shared)
                np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_latent_attention(self):
        """DeepSeek, whose cache of latent rows becomes one of keys and values of all heads, the values as large as the keys."""
        ranks = {"q_lora_rank": 12, "kv_lora_rank": 8, "first_k_dense_replace": 2, "num_key_value_heads": 4}
        sizes = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "head_dim": 8, "v_head_dim": 8}
        config = DeepseekV3Config(**{**SHAPE, **ranks, **sizes}, bos_token_id=None, eos_token_id=None)
        self.models["DeepSeek"] = DeepseekV3ForCausalLM(config).eval()
        self.addCleanup(self.models.pop, "DeepSeek")
        tokens, mask = left_padded(PROMPTS)
        expected = self.generated("DeepSeek", tokens, mask, 34)
        self.assertGreater(len(np.unique(expected[:, 6:])), 10)
        for opset in (20, 23):
            with self.subTest(opset=opset):
                program = exported(self.models["DeepSeek"], 1, target_opset=opset)
                generator = Generator(in_place(program), 40, threads=1)
                self.assertTrue(generator.interface.is_shared)
                sizes = [(item.heads, item.size) for item in generator.interface.cache]
                self.assertEqual([(4, 24)] * 4, sizes)
                np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_local_functions(self):
        """They are inlined."""
        program = exported(self.models["Llama"], 2, target_opset=20, modules_as_functions=True)
        self.assertTrue(program.functions)
        placed = in_place(program)
        self.assertFalse(placed.functions)
        tokens, mask = left_padded(PROMPTS)
        expected = self.generated("Llama", tokens, mask, 34)
        np.testing.assert_array_equal(Generator(placed, 40, threads=1).generate(tokens, mask), expected)

    def test_opset_23(self):
        """Attention of opset 23 is rewritten too: the tokens stay."""
        tokens, mask = left_padded(PROMPTS)
        generator = Generator(in_place(exported(self.models["Llama"], 2, target_opset=23)), 40, threads=1)
        self.assertTrue(generator.interface.is_shared and generator.interface.reads_padding)
        expected = self.generated("Llama", tokens, mask, 34)
        np.testing.assert_array_equal(generator.generate(tokens, mask), expected)

    def test_a_model_of_onnx_ir_is_changed(self):
        model = ir.from_proto(self.programs["Llama"])
        self.assertIs(model, in_place(model))
        self.assertEqual(
            ["GroupQueryAttention"] * 2,
            [
                node.op_type
                for node in model.graph
                if node.domain == "com.microsoft" and "Attention" in node.op_type
            ],
        )
        self.assertEqual(
            ["batch", 2, "capacity", 8],
            [dim if isinstance(dim, int) else dim.value for dim in model.graph.outputs[1].shape],
        )

    def test_what_is_refused(self):
        """Nothing is guessed of a model that is no decoder of this form."""
        ids = "int64[B,S] ids, int64[B,T] mask"
        asked = TEXT.replace("int64[B,T] mask", ids)
        nothing = "no attention of the model appends keys and values to a cache"
        known = "mask and tokens tell how many tokens the cache holds: no input int64"
        cases = {
            "opset 23, a cache that grows at its front": (
                asked.replace("Concat <axis=2> (past_k, kh)", "Concat <axis=2> (kh, past_k)"),
                23,
                nothing,
            ),
            "no cache": (
                asked.replace("Concat <axis=2> (past_k, kh)", "Concat <axis=2> (kh, past_k)"),
                20,
                nothing,
            ),
            "a prompt only": (
                PROMPT.replace("int64[B,S] mask", "int64[B,S] ids, int64[B,S] mask"),
                20,
                nothing,
            ),
            "heads of twelve": (
                asked.replace(",8]", ",12]"),
                20,
                f"{nothing}; GroupQueryAttention was declined: .*the size of heads is no multiple of 8",
            ),
            "a cache in another dtype": (
                asked.replace("float", "double"),
                20,
                "only attention in float32 is rewritten, past_k is DOUBLE",
            ),
            "another reader of the past": (
                asked.replace("=> (", "=> (float[B,2,P,8] z, ").replace("kt =", "z = Neg (past_k) kt ="),
                20,
                "past_k is also read by Neg",
            ),
            "no mask of that name": (asked.replace("mask", "kept_columns"), 20, known),
            "no tokens": (TEXT, 20, known),
        }
        for promise, (text, opset, sentence) in cases.items():
            with self.subTest(promise), self.assertRaisesRegex(DecodingError, sentence.replace("[", ".")):
                in_place(parsed(text, opset))


if __name__ == "__main__":
    unittest.main()
