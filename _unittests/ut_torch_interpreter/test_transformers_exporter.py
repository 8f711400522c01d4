"""This exporter among those of transformers: graphs that their runner runs, files that they load, their quantizers."""

import contextlib
import importlib.util
import io
import json
import os
import tempfile
import unittest
from unittest import mock

import torch
import transformers
from torch.utils import _pytree as pytree

from experimental_experiment.command_line import main, pretrained
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.torch_interpreter import CaptureError, to_onnx
from experimental_experiment.torch_interpreter.weights import WeightsError
from experimental_experiment.versions import numbers

HAS_EXPORTERS = importlib.util.find_spec("transformers.exporters") is not None
if HAS_EXPORTERS:
    from transformers.exporters import (
        ExportedModel,
        OnnxConfig,
        OnnxRuntimeDynamicConfig,
        OnnxRuntimeQuantizer,
    )
    from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model

    from experimental_experiment.torch_interpreter import transformers_exporter

VOCABULARY = 61
ARGUMENT = (
    "past_key_values" if numbers(transformers.__version__) < numbers("5.24") else "cache"
)  # what transformers calls its cache
CACHE = [f"{ARGUMENT}.layers.0.{part}" for part in ("keys", "values")]


def llama() -> torch.nn.Module:
    """A decoder of one layer."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=24, max_position_embeddings=64, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
    """Random tokens, all to be read."""
    ids = torch.randint(1, VOCABULARY, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@unittest.skipUnless(HAS_EXPORTERS, "this version of transformers has no exporters")
class TestExporter(unittest.TestCase):
    """Through the interface of transformers.exporters."""

    def assert_same(self, exported, model, given):
        """The logits are those of the model."""
        with torch.no_grad():
            expected = model(**given).logits
        torch.testing.assert_close(exported(**given).logits, expected, rtol=1e-4, atol=1e-5)

    def test_one_graph(self):
        model = llama()
        exported = transformers_exporter.Exporter().export(model, inputs(2, 5), OnnxConfig(dynamic=True))
        self.assertEqual(
            [value.name for value in exported.program.graph.inputs], ["input_ids", "attention_mask"]
        )
        self.assertEqual([value.name for value in exported.program.graph.outputs], ["logits", *CACHE])
        self.assert_same(exported, model, inputs(3, 9))
        with tempfile.TemporaryDirectory() as folder:
            exported.save_pretrained(folder)
            again = ExportedModel.from_pretrained(folder)
            self.assertIsInstance(again(**inputs(1, 4)), transformers.modeling_outputs.CausalLMOutputWithPast)
            self.assert_same(again, model, inputs(4, 2))

    def test_a_loop_over_tokens(self):
        torch.manual_seed(0)
        config = transformers.MambaConfig(
            vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1, pad_token_id=0
        )
        model = transformers.MambaForCausalLM(config).eval()
        exported = transformers_exporter.Exporter().export(model, inputs(2, 5), OnnxConfig(dynamic=True))
        self.assert_same(exported, model, inputs(3, 9))

    def test_images_of_other_sizes(self):
        """Their position embeddings are interpolated, those of the configured size are not in the program for all sizes."""
        torch.manual_seed(0)
        config = transformers.Dinov2Config(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
        )
        model = transformers.Dinov2Model(config).eval()
        given = {"pixel_values": torch.randn(2, 3, 32, 32)}
        exported = transformers_exporter.Exporter().export(model, given, OnnxConfig(dynamic=True))
        for size in ((1, 3, 32, 32), (3, 3, 48, 64), (1, 3, 24, 16)):
            with self.subTest(size):
                images = torch.randn(size)
                with torch.no_grad():
                    expected = model(images).last_hidden_state
                found = exported(pixel_values=images).last_hidden_state
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_weights_that_are_written_after_the_export(self):
        model = llama()
        exported = transformers_exporter.Exporter().export(model, inputs(2, 5), OnnxConfig(dynamic=True))
        with torch.no_grad():
            model.model.embed_tokens.weight.mul_(2)
        message = "the weight model.embed_tokens.weight was written after the export: export the model again"
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(WeightsError, message):
                exported.save_pretrained(folder)
            self.assertEqual([file for file in os.listdir(folder) if "onnx" in file], [])

    def test_names_of_caches_are_those_of_to_onnx_again(self):
        model = llama()
        cache = transformers.DynamicCache(config=model.config)
        model(**inputs(2, 3), past_key_values=cache)
        register_cache_pytrees_for_model(model)
        before = dict(pytree.SUPPORTED_NODES)
        written = to_onnx(model, (), inputs(2, 2) | {"attention_mask": None, "past_key_values": cache})
        self.assertEqual(written.graph.input[1].name, "past_key_values_0_key")
        self.assertEqual(pytree.SUPPORTED_NODES, before)
        self.assertEqual(len(pytree.tree_leaves(cache)), 2)
        self.assertIsInstance(pytree.treespec_dumps(pytree.tree_structure(cache)), str)

    def test_quantizer(self):
        model = llama()
        quantizer = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(op_types_to_quantize=["MatMul"]))
        exported = transformers_exporter.Exporter().export(
            model, inputs(2, 5), OnnxConfig(dynamic=True, quantizer=quantizer)
        )
        self.assertIn("MatMulInteger", [node.op_type for node in exported.program.graph])
        given = inputs(3, 4)
        torch.testing.assert_close(exported(**given).logits, model(**given).logits, rtol=0.1, atol=0.02)

    def test_operators_of_onnxruntime(self):
        model = llama()
        exported = transformers_exporter.Exporter().export(
            model, inputs(2, 5), OnnxConfig(dynamic=True, ort_fusions="cpu", opset_version=21)
        )
        self.assertEqual(exported.program.opset_imports, {"": 21, "com.microsoft": 1})
        self.assertIn("com.microsoft", {node.domain for node in exported.program.graph})
        self.assert_same(exported, model, inputs(3, 4))
        with self.assertRaisesRegex(ValueError, "ort_fusions='cuda' is not handled: 'cpu' is"):
            transformers_exporter.Exporter().export(model, inputs(2, 5), OnnxConfig(ort_fusions="cuda"))

    def test_refused_model(self):
        class Branch(torch.nn.Module):
            def forward(self, x):
                return {"y": x if x.sum() > 0 else -x}

        with self.assertRaisesRegex(CaptureError, "torch.export.export failed with"):
            transformers_exporter.Exporter().export(Branch(), {"x": torch.ones(3)}, OnnxConfig())


class TestAbsence(unittest.TestCase):
    """What is said where transformers is missing or old."""

    def imported(self, missing: str):
        """The module, imported as if a package were missing."""
        real = importlib.util.find_spec
        spec = real("experimental_experiment.torch_interpreter.transformers_exporter")
        with mock.patch("importlib.util.find_spec", lambda name: None if name == missing else real(name)):
            spec.loader.exec_module(importlib.util.module_from_spec(spec))

    def test_without_transformers(self):
        with self.assertRaisesRegex(
            ImportError,
            r"transformers is not installed: pip install 'experimental_experiment\[transformers\]'",
        ):
            self.imported("transformers")

    def test_an_old_transformers(self):
        with self.assertRaisesRegex(ImportError, "transformers .* has no exporters: 5.23 has them"):
            self.imported("transformers.exporters")


@unittest.skipUnless(HAS_EXPORTERS, "this version of transformers has no exporters")
class TestCommand(unittest.TestCase):
    """``export --transformers``."""

    def run_command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of ``export``."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = main(["export", *arguments])
        return status, output.getvalue(), errors.getvalue()

    def test_generate(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "model"), os.path.join(folder, "onnx")
            llama().save_pretrained(source)
            with open(os.path.join(source, "tokenizer_config.json"), "w", encoding="utf-8") as file:
                json.dump({"tokenizer_class": "LlamaTokenizer"}, file)
            status, output, _ = self.run_command("--transformers", source, "-o", target, "--task", "generate")
            self.assertEqual(status, 0)
            self.assertIn(f"inputs: input_ids, position_ids, input.{CACHE[0]}", output)
            files = set(os.listdir(target))
            exported = ExportedModel.from_pretrained(target)
        self.assertLessEqual({"config.json", "export.json", "generation_config.json"}, files)
        self.assertLessEqual({"decode.onnx", "prefill.onnx", "tokenizer_config.json"}, files)
        self.assertEqual(exported.generation_config.pad_token_id, 0)
        self.assert_generates(exported)

    def test_generate_of_encoder_and_decoder(self):
        """The encoder has a graph, and the past of a step any length: the tokens are those of ``model.generate``."""
        config = transformers.T5Config(
            vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, decoder_start_token_id=0, eos_token_id=None
        )  # fmt: skip
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(config).eval()
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "model"), os.path.join(folder, "onnx")
            model.save_pretrained(source)
            status, output, _ = self.run_command("--transformers", source, "-o", target, "--task", "generate")
            self.assertEqual(status, 0)
            self.assertIn("encoder.onnx", output)
            runners = ExportedModel.from_pretrained(target).runners
        ids = torch.randint(1, VOCABULARY, (3, 6))
        mask = torch.ones_like(ids)
        read = {
            "encoder_outputs": runners["encoder"](input_ids=ids, attention_mask=mask),
            "attention_mask": mask,
        }
        written = [torch.zeros(3, 1, dtype=torch.int64)]
        found = runners["prefill"](decoder_input_ids=written[0], **read)
        for _ in range(4):
            written.append(found.logits[:, -1].argmax(-1, keepdim=True))
            found = runners["decode"](decoder_input_ids=written[-1], **read, **{ARGUMENT: found[ARGUMENT]})
        with torch.no_grad():
            expected = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
        torch.testing.assert_close(torch.cat(written, 1), expected)

    def assert_generates(self, exported):
        """The graphs, one after the other, write the tokens of ``model.generate``."""
        ids = torch.randint(1, VOCABULARY, (3, 6))
        positions = torch.arange(6).expand(3, -1)
        found = exported.runners["prefill"](input_ids=ids, position_ids=positions)
        written = [ids, found.logits[:, -1].argmax(-1, keepdim=True)]
        for step in range(4):
            found = exported.runners["decode"](
                input_ids=written[-1],
                position_ids=torch.full((3, 1), 6 + step),
                **{ARGUMENT: found[ARGUMENT]},
            )
            written.append(found.logits[:, -1].argmax(-1, keepdim=True))
        with torch.no_grad():
            expected = llama().generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False
            )
        torch.testing.assert_close(torch.cat(written, 1), expected)

    def test_what_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            config = transformers.CLIPVisionConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=8, patch_size=4
            )  # fmt: skip
            transformers.CLIPVisionModel(config).save_pretrained(folder)
            refused = {
                ("-o", folder): "export takes either MODULE:FUNCTION or --transformers",
                ("m:f", "-o", "x.onnx", "--task", "generate"): "--task goes with --transformers",
                (
                    "--transformers",
                    folder,
                    "-o",
                    folder,
                    "--check",
                ): "--check does not go with --transformers",
                ("--transformers", f"{folder}/none", "-o", folder): "transformers cannot load",
                (
                    "--transformers",
                    folder,
                    "-o",
                    folder,
                    "--opset",
                    "99",
                ): "error: target_opset 99 is not between 13 and 26",
                (
                    "--transformers",
                    folder,
                    "-o",
                    f"{folder}/config.json",
                ): "is a file: --transformers writes a folder",
                (
                    "--transformers",
                    folder,
                    "-o",
                    folder,
                    "--task",
                    "generate",
                ): "CLIPVisionModel does not generate: leave --task generate out",
            }
            for arguments, message in refused.items():
                with self.subTest(message):
                    status, _, errors = self.run_command(*arguments)
                    self.assertEqual(status, 2)
                    self.assertIn(message, errors)

    def test_unknown_inputs(self):
        model = mock.Mock(config=transformers.CLIPConfig(), main_input_name="input_ids")
        with self.assertRaisesRegex(
            CommandError, "the inputs of Mock are not known: write a function that returns"
        ):
            pretrained.example(model)


if __name__ == "__main__":
    unittest.main()
