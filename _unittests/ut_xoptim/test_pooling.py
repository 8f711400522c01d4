"""Rules of pools."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize


def pool(attributes, shape="N,2,H,W"):
    """A row of the table."""
    return (
        f"float[{shape}] x",
        "float[N,2,P,Q]",
        f"y = AveragePool <strides=[640, 640], ceil_mode=1{attributes}> (x)",
    )


class TestAverageOfLargeWindows(RuleTestCase):
    LARGE = ", kernel_shape=[640, 640]"
    BECOME = {"AverageOfLargeWindows": [(*pool(LARGE), ["AveragePool"])]}
    STAY = {
        "AverageOfLargeWindows": [
            pool(", kernel_shape=[640, 500]"),
            pool(f"{LARGE}, count_include_pad=1"),
            pool(f"{LARGE}, pads=[1, 1, 1, 1]"),
            pool(f'{LARGE}, auto_pad="VALID"', "N,2,700,700"),
            pool(f"{LARGE}, dilations=[1, 2]"),
            tuple(part.replace(", ceil_mode=1", "") for part in pool(LARGE, "N,2,700,700")),
        ]
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_images_of_several_sizes(self):
        """Smaller than the window, as large, larger by less than one and by more."""
        nodes = "y = AveragePool <kernel_shape=[512, 512], strides=[512, 512], ceil_mode=1> (x)"
        model = parsed(f"agraph (float[N,1,H,W] x) => (float[N,1,P,Q] y) {{ {nodes} }}")
        optimized = optimize(model)
        self.assertEqual(
            1, {item.name: item.i for item in optimized.graph.node[0].attribute}["count_include_pad"]
        )
        before, after = session(model), session(optimized)
        for size in ((1, 1), (3, 512), (513, 7), (600, 1100)):
            x = np.random.default_rng(0).normal(size=(2, 1, *size)).astype(np.float32)
            wanted, got = before.run(None, {"x": x})[0], after.run(None, {"x": x})[0]
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                got[:, 0, 0, 0], x[:, 0, :512, :512].mean((1, 2)), rtol=1e-3, atol=1e-5
            )


if __name__ == "__main__":
    unittest.main()
