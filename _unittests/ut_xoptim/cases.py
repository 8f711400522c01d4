"""The test case of rules: a model in ONNX's text format, optimized, run beside the original."""

from __future__ import annotations

import contextlib
import os
import tempfile
import unittest
import unittest.mock
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime

from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.rules import Rule

HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1], producer_name: "experimental_experiment">\n'
"""Of a model that this package wrote: rules may read the names of sizes that its outputs have."""


def parsed(text: str, opset: int = 20) -> onnx.ModelProto:
    """A model from the text of its graph: ``agraph (float[2,3] x) => (float[3,2] y) { y = Transpose(x) }``."""
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    check(model)
    return model


def check(model: onnx.ModelProto, **more: bool) -> None:
    """Ask onnx.checker, which does not know the operators that onnxruntime has in the domain of ONNX."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if all(item.domain != "com.microsoft" for item in copy.opset_import):
        copy.opset_import.add(domain="com.microsoft", version=1)
    opset = next(item.version for item in copy.opset_import if not item.domain)
    own = {"SimplifiedLayerNormalization", *(["LayerNormalization"] if opset < 17 else [])}
    move_to_its_domain(copy.graph, own)
    onnx.checker.check_model(copy, **more)


def move_to_its_domain(graph: onnx.GraphProto, own: Collection[str]) -> None:
    """Operators of onnxruntime's *own* stand where it has all others, in bodies too."""
    for node in graph.node:
        if node.op_type in own:
            node.domain = "com.microsoft"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                move_to_its_domain(attribute.g, own)


def operators(model: onnx.ModelProto) -> list[str]:
    """The operators of the main graph in order."""
    return [node.op_type for node in model.graph.node]


def executed(model: onnx.ModelProto) -> list[str]:
    """The operators of the graph that onnxruntime runs, after its own rewriting."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = os.path.join(folder, "executed.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return operators(onnx.load(options.optimized_model_filepath))


def drawn(model: onnx.ModelProto, seed: int = 0, sizes: int = 3) -> dict[str, np.ndarray]:
    """Random inputs of a model; a dimension without a size has *sizes* elements."""
    generator = np.random.default_rng(seed)
    feeds = {}
    for argument in model.graph.input:
        kind = argument.type.tensor_type
        shape = [dim.dim_value or sizes for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        values = generator.normal(size=shape) * (1 if np.issubdtype(dtype, np.floating) else 4)
        feeds[argument.name] = np.asarray(values > 0 if dtype == np.bool_ else values, dtype)
    return feeds


@contextlib.contextmanager
def looks() -> Iterator[dict[Rule, int]]:
    """While this lasts: how many nodes further than its pattern the function of each rule has looked for inputs."""
    further: dict[Rule, int] = {}
    read, rewrite = ir.Node.inputs.fget, Rule.rewrite

    def recorded(member: Rule, op: Any, found: Mapping[str, Any], root: ir.Node) -> Any:
        distances, level = {root: 0}, [root]
        while level:
            producers = [value.producer() for node in level for value in read(node) if value is not None]
            distance = distances[level[0]] + 1
            level = [node for node in dict.fromkeys(producers) if node is not None and node not in distances]
            distances.update(dict.fromkeys(level, distance))

        def inputs(node: ir.Node) -> Sequence[ir.Value | None]:
            behind = distances.get(node, -1) + 1 - member.pattern.depth
            further[member] = max(further.get(member, 0), behind)
            return read(node)

        with unittest.mock.patch.object(ir.Node, "inputs", property(inputs)):
            return rewrite(member, op, found, root)

    with unittest.mock.patch.object(Rule, "rewrite", recorded):
        yield further


class RuleTestCase(unittest.TestCase):
    """Tests that a rule fires where it should, and what it writes computes the same."""

    RULE = ""

    def assert_table(self, become: Mapping[str, Sequence], stay: Mapping[str, Sequence]) -> None:
        """Rows by rule: inputs, the result ``y``, nodes, the operators that they become or nothing, then other results."""
        self.assertTrue(become or stay)
        for rule, cases in become.items():
            for inputs, result, nodes, expected, *more in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    results = ", ".join([f"{result} y", *more])
                    self.assert_becomes(
                        f"agraph ({inputs}) => ({results}) {{ {nodes} }}", expected, rule=rule
                    )
        for rule, cases in stay.items():
            for inputs, result, nodes, *more in cases:
                with self.subTest(f"{rule} stays: {nodes}"):
                    results = ", ".join([f"{result} y", *more])
                    self.assert_stays(f"agraph ({inputs}) => ({results}) {{ {nodes} }}", rule=rule)

    def assert_becomes(self, text: str, expected: Sequence[str], **more: Any) -> Report:
        """The rule turns the graph into these operators, with the same results, and nothing more the second time."""
        return self.assert_optimized(text, expected, fires=True, **more)

    def assert_stays(self, text: str, **more: Any) -> Report:
        """The rule leaves the graph as it is, but for constants, which become initializers."""
        model = parsed(text, more.get("opset", 20))
        nodes = [name for name in operators(model) if name != "Constant"]
        return self.assert_optimized(text, nodes, fires=False, **more)

    def assert_optimized(
        self,
        text: str,
        expected: Sequence[str],
        fires: bool,
        rule: str | None = None,
        opset: int = 20,
        sizes: int = 3,
    ) -> Report:
        """The operators after one rule, the same results as before, and a fixed point."""
        model = parsed(text, opset)
        options = OptimizationOptions([rule or self.RULE], constant_folding=False)
        report, again = Report(), Report()
        with looks() as further:
            optimized = optimize(model, options, report=report)
        for member, nodes in further.items():
            self.assertTrue(member.looks_further or not nodes, f"{member.name} looks {nodes} nodes further")
        check(optimized, full_check=True)
        self.assertEqual(list(expected), operators(optimized))
        self.assertEqual(fires, bool(report.applications), report)
        optimize(optimized, options, report=again)
        self.assertEqual([], again.applications)
        for seed in range(2):
            feeds = drawn(model, seed, sizes)
            wanted, got = (session(item).run(None, feeds) for item in (model, optimized))
            for a, b in zip(wanted, got):
                self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
                if a.dtype == object:  # texts
                    np.testing.assert_array_equal(a, b)
                else:
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        return report
