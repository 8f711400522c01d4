"""Local functions inlined: what each value is called then."""

import unittest

import onnx
import onnx_ir as ir
import onnxruntime

from experimental_experiment.inlining import inline_functions

BRANCHES = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
main (float[2] x, bool c) => (float[2] y, float[2] z, float[2] w) {
    y = local.Twice (x)
    z = local.Twice (y)
    w = If (c) <
        then_branch = yes () => (float[2] a) { t = Neg (x)  t_2 = Neg (t)  t_3 = local.Twice (t_2)  a = Identity (t_3) },
        else_branch = no () => (float[2] b) { t = Abs (x)  b = local.Twice (t) }
    >
}
<domain: "local", opset_import: ["" : 20]>
Twice (v) => (r) { t = Add (v, v)  r = Identity (t) }
"""

LOOPS = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
main (float[2] x, int64 n, bool c) => (float[2] y) {
    y = Loop (n, c, x) <
        body = turn (int64 i, bool go, float[2] s) => (bool go_on, float[2] r) {
            go_on = Identity (go)  r = local.Doubled (s, n, c)
        }
    >
}
<domain: "local", opset_import: ["" : 20]>
Doubled (v, n, c) => (r) {
    r = Loop (n, c, v) <
        body = turn (int64 i, bool go, float[2] s) => (bool go_on, float[2] r) { go_on = Identity (go)  r = Add (s, s) }
    >
}
"""


class TestInlineFunctions(unittest.TestCase):
    def test_no_name_is_given_twice(self):
        for promise, text in {"a branch": BRANCHES, "a body inside of a function": LOOPS}.items():
            with self.subTest(promise):
                model = ir.from_proto(onnx.parser.parse_model(text))
                outputs = [value.name for value in model.graph.outputs]
                inline_functions(model)
                self.assertEqual(outputs, [value.name for value in model.graph.outputs])
                self.assertFalse(model.functions)
                proto = ir.to_proto(model)
                onnx.checker.check_model(proto)
                onnxruntime.InferenceSession(proto.SerializeToString())


if __name__ == "__main__":
    unittest.main()
