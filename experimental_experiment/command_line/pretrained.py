"""``export --transformers FOLDER_OR_MODEL -o FOLDER``: a model of transformers, with what belongs to it beside the graphs."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from typing import Any

import onnx
import torch

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.torch_interpreter import ExportError
from experimental_experiment.torch_interpreter.conversion import opsets

FILES = (
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "merges.txt", "preprocessor_config.json",
    "processor_config.json", "sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model", "tokenizer.json",
    "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
)  # fmt: skip
"""The files of a tokenizer or of a processor."""

REFUSED = {
    "check": False, "dynamic": [], "functions": False, "input_names": None, "mutated_buffers": "drop", "patch": None,
}  # fmt: skip
"""Options of ``export`` that only MODULE:FUNCTION has, with their defaults."""


def run(given: argparse.Namespace) -> int:
    """Export every graph of the model; the exit status."""
    for name, default in REFUSED.items():
        if getattr(given, name) != default:
            raise CommandError(f"--{name.replace('_', '-')} does not go with --transformers")
    try:
        from experimental_experiment.torch_interpreter.transformers_exporter import Exporter, OnnxConfig
    except ImportError as error:
        raise CommandError(str(error)) from error
    refuse_misfit_target(given)
    torch.manual_seed(0)
    model = load(given.transformers)
    config = OnnxConfig(dynamic=True, strict=given.strict, opset_version=given.opset)
    begin = time.perf_counter()
    try:
        if given.task == "generate":
            inputs = prompt(model)
            exported = Exporter().export_for_generation(
                model, inputs, config, generation_config=model.generation_config
            )
            if model.config.is_encoder_decoder:
                encoder = Exporter().export(model.get_encoder(), of_encoder(inputs), config)
                exported.components["encoder"] = encoder.components["model"]
        else:
            exported = Exporter().export(model, example(model), config)
    except ExportError as error:
        raise CommandError(str(error), status=1) from error
    except RuntimeError as error:  # a stage of the generation, which the message names
        if not isinstance(error.__cause__, ExportError):
            raise
        raise CommandError(f"{error}\n{error.__cause__}", status=1) from error
    seconds = time.perf_counter() - begin
    exported.save_pretrained(given.output)
    copied = copy_files(given.transformers, given.output)
    if given.quiet:
        return 0
    for name in exported.components:
        print(described(os.path.join(given.output, f"{name}.onnx")))
    print(f"{', '.join(['config.json', *copied])} beside; {seconds:.1f} s")
    return 0


def refuse_misfit_target(given: argparse.Namespace) -> None:
    """Raise CommandError for a version of ai.onnx that there is not, and for a file in the place of the folder to write."""
    try:
        opsets(given.opset)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if os.path.exists(given.output) and not os.path.isdir(given.output):
        raise CommandError(f"{given.output!r} is a file: --transformers writes a folder")


def load(source: str) -> Any:
    """The model of a folder, or of a name that transformers knows, of the class that its configuration names."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(source)
        name = (config.architectures or ["AutoModel"])[0]
        return getattr(transformers, name).from_pretrained(source).eval()
    except (AttributeError, OSError, ValueError) as error:
        raise CommandError(f"transformers cannot load {source!r}: {error}") from error


def prompt(model: Any) -> dict[str, torch.Tensor]:
    """What ``model.generate`` is called with. Raises CommandError when the model does not generate, or not from an example's inputs."""
    if not model.can_generate():
        raise CommandError(f"{type(model).__name__} does not generate: leave --task generate out")
    return example(model)


def of_encoder(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs that an encoder reads, which ``generate`` runs once, before the stages that transformers takes apart."""
    return {name: value for name, value in inputs.items() if not name.startswith("decoder_")}


def example(model: Any) -> dict[str, torch.Tensor]:
    """Random inputs of two rows, several tokens each: a size of 1 would be a constant. Raises CommandError when it takes a person to make them."""
    config, name = model.config, model.main_input_name
    text = config.get_text_config()
    is_text = name == "input_ids" and not any(
        hasattr(config, part) for part in ("audio_config", "vision_config")
    )
    if is_text:
        ids = torch.randint(0, text.vocab_size, (2, 8))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    elif name == "pixel_values" and hasattr(config, "image_size"):
        size = config.image_size
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        inputs = {"pixel_values": torch.randn(2, config.num_channels, height, width)}
    elif name == "input_features" and hasattr(config, "max_source_positions"):
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)}
    elif name == "input_values":
        inputs = {"input_values": torch.randn(2, 16000)}
    else:
        raise CommandError(
            f"the inputs of {type(model).__name__} are not known: write a function that returns (model, args, kwargs) and "
            "name it, export MODULE:FUNCTION"
        )
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(0, text.vocab_size, (2, 3))
    return inputs


def copy_files(source: str, folder: str) -> list[str]:
    """Copy the files of the tokenizer and of the processor beside the graphs; their names."""
    from transformers.utils import cached_file

    found = {name: cached_file(source, name, _raise_exceptions_for_missing_entries=False) for name in FILES}
    copied = [name for name, path in found.items() if path is not None]
    for name in copied:
        shutil.copyfile(found[name], os.path.join(folder, name))
    return copied


def described(path: str) -> str:
    """What was written."""
    model = onnx.load(path, load_external_data=False)
    names = [", ".join(value.name for value in values) for values in (model.graph.input, model.graph.output)]
    return f"{path}: {len(model.graph.node)} nodes\n  inputs: {names[0]}\n  outputs: {names[1]}"
