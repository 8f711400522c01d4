"""Which execution provider runs a graph, and what is said when onnxruntime has none."""

import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment.torch_dynamo import ProviderError
from experimental_experiment.torch_dynamo.providers import device_of, products_in_tf32, providers_for

CPU, META = torch.zeros(2), torch.zeros(2, device="meta")


def on_gpu(index):
    """A tensor that says that it is there."""
    with FakeTensorMode():
        return torch.empty(2, device=f"cuda:{index}")


class TestProviders(unittest.TestCase):
    def test_the_device_of_all_tensors(self):
        self.assertEqual(torch.device("cpu"), device_of([CPU, 3, None]))
        self.assertEqual(torch.device("cpu"), device_of([]))
        self.assertEqual(torch.device("cuda:1"), device_of([CPU, on_gpu(1), CPU[0]]))

    def test_two_devices(self):
        with self.assertRaisesRegex(
            ProviderError,
            "the tensors of one graph are on cuda:0, cuda:1: move the model and its inputs to one device",
        ):
            device_of([on_gpu(0), CPU, on_gpu(1)])

    def test_a_device_without_provider(self):
        with self.assertRaisesRegex(ProviderError, "onnxruntime does not run graphs of the device meta"):
            device_of([META])

    def test_a_provider_that_onnxruntime_lacks(self):
        with self.assertRaisesRegex(ProviderError, "has no DmlExecutionProvider here, only .*CPU"):
            providers_for(torch.device("cpu"), ["DmlExecutionProvider"])

    def test_one_provider_is_a_list_of_one(self):
        for given in ("CPUExecutionProvider", 3):
            with self.assertRaisesRegex(TypeError, "providers is a list of execution providers, not"):
                providers_for(torch.device("cpu"), given)

    def test_tf32_is_left_to_torch(self):
        self.addCleanup(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        for precision, expected in (("highest", False), ("high", True), ("highest", False)):
            torch.set_float32_matmul_precision(precision)
            self.assertEqual(expected, products_in_tf32(), precision)


if __name__ == "__main__":
    unittest.main()
