"""This exporter beside the one of transformers, on small random models of many architectures.

    python benchmarks/transformers_exporters.py                       all of them, about 40 minutes on one core
    python benchmarks/transformers_exporters.py --every 10            one in ten
    python benchmarks/transformers_exporters.py LlamaForCausalLM ...  these

Both export the same call with `OnnxConfig(dynamic=True)`, all axes automatic, and run it and a second one of other sizes in
onnxruntime, through the runner of transformers. A line an architecture: for each exporter the largest difference from eager relative to
the largest value, "static" where the second call is refused for its sizes, or the name of what it failed with; CPU seconds; nodes. The
last lines count what agrees, and give the medians over what both export.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from tabulate import tabulate
from transformers.exporters import OnnxConfig, OnnxExporter
from transformers.exporters.utils import get_leaf_tensors

from experimental_experiment.torch_interpreter.transformers_exporter import Exporter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from tests.small_models import inputs_of, small_model

ARCHITECTURES = """
AfmoeForCausalLM ApertusForCausalLM BioGptForCausalLM BitNetForCausalLM BloomForCausalLM CohereForCausalLM CTRLLMHeadModel
DiffLlamaForCausalLM DogeForCausalLM Emu3ForCausalLM Ernie4_5ForCausalLM Exaone4ForCausalLM FalconForCausalLM FalconMambaForCausalLM
GPT2LMHeadModel GPTNeoXForCausalLM GemmaForCausalLM Gemma3ForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM GptOssForCausalLM
GraniteForCausalLM GraniteMoeForCausalLM HeliumForCausalLM JetMoeForCausalLM Lfm2ForCausalLM LlamaForCausalLM Llama4ForCausalLM
MambaForCausalLM MistralForCausalLM MixtralForCausalLM MptForCausalLM OPTForCausalLM Olmo2ForCausalLM OlmoeForCausalLM
PersimmonForCausalLM Phi3ForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM RwkvForCausalLM SmolLM3ForCausalLM
StableLmForCausalLM Starcoder2ForCausalLM XGLMForCausalLM XLNetLMHeadModel BartForConditionalGeneration
LEDForConditionalGeneration LongT5ForConditionalGeneration M2M100ForConditionalGeneration MT5ForConditionalGeneration
NllbMoeForConditionalGeneration PegasusForConditionalGeneration ProphetNetForConditionalGeneration
SwitchTransformersForConditionalGeneration T5ForConditionalGeneration AlbertForMaskedLM BertForMaskedLM BigBirdForMaskedLM
ConvBertForMaskedLM DebertaV2ForMaskedLM DistilBertForMaskedLM ElectraForMaskedLM FNetForMaskedLM FunnelForMaskedLM
IBertForMaskedLM LongformerForMaskedLM MPNetForMaskedLM MobileBertForMaskedLM ModernBertForMaskedLM NystromformerForMaskedLM
RoFormerForMaskedLM TapasForMaskedLM BeitForImageClassification Dinov2ForImageClassification ImageGPTForImageClassification
MobileNetV2ForImageClassification ViTForImageClassification
""".split()

EXPORTERS = {"ours": Exporter, "transformers": OnnxExporter}
TOLERANCE = 1e-3
"""Of a difference relative to the largest value of the output."""

LIMIT = 180
"""CPU seconds for one export."""


class TooLong(Exception):
    """An export took more than `LIMIT`."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise TooLong after a while."""

    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def measured(name: str, exporter: type) -> dict[str, Any]:
    """What one exporter makes of one architecture: its result, seconds, nodes."""
    model = small_model(name)
    calls = [inputs_of(model, 2, 8), inputs_of(model, 3, 11)]
    with torch.no_grad():
        expected = [model(**call) for call in calls]
    begin = time.process_time()
    try:
        with limited(), silence():
            exported = exporter().export(model, dict(calls[0]), OnnxConfig(dynamic=True))
    except Exception as error:  # whatever an exporter fails with is a result here
        return {"result": type(error).__name__, "seconds": time.process_time() - begin, "nodes": None}
    found = {
        "seconds": time.process_time() - begin,
        "nodes": sum(1 for _ in exported.program.graph.all_nodes()),
    }
    try:
        with silence():
            gaps = [gap(wanted, exported(**call)) for call, wanted in zip(calls, expected)]
    except runtime.InvalidArgument:
        found["result"] = "static"
    except Exception as error:
        found["result"] = type(error).__name__
    else:
        found["result"] = max(gaps)
    return found


def gap(expected: Any, got: Any) -> float:
    """The largest difference of two results, relative to the largest value of each tensor."""
    wanted, found = get_leaf_tensors(expected), get_leaf_tensors(got)
    gaps = [0.0]
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            return float("inf")
        if tensor.numel():
            difference = (tensor.double() - found[name].double()).abs().max()
            gaps.append(float(difference / tensor.double().abs().max().clamp_min(1e-6)))
    return max(gaps)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """No output of exporters."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def agrees(found: dict[str, Any]) -> bool:
    """Whether a result is that of eager."""
    return isinstance(found["result"], float) and found["result"] <= TOLERANCE


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="CLASS", help="classes of transformers, instead of the list"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one in N of them")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows, results = [], []
    for name in (given.names or ARCHITECTURES)[:: given.every]:
        found = {kind: measured(name, exporter) for kind, exporter in EXPORTERS.items()}
        results.append(found)
        row = [name]
        for kind in EXPORTERS:
            result = found[kind]["result"]
            row += [
                f"{result:.0e}" if isinstance(result, float) else result,
                found[kind]["seconds"],
                found[kind]["nodes"],
            ]
        rows.append(row)
        print(row, file=sys.stderr)
    headers = [
        "architecture",
        *(f"{kind} {what}" for kind in EXPORTERS for what in ("difference", "s", "nodes")),
    ]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=".1f", disable_numparse=[1, 4]))
    print()
    for kind in EXPORTERS:
        print(f"{kind}: {sum(agrees(found[kind]) for found in results)} of {len(results)} agree with eager")
    both = [found for found in results if all(agrees(found[kind]) for kind in EXPORTERS)]
    for what in ("seconds", "nodes") if both else ():
        medians = [statistics.median(found[kind][what] for found in both) for kind in EXPORTERS]
        print(f"median of {what} where both agree: {' and '.join(f'{value:.1f}' for value in medians)}")


if __name__ == "__main__":
    main()
