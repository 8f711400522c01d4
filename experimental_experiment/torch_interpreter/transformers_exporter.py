"""`Exporter`: this exporter among those of transformers, ``transformers.exporters``.

It captures as they do, with their patches and preparations, and writes what their runner runs, their quantizers take and their
``ExportedModel`` saves. Nothing else of this package imports transformers.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator, MutableMapping
from typing import Any

import onnx_ir as ir

from experimental_experiment import versions

NEEDED = "5.23"
"""The version of transformers that this was written with: older ones have other exporters, or none."""

if importlib.util.find_spec("transformers") is None:
    raise ImportError(
        "the package transformers is not installed: pip install 'experimental_experiment[transformers]'"
    )
if importlib.util.find_spec("transformers.exporters") is None:
    raise ImportError(
        f"transformers {importlib.metadata.version('transformers')} has no exporters: {NEEDED} has them"
    )

versions.require("transformers")

from transformers.exporters import exporter_dynamo, utils  # noqa: E402
from transformers.exporters.configs import OnnxConfig  # noqa: E402
from transformers.exporters.exporter_dynamo import DynamoExporter  # noqa: E402
from transformers.exporters.exporter_onnx import OnnxExporter  # noqa: E402
from transformers.exporters.metadata import ExportMetadata, record_output_structure  # noqa: E402
from transformers.exporters.utils import (  # noqa: E402
    disambiguate_io_names,
    patch_model_outputs,
    quantize_converted_model,
)

from experimental_experiment.protos import MICROSOFT  # noqa: E402
from experimental_experiment.torch_interpreter.conversion import DEFAULT_OPSET, to_ir  # noqa: E402
from experimental_experiment.torch_interpreter.messages import stage  # noqa: E402
from experimental_experiment.torch_interpreter.patches.patch import applied, selected  # noqa: E402
from experimental_experiment.torch_interpreter.weights import weights_errors  # noqa: E402

OURS = frozenset(
    "chunk_loops codec_padding one_chunk packed_attention position_embeddings token_loops vision_grids".split()
)
"""Patches of this package that are applied besides those of transformers."""


@contextlib.contextmanager
def without_their_attention() -> Iterator[None]:
    """Leave out the patch of transformers for packed images: it takes images of one size for granted."""
    before = utils._PATCHES["dynamo"]
    theirs = exporter_dynamo._patch_chunked_vision_attention
    utils._PATCHES["dynamo"] = [item for item in before if item[2] is not theirs]
    try:
        yield
    finally:
        utils._PATCHES["dynamo"] = before


class Exporter(OnnxExporter):
    """Exports models of transformers through `to_onnx`, with the interface, the configuration and the files of `OnnxExporter`.

    ``export(model, inputs, OnnxConfig(dynamic=True))`` gives one graph, ``export_for_generation`` one for each stage of
    ``model.generate``: prefill, decode, the encoders of a multimodal model. The names are the paths of the tensors, as
    ``past_key_values.layers.0.keys``; one that is both an input and an output has ``input.`` and ``output.`` before it.
    ``ort_fusions="cpu"`` stands for the operators of com.microsoft.
    """

    tested_versions: dict[str, str] = {}

    def export_program(
        self, model: Any, sample_inputs: MutableMapping[str, Any], config: OnnxConfig
    ) -> tuple[ir.Model, ExportMetadata]:
        """Capture and translate one graph.

        Raises:
            CaptureError: torch.export refused the model.
            ExportError: a node cannot be translated.
            ValueError: the configuration asks for fusions of another provider than the CPU's.
        """
        if config.ort_fusions not in (None, "cpu"):
            raise ValueError(f"ort_fusions={config.ort_fusions!r} is not handled: 'cpu' is")
        patches = selected(True, ["transformers"])
        with (
            patch_model_outputs(model) as (inputs, outputs, returned),
            stage("torch.export.export"),
            applied([item for item in patches if item.name in OURS]),
            without_their_attention(),
        ):
            program, metadata = DynamoExporter.export_program(self, model, sample_inputs, config)
        input_names, output_names = disambiguate_io_names(inputs, outputs)
        versions = {"": config.opset_version or DEFAULT_OPSET}
        if config.ort_fusions is not None:
            versions[MICROSOFT] = 1
        written = to_ir(
            program,
            input_names=input_names,
            output_names=output_names,
            target_opset=versions,
            optimize=config.optimize,
        )
        record_output_structure(metadata, returned[-1])
        return quantize_converted_model(written, sample_inputs, config), metadata

    @classmethod
    def save_program(cls, program: ir.Model, path: str | os.PathLike) -> None:
        """Write a graph as `OnnxExporter` does. Raises WeightsError when torch has written one of its weights after the export."""
        with weights_errors():
            super().save_program(program, path)
