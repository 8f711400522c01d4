"""`piece_by_piece`: the smallest failing submodules are named, each with a script that reproduces it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import tempfile
import unittest

import torch

from _unittests.ut_investigate.holder import Choice, Deep, Guarded
from experimental_experiment.investigate import piece_by_piece
from experimental_experiment.investigate.pieces import calls_of
from experimental_experiment.investigate.recording import DYNAMIC, Call, inferred_shapes, record
from experimental_experiment.testing import ExporterTestCase

CALLS = [(torch.ones(2, 4),), (torch.ones(3, 4),)]


class Twice(torch.nn.Module):
    """A model whose own code branches on the data, as does a part of it."""

    def __init__(self):
        super().__init__()
        self.part = Choice()
        self.good = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.part(self.good(x))
        return y * 2 if y.max() > 1 else y


class Fixed(torch.nn.Module):
    """A part that takes sizes for numbers."""

    def __init__(self):
        super().__init__()
        self.part = Sizes()

    def forward(self, x):
        return self.part(x).relu()


class Sizes(torch.nn.Module):
    """A size that becomes a number."""

    def forward(self, x):
        return x * torch.tensor([1.0 for _ in range(x.shape[0])])[:, None]


class Branches(torch.nn.Module):
    """A part that eager calls in a branch, which it compiles."""

    def __init__(self):
        super().__init__()
        self.first, self.part = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.part, torch.cos, (self.first(x),))


class Keywords(torch.nn.Module):
    """Keyword arguments given in another order than the signature's."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(shift=x, x=x * 2, scale=3)


class Inner(torch.nn.Module):
    """See `Keywords`."""

    def forward(self, x, scale, shift):
        return x * scale - shift


class Counter(torch.nn.Module):
    """Adds to a buffer and reads it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return x + self.total


class Written(torch.nn.Module):
    """A part that writes a buffer."""

    def __init__(self):
        super().__init__()
        self.counter = Counter()

    def forward(self, x):
        return self.counter(x) * 2


class Scaled(torch.nn.Module):
    """A number that differs between the calls, and one that does not."""

    def forward(self, x, n, factor=1.0):
        return x.sin() * n * factor


class Numbers(torch.nn.Module):
    """Gives numbers to a part."""

    def __init__(self):
        super().__init__()
        self.inner = Scaled()

    def forward(self, x, n, factor=1.0):
        return self.inner(x, n, factor=factor).exp()


class Doubled(torch.nn.Module):
    """Twice the positive elements."""

    def forward(self, x):
        return (x * 2).relu()


class Size(torch.nn.Module):
    """A size that depends on the data."""

    def forward(self, x):
        return x[: int((x > 0).sum())]


def statuses(pieces) -> dict[str, str]:
    """{path: status}."""
    return {piece.path: piece.status for _, piece in pieces.root.walk()}


class TestPieces(ExporterTestCase):
    def test_unsupported_operator_deep_inside(self):
        found = piece_by_piece(Deep(), CALLS)
        (failure,) = found.failures
        self.assertEqual((failure.path, failure.kind), ("layers.1.attention", "Attention"))
        self.assertEqual(failure.status, "untranslatable")
        self.assertEqual(failure.detail, "investigate_test.unknown.default has no translation")
        self.assertIn("y = torch.ops.investigate_test.unknown(y)", failure.where)
        self.assertTrue(failure.is_dynamic)
        by_path = statuses(found)
        self.assertEqual([by_path[f"layers.{k}"] for k in range(3)], ["ok", "untranslatable", "ok"])
        self.assertEqual((by_path["layers"], by_path["layers.1.attention.proj"]), ("container", "ok"))
        self.assertNotIn("layers.0.attention", by_path)  # exported with its layer
        text = found.to_text()
        self.assertIn("1 smallest failure\n", text)
        self.assertIn("untranslatable, by its parts", text)
        self.assertIn("\x1b[32mok", found.to_text(color=True))
        self.assertNotIn("\x1b", text)
        self.assertEqual(json.loads(json.dumps(found.to_dict()))["children"][0]["status"], "container")

    def test_branch_on_the_data(self):
        (failure,) = piece_by_piece(Guarded(), CALLS).failures
        self.assertEqual((failure.path, failure.status), ("choice", "torch.export failed"))
        self.assertEqual(failure.family, "a branch or a size depends on the data")

    def test_code_around_a_failing_part(self):
        model = Twice()
        found = piece_by_piece(model, CALLS)
        self.assertEqual([failure.path for failure in found.failures], ["", "part"])
        self.assertEqual(found.root.note, "the code around its failing parts fails by itself")
        self.assertIn("y.max() > 1", found.root.where)
        self.assertNotIn("forward", vars(model.part))

    def test_wrong_translation(self):
        wrong = {torch.ops.aten.softmax.int: lambda op, self, dim: op.Softmax(op.Mul(self, 0.9), axis=dim)}
        found = piece_by_piece(Deep(broken=False), torch.randn(2, 4), translations=wrong)
        self.assertEqual(
            {failure.path for failure in found.failures}, {f"layers.{k}.attention" for k in range(3)}
        )
        failure = found.failures[0]
        self.assertEqual((failure.status, failure.verdict), ("differs", "error"))
        self.assertRegex(failure.detail, r"by \d.\de-\d\d in output")
        self.assertIn("the first wrong result:\n%softmax = aten.softmax.int", failure.note)

    def test_runtime_that_refuses(self):
        foreign = {
            torch.ops.aten.softmax.int: lambda op, self, dim: op.emit("Soft", (self,), domain="nobody")
        }
        found = piece_by_piece(
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(-1)),
            CALLS,
            translations=foreign,
            optimize=False,
        )
        (failure,) = found.failures
        self.assertEqual((failure.path, failure.status), ("1", "runtime failed"))
        self.assertIn("nobody", failure.detail)

    def test_dynamic_dimension_that_is_not(self):
        (failure,) = piece_by_piece(Fixed(), CALLS).failures
        self.assertEqual((failure.path, failure.family), ("part", "a dynamic dimension that is not"))
        self.assertEqual(failure.note, "it is exported with static sizes: a dynamic dimension makes it fail")

    def test_everything_agrees(self):
        cases = {
            "one call": (torch.ones(2, 4),),
            "a list of tensors": [torch.ones(2, 4), torch.ones(3, 4)],
            "keywords": [{"x": torch.ones(2, 4)}, {"x": torch.ones(3, 4)}],
            "pairs": [((), {"x": torch.ones(2, 4)}), ((torch.ones(2, 4),), {})],
        }
        for promise, calls in cases.items():
            with self.subTest(promise):
                found = piece_by_piece(Keywords(), calls)
                self.assertEqual((statuses(found), found.failures), ({"": "ok"}, []))
                self.assertIn("everything is exported and agrees with eager", str(found))
                self.assertEqual(found.root.is_dynamic, promise in ("a list of tensors", "keywords"))

    def test_module_in_two_places(self):
        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                choice = Choice()
                self.first, self.second = torch.nn.Sequential(choice), torch.nn.Sequential(choice)
                self.third = self.first

            def forward(self, x):
                return self.third(self.second(self.first(x)))

        found = piece_by_piece(Both(), CALLS)
        self.assertEqual([failure.path for failure in found.failures], ["first.0"])
        told = {piece.path: piece.told for _, piece in found.root.walk()}
        self.assertEqual(told["second.0"], "torch.export failed, the same as first.0")
        self.assertEqual(told["third"], "torch.export failed, the same as first")
        self.assertEqual(told["second"], "torch.export failed, by its parts")

    def test_progress_ends_at_its_total(self):
        totals, steps = {}, []

        def progress(stage, total):
            totals[stage] = total
            return lambda: steps.append(stage)

        piece_by_piece(Deep(), CALLS, progress=progress)
        self.assertEqual({stage: steps.count(stage) for stage in totals}, totals)

    def test_buffers_that_are_written(self):
        model = Written()
        found = piece_by_piece(model, [torch.ones(2, 4), torch.ones(3, 4)])
        self.assertEqual((statuses(found), found.failures), ({"": "ok"}, []), str(found))
        self.assertEqual(model.counter.total.tolist(), [0, 0, 0, 0])

    def test_numbers_among_the_arguments(self):
        calls = [((torch.ones(n, 4), n), {"factor": 0.5}) for n in (2, 3)]
        self.assertEqual(piece_by_piece(Numbers(), calls).failures, [])
        wrong = {torch.ops.aten.sin.default: lambda op, self: op.Cos(self)}
        (failure,) = piece_by_piece(Numbers(), calls, translations=wrong).failures
        self.assertEqual((failure.path, failure.status), ("inner", "differs"))
        self.assertIn("%sin = aten.sin.default, written as Cos", failure.note)

    def test_difference_that_only_another_call_shows(self):
        wrong = {torch.ops.aten.relu.default: lambda op, self: op.Min(self, 2.5)}
        calls = [torch.ones(2, 4), torch.full((3, 4), 2.0)]
        (failure,) = piece_by_piece(torch.nn.Sequential(Doubled()), calls, translations=wrong).failures
        self.assertEqual((failure.status, failure.verdict), ("differs", "error"))
        self.assertIn("float32[3, 4]", failure.note)

    def test_torch_prints_nothing_and_messages_come_once(self):
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            with self.assertNoLogs("torch.fx.experimental.symbolic_shapes", "WARNING"):
                piece_by_piece(Size(), CALLS)
        self.assertEqual(printed.getvalue(), "")
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            piece_by_piece(torch.nn.Sequential(Written().counter, Choice()), CALLS)
        self.assertEqual(len(logged.output), len(set(logged.output)))

    def test_a_part_that_is_not_called(self):
        class Idle(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.idle, self.choice = torch.nn.Linear(4, 4), Choice()

            def forward(self, x):
                return self.choice(x)

        self.assertEqual(statuses(piece_by_piece(Idle(), CALLS))["idle"], "not called")

    def test_a_part_that_is_called_in_a_branch(self):
        root = piece_by_piece(Branches(), CALLS).root
        self.assertEqual(root.status, "ok")
        seen = record(Branches(), [((torch.ones(2, 4),), {})], lambda: None)
        self.assertEqual([seen[name].count for name in ("", "first", "part")], [1, 1, 0])

    def test_arguments_of_a_single_export(self):
        for name, value in {"dynamic_shapes": None, "filename": "a.onnx", "report": "a.md"}.items():
            with self.assertRaisesRegex(TypeError, f"piece_by_piece has no argument {name}: "):
                piece_by_piece(torch.nn.ReLU(), (torch.ones(2),), **{name: value})

    def test_what_is_no_call(self):
        cases = {
            "piece_by_piece takes an nn.Module apart, not builtin_function_or_method": (
                torch.sin,
                torch.ones(2),
            ),
            "the list of calls is empty": (Deep(), []),
            "a call is a tuple of arguments, a dict of keyword arguments or a pair of both, not int": (
                Deep(),
                [3],
            ),
            "kwargs belongs to a single call: give pairs (args, kwargs) in the list": (
                Deep(),
                CALLS,
                {"x": 1},
            ),
        }
        for message, arguments in cases.items():
            with self.subTest(message), self.assertRaises(TypeError) as caught:
                piece_by_piece(*arguments)
            self.assertEqual(str(caught.exception), message)

    def test_arguments_that_do_not_fit(self):
        model, x = torch.nn.ReLU(), (torch.ones(2),)
        with tempfile.NamedTemporaryFile() as file:
            for kind, message, arguments, options in (
                (TypeError, "args is a tuple of arguments or a list of calls, not int", (3,), {}),
                (TypeError, "kwargs is a dict of keyword arguments, not int", (x, 3), {}),
                (TypeError, "folder is the path of a folder, not 3", (x,), {"folder": 3}),
                (FileExistsError, "is a file, and no folder", (x,), {"folder": file.name}),
                (TypeError, "progress is a function of a stage", (x,), {"progress": True}),
                (TypeError, "export_options is an ExportOptions, not bool", (x,), {"export_options": True}),
            ):
                with self.subTest(message), self.assertRaisesRegex(kind, message):
                    piece_by_piece(model, *arguments, **options)

    def test_a_dict_that_is_a_positional_argument(self):
        self.assertEqual(
            calls_of([((1,), {0: 2}), ((1,), {"x": 2})], None), [(((1,), {0: 2}), {}), ((1,), {"x": 2})]
        )

    def test_page(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pieces.html")
            page = piece_by_piece(Guarded(), CALLS).to_html(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), page)
        self.assertIn("<title>Guarded, piece by piece</title>", page)
        self.assertIn("return x + 1 if x.sum() &gt; 0 else x - 1", page)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class TestTransformers(unittest.TestCase):
    def llama(self):
        """A small decoder, and two calls with a cache."""
        transformers = importlib.import_module("transformers")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
        )
        model = transformers.LlamaForCausalLM(config).eval()

        def call(batch, past):
            with torch.no_grad():
                cache = model(input_ids=torch.ones(batch, past, dtype=torch.int64)).past_key_values
            ids = torch.full((batch, 3), 5)
            return {"input_ids": ids, "attention_mask": torch.ones(batch, past + 3), "past_key_values": cache}

        return model, [call(2, 4), call(3, 7)]

    def test_decoder_with_a_cache(self):
        model, calls = self.llama()
        found = piece_by_piece(model, calls)
        self.assertEqual(found.failures, [], found)
        self.assertTrue(found.root.is_dynamic)

    def test_fault_behind_the_decoder(self):
        model, calls = self.llama()
        model.lm_head = torch.nn.Sequential(model.lm_head, Choice())
        found = piece_by_piece(model, calls)
        self.assertEqual([failure.path for failure in found.failures], ["lm_head.1"])
        self.assertEqual((statuses(found)["model"], statuses(found)["lm_head.0"]), ("ok", "ok"))


class TestRecording(unittest.TestCase):
    def test_arguments_are_copies_from_before_the_call(self):
        class Writes(torch.nn.Module):
            def forward(self, x):
                return x.add_(1)

        model = torch.nn.Sequential(torch.nn.Identity(), Writes(), Writes())
        x = torch.zeros(2)
        seen = record(model, [((x,), {}), ((torch.ones(3),), {})], lambda: None)
        self.assertEqual([float(seen[name].calls[0].args[0][0]) for name in ("", "1", "2")], [0, 0, 1])
        self.assertEqual([float(seen[name].calls[0].result[0]) for name in ("", "1", "2")], [2, 1, 2])
        self.assertEqual([len(recording.calls) for recording in seen.values()], [2, 2, 2, 2])
        self.assertEqual(float(x[0]), 0)

    def test_the_first_call_of_each_run(self):
        part = torch.nn.Linear(2, 2)
        model = torch.nn.Sequential(part, part)
        seen = record(model, [((torch.zeros(1, 2),), {}), ((torch.ones(3, 2),), {})], lambda: None)
        self.assertEqual([call.args[0].shape[0] for call in seen["0"].calls], [1, 3])
        self.assertEqual(seen["0"].count, 4)

    def test_shapes_from_differences(self):
        def call(n, m, number):
            return Call((torch.ones(n, 4), [torch.ones(n, m), None]), {"number": number, "flag": True})

        self.assertIsNone(inferred_shapes([call(2, 3, 5)]))
        self.assertEqual(
            inferred_shapes([call(2, 3, 5), call(3, 3, 5)]), ({0: DYNAMIC}, [{0: DYNAMIC}, None], None, None)
        )
        self.assertEqual(
            inferred_shapes([call(2, 3, 5), call(2, 5, 6)]), (None, [{1: DYNAMIC}, None], DYNAMIC, None)
        )
        other = Call((torch.ones(2, 4), [torch.ones(2, 3)]), {"number": 5, "flag": True})
        self.assertIsNone(inferred_shapes([call(2, 3, 5), other]))


if __name__ == "__main__":
    unittest.main()
