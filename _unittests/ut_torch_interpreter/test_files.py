"""Files: one or two of them, nothing half written, no copy of the weights in memory."""

import contextlib
import errno
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from unittest import mock

import onnx
import onnx_ir as ir
import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.conversion import to_ir
from experimental_experiment.torch_interpreter.files import EXTERNAL_THRESHOLD, locations, save, workplace

torch.manual_seed(0)

X = torch.randn(2, 8)


@torch.library.custom_op("files_lib::fails_late", mutates_args=())
def fails_late(x: torch.Tensor) -> torch.Tensor:
    """An operator whose translation holds a weight that cannot be read."""
    return x.clone()


fails_late.register_fake(lambda x: torch.empty_like(x))


def unreadable(size):
    """A translation that adds a weight of *size* elements, which raises when it is written."""

    def read():
        raise OSError("the weight cannot be read")

    def translation(op, x):
        weight = ir.LazyTensor(read, ir.DataType.FLOAT, ir.Shape([size, 8]), name="lost")
        return op.Add(x, op.ReduceMax(op.initializer("lost", weight), [0]))

    return translation


def small():
    return torch.nn.Linear(8, 4)


def large():
    """More weights than stay in the model's file."""
    width = EXTERNAL_THRESHOLD // 4 // 8 + 1
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Linear(width, 2))


class TestFiles(ExporterTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def assert_file_runs_as(self, file, module, scale=1.0):
        (got,) = run(session(file), [X])
        torch.testing.assert_close(got, module(X), rtol=1e-4, atol=1e-3)

    def test_a_small_model_is_one_file(self):
        module = small()
        model = to_onnx(module, (X,), filename=self.folder / "model.onnx")
        self.assertEqual(["model.onnx"], self.files())
        self.assertEqual(model, onnx.load(self.folder / "model.onnx"))
        self.assert_file_runs_as(self.folder / "model.onnx", module)

    def test_a_large_model_is_two_files(self):
        module = large()
        model = to_onnx(module, (X,), filename=str(self.folder / "model.onnx"))
        self.assertEqual(["model.onnx", "model.onnx.data"], self.files())
        self.assertLess((self.folder / "model.onnx").stat().st_size, 100_000)
        onnx.checker.check_model(self.folder / "model.onnx", full_check=True)
        self.assert_file_runs_as(self.folder / "model.onnx", module)
        external = [w for w in model.graph.initializer if w.data_location == onnx.TensorProto.EXTERNAL]
        self.assertEqual({"0.weight", "1.weight"}, {w.name for w in external} - {"0.bias", "1.bias"})
        self.assertEqual({"model.onnx.data"}, {w.external_data[0].value for w in external})

    def test_reload_from_another_folder(self):
        module = large()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        to_onnx(module, (X,), filename="model.onnx")
        os.chdir(before)
        self.assert_file_runs_as(self.folder / "model.onnx", module)
        moved = self.folder / "moved"
        moved.mkdir()
        for name in ("model.onnx", "model.onnx.data"):
            shutil.move(self.folder / name, moved / name)
        self.assert_file_runs_as(moved / "model.onnx", module)

    def test_the_weights_of_all_bodies_are_found(self):
        graphs = []
        for name in ("body", "first", "second"):
            weight = onnx.TensorProto(name=name, data_location=onnx.TensorProto.EXTERNAL)
            weight.external_data.add(key="location", value=f"{name}.data")
            graphs.append(onnx.GraphProto(name=name, initializer=[weight]))
        body, *several = graphs
        node = onnx.helper.make_node("OfBodies", [], ["y"], domain="local", body=body, several=several)
        model = onnx.ModelProto(graph=onnx.GraphProto(node=[node]))
        found = {entry.value for entry in locations(model)}
        self.assertEqual({"body.data", "first.data", "second.data"}, found)

    def test_a_model_replaces_another(self):
        for module in (large(), small(), large()):
            to_onnx(module, (X,), filename=self.folder / "model.onnx")
            self.assert_file_runs_as(self.folder / "model.onnx", module)

    def test_a_failure_leaves_what_was_there(self):
        for before, size in ((small(), 1024), (large(), EXTERNAL_THRESHOLD // 8)):
            with self.subTest(size=size):
                file = self.folder / f"model_{size}.onnx"
                to_onnx(before, (X,), filename=file)
                files = self.files()
                with self.assertRaises((OSError, ir.serde.SerdeError)):
                    to_onnx(
                        lambda x: fails_late(x),
                        (X,),
                        translations={fails_late: unreadable(size)},
                        filename=file,
                    )
                self.assertEqual(files, self.files())
                self.assert_file_runs_as(file, before)

    def test_a_small_model_leaves_no_weights_of_a_large_one(self):
        other = self.folder / "model.onnx.mine.data"
        other.write_text("not ours")
        for module in (large(), small()):
            to_onnx(module, (X,), filename=self.folder / "model.onnx")
        self.assertEqual(["model.onnx", other.name], self.files())

    def test_whenever_a_process_ends_a_graph_stands_beside_its_own_weights(self):
        file = self.folder / "model.onnx"
        little, old, new = (
            (module, to_ir(module, (X,))) for module in (torch.nn.Linear(8, 2), large(), large())
        )
        for before, after in ((old, new), (little, new), (old, little), (None, new)):
            for steps in itertools.count():
                shutil.rmtree(self.folder)
                self.folder.mkdir()
                if before is not None:
                    save(before[1], file)
                with self.ending_after(steps) as ended:
                    save(after[1], file)
                if file.exists():
                    onnx.load(file)  # which refuses a file of weights with two names
                    (got,) = run(session(file), [X])
                    expected = [pair[0](X) for pair in (before, after) if pair is not None]
                    self.assertTrue(any(torch.allclose(got, y, rtol=1e-4, atol=1e-3) for y in expected))
                if not ended:
                    break
                save(new[1], file)  # whatever was left, the next one is right
                self.assert_file_runs_as(file, new[0])
            self.assertGreater(steps, 0)
            self.assertIn(self.files(), (["model.onnx"], ["model.onnx", "model.onnx.data"]))

    def test_a_disk_that_holds_no_third_copy_of_the_weights(self):
        with mock.patch("shutil.copyfile", side_effect=OSError(errno.ENOSPC, "No space left on device")):
            self.test_a_model_replaces_another()
        self.assertEqual(["model.onnx", "model.onnx.data"], self.files())

    def test_a_full_disk_at_each_point_of_writing(self):
        """Writing, and renaming, fail in turn: what was there stays, nothing else does."""
        file = self.folder / "model.onnx"
        module = large()
        to_onnx(module, (X,), filename=file)
        full = OSError(errno.ENOSPC, "No space left on device")
        model = to_ir(large(), (X,))
        with mock.patch("os.replace", side_effect=full), self.assertRaisesRegex(OSError, "No space left"):
            save(model, file)
        for function in ("onnx_ir.external_data.convert_tensors_to_external", "onnx_ir.save", "onnx.save"):
            with mock.patch(function, side_effect=full), self.assertRaisesRegex(OSError, "No space left"):
                save(model, file)
            self.assertEqual(["model.onnx", "model.onnx.data"], self.files())
            self.assert_file_runs_as(file, module)

    def test_many_at_once_to_one_name(self):
        """Threads and processes that write the same file leave a graph beside its own weights."""
        file = self.folder / "model.onnx"
        pairs = [(module, to_ir(module, (X,))) for module in (large(), large(), small())]
        writers = [threading.Thread(target=save, args=(model, file)) for _, model in pairs for _ in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        (got,) = run(session(file), [X])
        expected = [module(X) for module, _ in pairs]
        self.assertTrue(
            any(y.shape == got.shape and torch.allclose(got, y, rtol=1e-4, atol=1e-3) for y in expected)
        )
        self.assertEqual(set(), set(self.files()) - {"model.onnx", "model.onnx.data"})

    KILLED = """
        import os, shutil, signal, sys
        import numpy, onnx, onnx_ir
        from experimental_experiment.torch_interpreter.files import save

        def model(size):
            tensor = onnx_ir.tensor(numpy.ones(size, numpy.float32), name="w")
            weight = onnx_ir.val("w", onnx_ir.DataType.FLOAT, [size], const_value=tensor)
            node = onnx_ir.node("Neg", [weight])
            node.outputs[0].name = "y"
            graph = onnx_ir.Graph([], node.outputs, nodes=[node], initializers=[weight], opset_imports={"": 18})
            return onnx_ir.Model(graph, ir_version=8)

        def dies(*arguments, **options):
            os.kill(os.getpid(), signal.SIGKILL)

        large = model(2**22 + 1)
        for owner, name in ((onnx, "load"), (os, "replace"), (shutil, "copyfile"), (os, "remove")):
            process = os.fork()
            if not process:
                save(large, sys.argv[1])
                setattr(owner, name, dies)
                save(large, sys.argv[1])
                os._exit(0)
            _, status = os.waitpid(process, 0)
            left = sorted(os.listdir(os.path.dirname(sys.argv[1])))
            onnx_ir.load(sys.argv[1])
            save(large if name == "copyfile" else model(8), sys.argv[1])
            print(status, len(left), *sorted(os.listdir(os.path.dirname(sys.argv[1]))), sep="|")
    """

    @unittest.skipUnless(hasattr(os, "fork"), "processes are killed as POSIX does")
    def test_what_a_killed_process_left_is_removed(self):
        """A real one, killed while it reads the new file, before the first renaming, and between the others."""
        kept = {".model.onnx.mine", ".model.onnx.mine.data", ".other.onnx.abcdefgh.writing"}
        for name in kept:
            (self.folder / name).mkdir()
        command = [sys.executable, "-c", textwrap.dedent(self.KILLED), str(self.folder / "model.onnx")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        lines = [line.split("|") for line in done.stdout.splitlines()]
        self.assertEqual(4, len(lines))
        for status, left, *files in lines:
            self.assertEqual("9", status)
            self.assertGreater(int(left), len(kept) + 2)
            self.assertEqual({*kept, "model.onnx"}, {*files} - {"model.onnx.data"})
        self.assertEqual([False, False, True, False], ["model.onnx.data" in files for _, _, *files in lines])

    def test_what_a_killed_process_tried_is_removed(self):
        (self.folder / ".model.onnx.abcdefgh.writing").mkdir()
        for name in (".model.onnx.abcdefgh.writing.onnx", ".model.onnx.abcdefgh.writing.mine"):
            (self.folder / name).touch()
        save(to_ir(small(), (X,)), self.folder / "model.onnx")
        self.assertEqual([".model.onnx.abcdefgh.writing.mine", "model.onnx"], sorted(self.files()))

    def test_the_folder_of_a_writer_at_work_stays(self):
        with workplace(str(self.folder), "model.onnx") as first:
            with workplace(str(self.folder), "model.onnx") as second:
                self.assertEqual({first, second}, {str(self.folder / name) for name in self.files()})
            self.assertEqual([os.path.basename(first)], self.files())
        self.assertEqual([], self.files())

    @contextlib.contextmanager
    def ending_after(self, steps):
        """Whatever changes the names of files raises after so many of them; what is yielded becomes true then."""
        left, ended = itertools.count(steps, -1), []

        def ends(function):
            def call(*args, **kwargs):
                if next(left) <= 0:
                    ended.append(True)
                    raise KeyboardInterrupt
                return function(*args, **kwargs)

            return call

        with contextlib.ExitStack() as stack:
            for module, name in ((os, "replace"), (shutil, "copyfile")):
                stack.enter_context(mock.patch.object(module, name, ends(getattr(module, name))))
            try:
                yield ended
            except KeyboardInterrupt:
                pass

    def test_a_failing_export_writes_nothing(self):
        with self.assertRaisesRegex(RuntimeError, "fails_late.default has no translation"):
            to_onnx(lambda x: fails_late(x), (X,), filename=self.folder / "model.onnx")
        self.assertEqual([], self.files())

    def test_wrong_targets(self):
        with self.assertRaisesRegex(FileNotFoundError, "the folder of .* does not exist"):
            to_onnx(small(), (X,), filename=self.folder / "absent" / "model.onnx")
        with self.assertRaisesRegex(FileNotFoundError, "the name of the file to write is empty"):
            to_onnx(small(), (X,), filename="")
        with self.assertRaisesRegex(IsADirectoryError, "is a folder"):
            to_onnx(large(), (X,), filename=self.folder)

    def test_every_dtype_and_layout_is_written(self):
        """Transposed, sliced and half weights are written as torch sees them."""

        class Held(torch.nn.Module):
            def __init__(self):
                super().__init__()
                base = torch.randn(2048, 3000)
                self.register_buffer("transposed", base.T)
                self.register_buffer("sliced", base[:, ::2])
                self.register_buffer("narrow", base.to(torch.bfloat16))
                self.register_buffer("whole", torch.arange(8))

            def forward(self, x):
                cut = x @ self.transposed[:8, :4] + self.sliced[:8, :4].sum(0)
                return cut + self.narrow[:8, :4].float().sum(0) + self.whole[:4]

        module = Held()
        to_onnx(module, (X,), filename=self.folder / "model.onnx")
        self.assert_file_runs_as(self.folder / "model.onnx", module)


class TestMemory(unittest.TestCase):
    """A model of 2.2 GB, in a process of its own."""

    SCRIPT = """
        import os, resource, sys
        import torch
        from experimental_experiment.torch_interpreter import to_onnx

        x = torch.zeros(1, 7168)
        to_onnx(torch.nn.Linear(7168, 1), (x,), filename=sys.argv[1])  # loads what an export needs
        with torch.device("meta"):
            model = torch.nn.Sequential(*(torch.nn.Linear(7168, 7168) for _ in range(11)))
        model = model.to_empty(device="cpu")
        for weight in model.parameters():
            weight.data.fill_(1e-4)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        to_onnx(model, (x,), filename=sys.argv[1])
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((after - before) // 1024, os.path.getsize(sys.argv[1] + ".data"))
    """

    def test_the_weights_are_not_copied(self):
        if sys.platform != "linux":
            self.skipTest("peak memory is read as Linux gives it")
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with tempfile.TemporaryDirectory() as folder:
            if shutil.disk_usage(folder).free < 6 * 2**30 or available < 4 * 2**30:
                self.skipTest("4 GB of memory and 6 GB of disk are needed")
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(self.SCRIPT), os.path.join(folder, "model.onnx")],
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(0, done.returncode, done.stderr)
        grown, size = map(int, done.stdout.split())
        self.assertGreater(size, 2.2e9)
        self.assertLess(grown, 64)

    def test_a_protobuf_cannot_hold_it(self):
        with torch.device("meta"):
            model = torch.nn.Linear(2**15, 2**14 + 1)
        model = model.to_empty(device="cpu")  # its pages are never touched
        with self.assertRaisesRegex(
            ValueError, r"the weights take 2\.0 GB and protobuf stops at 2: give filename="
        ):
            to_onnx(model, (torch.zeros(1, 2**15),))


if __name__ == "__main__":
    unittest.main()
