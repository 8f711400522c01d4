"""Random operators on the backend: eager's numbers from the same seed where torch can draw them, the right ones elsewhere."""

import unittest

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.torch_interpreter import ExportError

X = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))


def in_place(x):
    """Distributions that fill a tensor."""
    y = torch.empty_like(x)
    return (
        y.uniform_(-1, 3),
        y.clone().normal_(1, 2),
        y.clone().exponential_(2),
        y.clone().log_normal_(),
        y.clone().cauchy_(),
        y.clone().geometric_(0.3),
    )


class TestEagersNumbers(BackendTestCase):
    CASES = {
        "dropout": lambda x: F.dropout(x, 0.3),
        "dropout in another order of memory": lambda x: F.dropout(x.t(), 0.3),
        "dropout of rows that are one": lambda x: F.dropout(x[0].expand(3, 40), 0.3),
        "dropout of slices": lambda x: (F.dropout(x[:, ::3], 0.3), F.dropout(x.t()[::2, None], 0.4)),
        "dropout twice": lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.5),
        "dropout of nothing and of everything": lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0)),
        "dropout of channels": lambda x: F.dropout2d(x.reshape(1, 5, 4, 10), 0.3),
        "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True),
        "gumbel_softmax": F.gumbel_softmax,
        "sizes": lambda x: (torch.rand(3), torch.randn(x.shape[0] * 2), torch.rand(x.shape[1] // 3, 2)),
        "like": lambda x: (torch.rand_like(x), torch.randn_like(x) + x, torch.randint_like(x, 9)),
        "integers": lambda x: (torch.randint(3, 9, (x.shape[0],)), torch.randperm(7), torch.bernoulli(x, 0.4)),
        "in place": in_place,
        "normal of tensors": lambda x: (
            torch.normal(x, x.abs()), torch.normal(x.t(), 0.5), torch.normal(1.0, x.abs() + 1), torch.normal(x, x[:1].abs())),
        "bernoulli of tensors": lambda x: (torch.bernoulli(x.sigmoid()), torch.bernoulli(x.t().double().sigmoid())),
        "distributions": lambda x: (
            torch.distributions.Normal(x, 2.0, validate_args=False).sample(),
            torch.distributions.Normal(x, x.exp(), validate_args=False).rsample(),
            torch.distributions.Bernoulli(logits=x, validate_args=False).sample()),
        "indices with the weights of tensors": lambda x: (
            torch.multinomial(x.softmax(-1), 1), torch.multinomial(x[0].abs(), 4), x.t().exp().multinomial(3),
            x.double().abs().multinomial(1, True), torch.distributions.Categorical(logits=x, validate_args=False).sample()),
        "half precision": lambda x: (torch.rand_like(x, dtype=torch.float16), torch.randn(3, dtype=torch.bfloat16),
            x.softmax(-1).half().multinomial(1), x.softmax(-1).bfloat16().multinomial(1)),
    }  # fmt: skip

    def test_same_as_eager_from_the_same_seed(self):
        for promise, function in self.CASES.items():
            for dynamic in (False, True):
                with self.subTest(promise, dynamic=dynamic):
                    torch._dynamo.reset()
                    compiled = self.compiled(function, dynamic)
                    for seed in range(2):
                        torch.manual_seed(seed)
                        expected, state = function(X), torch.get_rng_state()
                        torch.manual_seed(seed)
                        self.assert_close(compiled(X), expected, promise)
                        self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_gradients_use_the_same_mask(self):
        model = torch.nn.Sequential(torch.nn.Linear(40, 20), torch.nn.Dropout(0.4), torch.nn.Linear(20, 3))
        self.assert_same_gradients(model, [(X,), (X * 2,)])
        torch._dynamo.reset()
        self.assert_same_gradients(model, [(X,), (X[:3],)], dynamic=True)
        self.assertIn("noise", self.instances[0]["inputs"])
        self.assertIn("noise_0", [item.name for item in self.instances[0]["onnx"].graph.input])

    def test_dropout_that_is_computed_again_for_the_gradients(self):
        class Checkpointed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                layers = torch.nn.Linear(40, 20), torch.nn.ReLU(), torch.nn.Dropout(0.4)
                self.inner, self.last = torch.nn.Sequential(*layers), torch.nn.Linear(20, 3)

            def forward(self, x):
                return self.last(checkpoint(self.inner, x, use_reentrant=False) + torch.rand(20))

        self.assert_same_gradients(Checkpointed(), [(X,), (X * 2,)])
        torch._dynamo.reset()
        self.assert_same_gradients(Checkpointed(), [(X,), (X[:3],)], dynamic=True)

    def test_indices_that_are_drawn_again_for_the_gradients(self):
        class Chosen(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(40, 6)

            def forward(self, x):
                return checkpoint(self.choose, x, use_reentrant=False)

            def choose(self, x):
                chances = self.linear(x).softmax(-1)
                return chances.gather(1, chances.multinomial(2)).log()

        self.assert_same_gradients(Chosen(), [(X,), (X * 2,)])

    def test_attention_without_dropout_that_is_computed_again(self):
        # torch calls every attention random, and saves a state of the generator for it
        class Checkpointed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(8, 8)

            def attend(self, x):
                return F.scaled_dot_product_attention(self.linear(x), x, x, is_causal=True)

            def forward(self, x):
                return checkpoint(self.attend, x, use_reentrant=False).sum(1)

        x = torch.randn(2, 3, 5, 8)
        self.assert_same_gradients(Checkpointed(), [(x,), (x * 2,)])
        torch._dynamo.reset()
        self.assert_same_gradients(Checkpointed(), [(x,), (x[:1, :2],)], dynamic=True)

    def test_dropout_of_attention(self):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.assert_same_gradients(layer, [(torch.randn(2, 5, 8),)])

    def test_two_calls_differ(self):
        compiled = self.compiled(lambda x: F.dropout(x, 0.5))
        self.assertFalse(torch.equal(compiled(X), compiled(X)))
        kept = (compiled(torch.ones(200, 200)) != 0).double().mean().item()
        self.assertLess(abs(kept - 0.5), 0.02)

    def test_a_size_that_data_decide_is_refused(self):
        function = lambda x: torch.rand(x.nonzero().shape[0])
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            with self.assertRaisesRegex(Exception, "of a random tensor") as caught:
                self.compiled(function)(X)
        self.assertIsInstance(caught.exception.inner_exception, ExportError)


class TestSeeds(BackendTestCase):
    def drawn(self, seed, **options):
        """Indices that onnxruntime draws."""
        torch._dynamo.reset()
        torch.manual_seed(seed)
        compiled = self.compiled(lambda weights: torch.multinomial(weights, 500, replacement=True), **options)
        return compiled(torch.tensor([1.0, 3.0])), compiled(torch.tensor([1.0, 3.0]))

    def test_the_seed_of_torch_decides(self):
        for opset in (20, 23):  # it draws by another operator then
            with self.subTest(opset):
                first, second = self.drawn(1, target_opset=opset)
                again, _ = self.drawn(1, target_opset=opset)
                other, _ = self.drawn(2, target_opset=opset)
                self.assertTrue(torch.equal(first, again))
                self.assertFalse(torch.equal(first, second))
                self.assertFalse(torch.equal(first, other))
                self.assertLess(abs(first.double().mean().item() - 0.75), 0.1)

    @torch._dynamo.config.patch(allow_rnn=True)
    def test_dropout_that_torch_forgets_is_refused(self):
        x = torch.randn(3, 2, 4, requires_grad=True)
        message = "torch forgets dropout=0.5 between the layers of a recurrent module that it decomposes"
        for layer in (torch.nn.LSTM, torch.nn.GRU):
            model = layer(4, 4, num_layers=2, dropout=0.5)
            with self.assertRaisesRegex(BackendCompilerFailed, message):
                self.compiled(model)(x)
            torch._dynamo.reset()
        self.assert_close(self.compiled(model.eval())(x), model(x), "without training")


if __name__ == "__main__":
    unittest.main()
