"""What importing the package brings: nothing that takes seconds and that a conversion may not need."""

import subprocess
import sys
import unittest

HEAVY = (
    "torch._dynamo",
    "torch._inductor",
    "transformers",
    "onnxruntime",
    "matplotlib",
    "graphviz",
    "sympy.physics",
)


class TestImports(unittest.TestCase):
    def test_nothing_heavy_is_imported(self):
        code = (
            "import sys, torch, onnx, onnx_ir; import experimental_experiment.torch_interpreter; "
            f"print([name for name in {HEAVY} if name in sys.modules])"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual("[]", found.stdout.strip())


if __name__ == "__main__":
    unittest.main()
