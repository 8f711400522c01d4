"""Training on the backend follows eager from the same seed: losses of every step, statistics, gradients."""

import copy
import importlib.util
import unittest

import torch
from torch._higher_order_ops import while_loop
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase


class Digits(torch.nn.Module):
    """Convolutions with batch norm and dropout."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(16),
            torch.nn.GELU(),
            torch.nn.AvgPool2d(2),
        )
        self.head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.25), torch.nn.Linear(64, 10))

    def forward(self, x):
        return self.head(self.features(x))


class LanguageModel(torch.nn.Module):
    """Embeddings, attention, layer norm, a head that shares the embedding."""

    def __init__(self, words=17, width=16):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.places = torch.nn.Embedding(12, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(3))
        self.projection = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)
        self.feed_forward = torch.nn.Sequential(
            torch.nn.Linear(width, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, width)
        )

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        query, key, value = (
            part.unflatten(-1, (2, -1)).transpose(1, 2)
            for part in self.projection(self.norms[0](x)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        x = x + self.feed_forward(self.norms[1](x))
        return self.norms[2](x) @ self.words.weight.t()


class TestTraining(BackendTestCase):
    def losses(self, model, run, batches, loss_function):
        """The losses of the steps, from one seed."""
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_function(run(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def assert_trains_as_eager(self, model, batches, loss_function, dynamic, graphs):
        """The losses are eager's to 1e-3, the buffers too; the sizes of the batches compile nothing more."""
        eager = copy.deepcopy(model)
        expected = self.losses(eager, eager, batches, loss_function)
        found = self.losses(model, self.compiled(model, dynamic), batches, loss_function)
        for ours, theirs in zip(found, expected, strict=True):
            self.assertLess(abs(ours - theirs), 1e-3 * abs(theirs))
        for ours, theirs in zip(model.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        self.assertLess(found[-1], found[0])
        self.assertEqual(len(self.instances), graphs)

    @unittest.skipUnless(importlib.util.find_spec("sklearn"), "needs the package scikit-learn")
    def test_digits(self):
        from sklearn.datasets import load_digits

        images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        images = images.reshape(-1, 1, 8, 8).float() / 16
        sizes = [32, 32, 24, 32, 32, 20, 32, 32]
        batches = list(
            zip(
                images.split(sizes + [len(images) - sum(sizes)]),
                labels.split(sizes + [len(images) - sum(sizes)]),
            )
        )
        self.assert_trains_as_eager(Digits(), batches[:8], F.cross_entropy, True, 2)
        model = Digits().eval()
        with torch.no_grad():
            self.assert_close(self.compiled(model)(images[:5]), model(images[:5]), "evaluation")

    def test_language_model(self):
        generator = torch.Generator().manual_seed(0)
        starts = torch.randint(0, 17, (6, 4, 1), generator=generator)
        tokens = [(start + 3 * torch.arange(10 - turn % 2)) % 17 for turn, start in enumerate(starts)]
        batches = [(item[:, :-1], item[:, 1:]) for item in tokens] * 2

        def loss_function(logits, y):
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())

        self.assert_trains_as_eager(LanguageModel(), batches, loss_function, True, 2)

    def test_gradients_of_every_parameter(self):
        self.assert_same_gradients(Digits(), [(torch.rand(6, 1, 8, 8),)] * 2)
        torch._dynamo.reset()
        self.assert_same_gradients(LanguageModel(), [(torch.randint(0, 17, (2, 7)),)] * 2)

    def test_batch_norm_that_is_computed_again(self):
        """torch.compile writes its statistics once, as without checkpoints: it is the graph of eager that is computed again, not its writes."""

        class Checkpointed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Sequential(
                    torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
                )
                self.saves = True

            def forward(self, x):
                if not self.saves:
                    return self.inner(x)
                return checkpoint(self.inner, x, use_reentrant=False)

        model = Checkpointed()
        plain = copy.deepcopy(model)
        plain.saves = False
        compiled = self.compiled(model)
        for _ in range(2):
            x = torch.randn(2, 3, 6, 6)
            found, expected = self.step(compiled, (x,), 0), self.step(plain, (x,), 0)
            self.assert_close(found, expected, "results and gradients of the inputs")
            for kind in "parameters", "buffers":
                ours, theirs = list(getattr(model, kind)()), list(getattr(plain, kind)())
                self.assert_close(ours, theirs, kind)
                self.assert_close([x.grad for x in ours], [x.grad for x in theirs], f"gradients of {kind}")

    def test_a_loop_on_data(self):
        """Its gradient runs the turns backwards; how many there are is known while it runs."""

        class Refined(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.step = torch.nn.Linear(4, 4)

            def forward(self, x, turns):
                def body(turn, y):
                    return turn + 1, y + torch.tanh(self.step(y))

                return while_loop(lambda turn, y: turn < turns, body, (torch.tensor(0), x))[1]

        calls = [(torch.randn(3, 4), torch.tensor(turns)) for turns in (3, 1, 5)]
        self.assert_same_gradients(Refined(), calls)

    def test_the_loss_inside_of_the_model(self):
        class WithLoss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = torch.nn.Linear(4, 3)

            def forward(self, x, y):
                return F.cross_entropy(self.model(x), y)

        batches = [(torch.randn(5, 4), torch.randint(0, 3, (5,))) for _ in range(4)]
        model = WithLoss()
        eager = copy.deepcopy(model)
        compiled = self.compiled(model)
        for x, y in batches:
            losses = []
            for module, run in ((model, compiled), (eager, eager)):
                loss = run(x, y)
                loss.backward()
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter -= 0.1 * parameter.grad
                losses.append(loss)
            self.assert_close(losses[0], losses[1], "loss")


if __name__ == "__main__":
    unittest.main()
