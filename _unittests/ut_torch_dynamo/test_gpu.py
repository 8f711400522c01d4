"""Graphs on a GPU: skipped where torch or onnxruntime has none."""

import copy
import unittest

import onnxruntime
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.torch_interpreter import to_onnx

KERNELS = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH

HAS_GPU = torch.cuda.is_available() and "CUDAExecutionProvider" in onnxruntime.get_available_providers()


class Block(torch.nn.Module):
    """A layer of a transformer between an embedding and a step of an LSTM, in the words of torch.nn."""

    def __init__(self, dropout):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True)
        self.norm = torch.nn.RMSNorm(16)
        self.step = torch.nn.LSTMCell(16, 8)

    def forward(self, x):
        return self.step(self.norm(self.layer(x)).sum(1))[0]


@unittest.skipUnless(HAS_GPU, "no GPU for torch and onnxruntime")
class TestOnGpu(BackendTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def test_training(self):
        """Eager's numbers, where its attention does not draw them in a kernel of its own."""
        for dropout in (0.0, 0.1):
            torch._dynamo.reset()
            with self.subTest(dropout=dropout), sdpa_kernel(SDPBackend.MATH if dropout else list(KERNELS)):
                calls = [(torch.randn(3, size, 16, device="cuda"),) for size in (5, 5, 7)]
                self.assert_same_gradients(Block(dropout).cuda(), calls, None)
        self.assertEqual("CUDAExecutionProvider", self.instances[0]["providers"][0])

    def test_rows_without_a_key(self):
        """Rows that the mask closes give 0, as a batch that is padded on the left has them; the gradients are numbers."""

        class Attended(torch.nn.Module):
            def forward(self, x, mask):
                return torch.nn.functional.scaled_dot_product_attention(x * 2, x, x, mask) + x

        mask = torch.ones(2, 1, 4, 4, dtype=torch.bool, device="cuda").tril()
        mask[0, :, :2], mask[0, :, :, :2] = False, False
        for given in (mask, torch.zeros(2, 1, 4, 4, device="cuda").masked_fill(~mask, -torch.inf)):
            torch._dynamo.reset()
            x = torch.randn(2, 3, 4, 8, device="cuda")
            with self.subTest(given.dtype), sdpa_kernel(list(KERNELS)):
                self.assert_same_gradients(Attended().cuda(), [(x, given)] * 2)

    def test_images(self):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        ).cuda()
        calls = [(torch.randn(2, 3, 10, 10, device="cuda"),)] * 2
        for mode in (True, False):
            torch._dynamo.reset()
            with self.subTest(training=mode):
                self.assert_same_gradients(copy.deepcopy(model).train(mode), calls)

    def test_tensors_of_the_cpu(self):
        """A number beside the tensors of the GPU, a result that goes to the CPU, one that is made on the GPU."""

        def model(x, scale):
            return (x * scale).sum(0).cpu(), x.cpu() + 1, torch.arange(3, device=x.device), x.mean() / scale

        x, scale = torch.randn(4, 3, device="cuda"), torch.tensor(2.0)
        compiled = self.compiled(model)
        for ours, theirs in zip(compiled(x, scale), model(x, scale), strict=True):
            torch.testing.assert_close(ours, theirs)
        made = self.compiled(lambda: torch.ones(3, device="cuda") * 2)()
        torch.testing.assert_close(made, torch.full((3,), 2.0, device="cuda"))

    def test_decomposed_programs(self):
        """What torch decomposes on the GPU holds the operators of its kernels."""
        model, x = Block(0.0).cuda().eval(), torch.randn(3, 5, 16, device="cuda")
        program = torch.export.export(model, (x,)).run_decompositions()
        onx = to_onnx(program)
        providers = [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(onx.SerializeToString(), providers=providers)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.cpu().numpy()})
        torch.testing.assert_close(torch.from_numpy(found), model(x).detach().cpu(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
