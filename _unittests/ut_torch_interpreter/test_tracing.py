"""Tracing with make_fx: gradients in forward, the same interface as torch.export's, what the example decides is told."""

import os
import tempfile
import unittest

import onnx
import onnx_ir as ir
import torch
from torch import nn
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx

torch.manual_seed(0)

MAKE_FX = ExportOptions(tracing="make_fx")
X = torch.randn(4, 3)
ROWS = ({0: "rows"},)


@torch.library.custom_op("tracing_lib::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator without translation."""
    return x.clone()


unknown.register_fake(torch.empty_like)


class Network(nn.Module):
    """A small network, for modules that differentiate it."""

    def __init__(self, width=3, activation=nn.Tanh):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 8), activation(), nn.Linear(8, 1))

    def energy(self, x):
        return self.net(x).sum()


class Forces(Network):
    """Energy and forces, differentiable again."""

    def forward(self, pos):
        pos = pos.requires_grad_(True)
        energy = self.energy(pos)
        (gradient,) = torch.autograd.grad(energy, pos, create_graph=True)  # the gradient
        return energy, -gradient


class Backward(Network):
    """Forces through ``Tensor.backward``."""

    def forward(self, pos):
        pos = pos.detach().requires_grad_(True)
        with torch.enable_grad():
            energy = self.energy(pos)
        energy.backward()
        return pos.grad


class Residual(Network):
    """The residual of Burgers' equation, as physics-informed networks have it."""

    def forward(self, x, t):
        x, t = x.requires_grad_(), t.requires_grad_()
        u = self.net(torch.cat([x, t], 1))
        ones = torch.ones_like(u)
        u_x, u_t = torch.autograd.grad(u, (x, t), ones, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, ones, create_graph=True)
        return {"u": u, "residual": u_t + u * u_x - 0.01 * u_xx}


class Functional(Network):
    """A transformation of torch.func, made of the energy."""

    def __init__(self, transformation, **options):
        super().__init__(**options)
        self.transformation = transformation

    def forward(self, x):
        return self.transformation(self.energy, x)


class Pair(nn.Module):
    """Energy, forces and stress of a Lennard-Jones potential: each atom sees all others."""

    def forward(self, pos):
        pos = pos.requires_grad_()
        strain = torch.zeros(3, 3, dtype=pos.dtype, requires_grad=True)
        moved = pos @ (torch.eye(3, dtype=pos.dtype) + strain)
        squared = (moved[:, None] - moved[None]).square().sum(-1)
        apart = ~torch.eye(pos.shape[0], dtype=torch.bool)
        inverse = 1 / torch.where(apart, squared, torch.ones_like(squared)) ** 3
        energy = torch.where(apart, inverse**2 - inverse, torch.zeros_like(inverse)).sum()
        forces, stress = torch.autograd.grad(energy, (pos, strain))
        return {"energy": energy, "forces": -forces, "stress": stress}


class Convolved(nn.Module):
    """A network over the edges of molecules in one batch, as SchNet is."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.filter = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 8))
        self.out = nn.Linear(8, 1)
        self.register_buffer("centers", torch.linspace(0, 3, 5))

    def forward(self, kinds, pos, edges, molecule, counts):
        pos = pos.requires_grad_()
        h = self.embedding(kinds)
        i, j = edges
        distance = (pos[i] - pos[j]).norm(dim=-1)
        weights = self.filter(torch.exp(-((distance[:, None] - self.centers) ** 2)))
        h = h + torch.zeros_like(h).index_add(0, i, h[j] * weights)
        energy = torch.zeros(counts.shape[0], dtype=pos.dtype)
        energy = energy.index_add_(0, molecule, self.out(nn.functional.silu(h))[:, 0])
        return energy, -torch.autograd.grad(energy.sum(), pos)[0]


class Equivariant(nn.Module):
    """Scalars and vectors of the atoms, that exchange messages over all pairs."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4, bias=False)
        self.gate = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4))
        self.start = nn.Parameter(torch.randn(4))

    def forward(self, pos):
        pos = pos.requires_grad_()
        apart = pos[:, None] - pos[None]
        distance = (apart.square().sum(-1, keepdim=True) + 0.1).sqrt()
        radial = torch.exp(-distance) * self.start
        vectors = self.mix(torch.einsum("ijk,ijf->ikf", apart / distance, radial))
        energy = self.gate((vectors.square().sum(1) + 1e-3).sqrt()).sum()
        return energy, -torch.autograd.grad(energy, pos)[0], vectors


class Score(nn.Module):
    """The score of a mixture of normal distributions at a time of its diffusion."""

    def __init__(self):
        super().__init__()
        self.means = nn.Parameter(torch.randn(5, 3))

    def forward(self, x, t):
        def log_density(x, t):
            return torch.logsumexp(-(x - self.means).square().sum(-1) / (2 * (t**2 + 0.1)), 0)

        return torch.func.vmap(torch.func.grad(log_density))(x, t)


class Image(nn.Module):
    """What each pixel contributes to a convolutional network."""

    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2)
        self.layers = nn.Sequential(*layers, nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x):
        x = x.requires_grad_()
        return torch.autograd.grad(self.layers(x).sum(), x)[0]


class Attention(nn.Module):
    """What each token contributes to a layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        x = x.requires_grad_()
        return torch.autograd.grad(self.layer(x).square().sum(), x)[0]


def molecules(atoms, edges, count):
    i = torch.arange(edges) % atoms
    j = (i + 1 + torch.arange(edges) % (atoms - 1)) % atoms
    kinds = torch.arange(atoms) % 10
    return kinds, torch.randn(atoms, 3), torch.stack([i, j]), torch.arange(atoms) % count, torch.zeros(count)


ATOMS = ({0: "atoms"}, {0: "atoms"}, {1: "edges"}, {0: "atoms"}, {0: "molecules"})


class Neighbours(nn.Module):
    """Energy and forces of the atoms that are near each other: the data decide how many pairs there are."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 4), nn.SiLU(), nn.Linear(4, 1))

    def forward(self, pos):
        pos = pos.requires_grad_()
        with torch.no_grad():
            apart = torch.cdist(pos, pos)
            i, j = torch.nonzero((apart > 0) & (apart < 2), as_tuple=True)
        squared = (pos[i] - pos[j]).square().sum(-1, keepdim=True)
        energy = torch.zeros(pos.shape[0]).index_add(0, i, self.net(squared).squeeze(-1))
        (gradient,) = torch.autograd.grad(energy.sum(), pos)
        return energy, -gradient


class TestGradients(ExporterTestCase):
    MODELS = {
        "energy and forces": (Forces(), (X,), (torch.randn(9, 3),), ROWS),
        "SiLU twice differentiated": (
            Residual(2, nn.SiLU),
            (X[:, :1], X[:, 1:2]),
            (torch.randn(6, 1), torch.randn(6, 1)),
            ({0: "points"}, {0: "points"}),
        ),
        "backward": (Backward(), (X,), (torch.randn(9, 3),), ROWS),
        "every pair of atoms": (Pair(), (X,), (torch.randn(7, 3),), ROWS),
        "in float64": (Pair(), (X.double(),), (torch.randn(7, 3).double(),), ROWS),
        "atoms that are near": (Neighbours(), (X,), (torch.randn(9, 3),), ROWS),
        "edges": (Convolved(), molecules(5, 9, 2), molecules(8, 20, 3), ATOMS),
        "equivariant": (Equivariant(), (X,), (torch.randn(6, 3),), ROWS),
        "a score": (Score(), (X, X[:, 0]), (torch.randn(6, 3), torch.rand(6)), ROWS * 2),
        "a convolution": (
            Image(),
            (torch.randn(2, 2, 8, 8),),
            (torch.randn(3, 2, 12, 14),),
            ({0: "batch", 2: "height", 3: "width"},),
        ),
        "attention": (
            Attention().eval(),
            (torch.randn(2, 5, 8),),
            (torch.randn(3, 7, 8),),
            ({0: "batch", 1: "length"},),
        ),
    }
    TRANSFORMATIONS = {
        "grad_and_value": lambda f, x: torch.func.grad_and_value(f)(x),
        "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
        "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones(())),
        "jacrev": lambda f, x: torch.func.jacrev(lambda y: torch.func.grad(f)(y).sum(0))(x),
        "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
        "jvp of a gradient for each row": lambda f, x: torch.func.vmap(
            lambda row: torch.func.jvp(torch.func.grad(f), (row,), (torch.ones(3),))[1]
        )(x),
        "hessian": lambda f, x: torch.func.hessian(f)(x),
        "a hessian for each row": lambda f, x: torch.func.vmap(torch.func.hessian(f))(x),
        "hvp": lambda f, x: torch.autograd.functional.hvp(f, x, torch.ones_like(x))[1],
    }

    def test_models_at_other_sizes(self):
        for promise, (model, args, others, dynamic_shapes) in self.MODELS.items():
            with self.subTest(promise):
                self.export_and_compare(
                    model,
                    args,
                    others=[others],
                    dynamic_shapes=dynamic_shapes,
                    export_options=MAKE_FX,
                    target_opset=20,
                )

    def test_transformations_at_other_sizes(self):
        for promise, transformation in self.TRANSFORMATIONS.items():
            with self.subTest(promise):
                model = Functional(transformation)
                others = [(torch.randn(7, 3),)]
                self.export_and_compare(
                    model, (X,), others=others, dynamic_shapes=ROWS, export_options=MAKE_FX, target_opset=20
                )

    def test_activations(self):
        for activation in (nn.GELU, nn.Softplus):
            with self.subTest(activation.__name__):
                self.export_and_compare(
                    Forces(activation=activation),
                    (X,),
                    others=[(torch.randn(6, 3),)],
                    dynamic_shapes=ROWS,
                    export_options=MAKE_FX,
                    target_opset=20,
                )

    def test_example_sizes_0_and_1(self):
        for size in (0, 1):
            with self.subTest(size=size):
                self.export_and_compare(
                    Forces(),
                    (X[:size],),
                    others=[(X,)],
                    dynamic_shapes=ROWS,
                    export_options=MAKE_FX,
                    target_opset=20,
                )

    def test_torch_export_names_the_way_out(self):
        functional = [Functional(self.TRANSFORMATIONS[name]) for name in ("jvp", "hessian", "hvp")]
        for model in (Forces(), Backward(), *functional, Score()):
            args = (X, X[:, 0]) if isinstance(model, Score) else (X,)
            with self.subTest(type(model).__name__):
                with self.assertRaisesRegex(
                    ExportError,
                    r"gradients in forward, which torch\.export refuses: ExportOptions\(tracing='make_fx'\) follows them"
                    r"|torch\.export of gradients in forward, which ExportOptions\(tracing='make_fx'\) follows",
                ):
                    to_onnx(model, args, dynamic_shapes=ROWS * len(args))


class Interface(nn.Module):
    """Nested inputs and outputs, numbers, None, keywords in another order."""

    def forward(self, a, count, *rest, c=None, d=2, absent=None, **more):
        total = a["first"][0] + a["Second One"]["x.y"] + rest[0] + c * d + more["z"]
        return {"total": total * count, "several": (None, a["first"][0].shape[0], 3, more["z"])}


class Stateful(nn.Module):
    """A buffer that is assigned, one that is written, attributes that are no buffers, running statistics."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(3))
        self.norm = nn.BatchNorm1d(3)
        self.plain = torch.ones(3)
        self.listed = [torch.ones(3)]

    def forward(self, x):
        self.count = self.count + 1
        self.total.add_(x.sum(0))
        self.plain.add_(1)
        self.listed[0][:2].mul_(3)
        self.last = x
        y = x.clone()
        y[:, 0] = 2
        y[1] += x[0]
        return x * self.count + self.total + self.plain + self.listed[0] + torch.tensor([1.0, 2.0, 3.0]), y


class TestInterface(ExporterTestCase):
    def interface(self, model, args, kwargs, dynamic_shapes, options, **more):
        proto = to_onnx(model, args, kwargs, dynamic_shapes=dynamic_shapes, export_options=options, **more)
        return [
            [str(ir.from_proto(value)) for value in values]
            for values in (proto.graph.input, proto.graph.output)
        ]

    def test_the_same_as_torch_export(self):
        nested = {"first": [X], "Second One": {"x.y": X + 1}}
        rows = {0: "rows"}
        spec = {
            "a": {"first": [rows], "Second One": {"x.y": rows}},
            "count": Dim.DYNAMIC,
            "rest": (rows,),
            "c": rows,
            "d": None,
            "absent": None,
            "more": {"z": rows},
        }
        kwargs = {"z": X + 3, "d": 3, "c": X + 4, "absent": None}
        for promise, dynamic_shapes in (("static", None), ("dynamic", spec)):
            with self.subTest(promise):
                found = [
                    self.interface(Interface(), (nested, 5, X + 2), kwargs, dynamic_shapes, options)
                    for options in (MAKE_FX, ExportOptions())
                ]
                self.assertEqual(found[1], found[0])

    def test_written_buffers(self):
        found = [
            self.interface(Stateful().eval(), (X,), {}, ROWS, options, mutated_buffers="outputs")
            for options in (MAKE_FX, ExportOptions())
        ]
        self.assertEqual(found[1][0][:-1], found[0][0][:-1])  # the tensor in a list has no name of its own
        types = [[value.partition("<")[2] for values in interface for value in values] for interface in found]
        self.assertEqual(types[1], types[0])
        self.export_and_compare(
            Stateful().eval(),
            (X,),
            others=[(torch.randn(6, 3),)],
            dynamic_shapes=ROWS,
            export_options=MAKE_FX,
            target_opset=20,
        )

    def test_the_model_is_as_before(self):
        for options in (MAKE_FX, ExportOptions()):
            with self.subTest(options.tracing):
                model = Stateful()
                to_onnx(model, (X,), export_options=options)
                self.assertEqual(0, model.count)
                self.assertEqual([1] * 3, model.plain.tolist())
                self.assertEqual([1] * 3, model.listed[0].tolist())
                self.assertFalse(hasattr(model, "last"))

    def test_a_buffer_that_becomes_another(self):
        class Growing(nn.Module):
            """The buffer has one row more at each call."""

            def __init__(self):
                super().__init__()
                self.register_buffer("rows", torch.zeros(1, 3))

            def forward(self, x):
                self.rows = torch.cat([self.rows, x[:1]])
                return self.rows

        with self.assertRaisesRegex(
            CaptureError, r"the buffer rows becomes torch\.float32\[2, 3\], it was torch\.float32\[1, 3\]"
        ):
            to_onnx(Growing(), (X,), export_options=MAKE_FX)

    def test_weights_are_the_module_s(self):
        tied = Functional(lambda f, x: torch.func.grad(f)(x))
        tied.net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        tied.net[2].weight = tied.net[0].weight
        x = torch.randn(2, 64)
        proto = self.export_and_compare(
            tied, (x,), dynamic_shapes=ROWS, export_options=MAKE_FX, target_opset=20
        )
        names = {weight.name for weight in proto.graph.initializer}
        self.assertLessEqual({"net.0.weight", "net.0.bias"}, names)
        self.assertEqual([[64, 64]], [list(w.dims) for w in proto.graph.initializer if len(w.dims) == 2])
        with tempfile.TemporaryDirectory() as folder:
            model = Functional(lambda f, x: torch.func.grad(f)(x))
            model.net = nn.Sequential(
                nn.Linear(64, 2**17, bias=False), nn.Tanh(), nn.Linear(2**17, 1, bias=False)
            )
            filename = os.path.join(folder, "model.onnx")
            to_onnx(model, (x,), dynamic_shapes=ROWS, export_options=MAKE_FX, filename=filename)
            held = sum(4 * parameter.numel() for parameter in model.parameters())
            self.assertLess(os.path.getsize(filename + ".data"), 1.01 * held)

    def test_a_function_and_what_it_reads_from_outside(self):
        weight, layer = torch.randn(3, 3), nn.Linear(3, 3)

        def function(x):
            return torch.func.grad(lambda y: layer(y @ weight).sin().sum())(x)

        self.assert_same_as_eager(
            function, X, export_options=MAKE_FX, target_opset=20, others=[(torch.randn(6, 3),)]
        )

    def test_nodes_know_their_line_and_module(self):
        proto = to_onnx(Forces(), (X,), dynamic_shapes=ROWS, export_options=MAKE_FX, optimize=False)
        sources = {node.op_type: {p.key: p.value for p in node.metadata_props} for node in proto.graph.node}
        self.assertIn("net.1", sources["Tanh"]["pkg.torch.onnx.name_scopes"])
        backward = [node for node in proto.graph.node if "tanh_backward" in node.output[0]]
        self.assertTrue(backward)
        for node in backward:
            stack = {entry.key: entry.value for entry in node.metadata_props}["pkg.torch.onnx.stack_trace"]
            self.assertRegex(stack, r"test_tracing\.py(.|\n)*# the gradient")

    def test_an_operator_without_translation_names_the_line(self):
        def forward(x):
            return unknown(torch.func.grad(lambda y: y.sin().sum())(x))  # nobody translates it

        with self.assertRaisesRegex(
            ExportError,
            r"tracing_lib\.unknown\.default has no translation(.|\n)*test_tracing\.py(.|\n)*# nobody translates it",
        ):
            to_onnx(forward, (X,), export_options=MAKE_FX)

    def test_decompositions(self):
        def by_exp(x):
            return torch.exp(-torch.nn.functional.softplus(-x))

        table = {torch.ops.aten.sigmoid.default: by_exp}
        options = ExportOptions(tracing="make_fx", decomposition_table=table)
        proto = to_onnx(torch.sigmoid, (X,), export_options=options)
        self.assertNotIn("Sigmoid", {node.op_type for node in proto.graph.node})
        options = ExportOptions(tracing="make_fx", decomposition_table="default")
        self.export_and_compare(
            Attention().eval(), (torch.randn(2, 5, 8),), export_options=options, target_opset=20
        )

    def test_casts_of_autocast(self):
        class Region(nn.Module):
            """A product in a region of autocast."""

            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)

            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    return self.linear(x)

        self.export_and_compare(Region(), (X,), export_options=MAKE_FX, target_opset=20)
        module = nn.Linear(3, 3)
        with torch.autocast("cpu", torch.bfloat16):
            proto = to_onnx(module, (X,), export_options=MAKE_FX)
        self.assertEqual(onnx.TensorProto.BFLOAT16, proto.graph.output[0].type.tensor_type.elem_type)

    def test_options_that_exclude_each_other(self):
        with self.assertRaisesRegex(ValueError, "tracing is 'export' or 'make_fx', not 'jit'"):
            ExportOptions(tracing="jit")
        with self.assertRaisesRegex(
            ValueError, "strict=True is an option of torch.export, which tracing='make_fx' does not call"
        ):
            ExportOptions(tracing="make_fx", strict=True)
        with self.assertRaisesRegex(
            ValueError, "preserve_module_call_signature is an option of torch.export, which tracing"
        ):
            ExportOptions(tracing="make_fx", preserve_module_call_signature=("net",))


class TestWhatTheExampleDecides(ExporterTestCase):
    def test_a_branch_on_a_size_is_told(self):
        def forward(x):
            if x.shape[0] > 10:  # the branch
                return x
            return torch.func.grad(lambda y: y.sin().sum())(x)

        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(forward, (X,), dynamic_shapes=ROWS, export_options=MAKE_FX)
        self.assertRegex(
            logs.records[0].getMessage(),
            r"those of sizes where\n  rows <= 10\n.*test_tracing(.|\n)*# the branch",
        )

    def test_a_size_that_a_branch_pins(self):
        def forward(x):
            return x.exp() if x.shape[0] == 4 else x.sin()  # pinned

        with self.assertRaisesRegex(
            CaptureError, r"specialized it to be a constant \(4\)(.|\n)*test_tracing(.|\n)*# pinned\n  hint"
        ):
            to_onnx(forward, (X,), dynamic_shapes=ROWS, export_options=MAKE_FX)
        proto = to_onnx(forward, (X,), dynamic_shapes=({0: Dim.AUTO},), export_options=MAKE_FX)
        self.assertEqual(4, proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value)

    def test_a_loop_over_the_length(self):
        model = nn.LSTM(3, 4, batch_first=True)
        x = torch.randn(2, 5, 3)
        with self.assertRaisesRegex(
            CaptureError, r"L\['input'\]\.size\(\)\[1\] as dynamic but your code specialized"
        ):
            to_onnx(model, (x,), dynamic_shapes=({1: "length"},), export_options=MAKE_FX)
        others = [(torch.randn(3, 5, 3),)]
        self.export_and_compare(
            model,
            (x,),
            others=others,
            dynamic_shapes=({0: "batch"},),
            export_options=MAKE_FX,
            target_opset=20,
        )

    def test_a_branch_on_data_is_refused(self):
        def forward(x):
            return torch.func.grad(lambda y: (y if x.sum() > 0 else -y).sum())(x)  # on data

        with self.assertRaisesRegex(
            CaptureError,
            r"make_fx failed with GuardOnDataDependentSymNode: Could not guard on data-dependent expression"
            r"(.|\n)*# on data\n  hint   a branch or a size depends on the data: use torch\.cond",
        ):
            to_onnx(forward, (X,), dynamic_shapes=ROWS, export_options=MAKE_FX)

    def test_sizes_that_the_data_decide(self):
        def forward(x):
            picked = (x[:, 0] > 0).nonzero()[:, 0]
            return torch.func.grad(lambda y: y[picked].sin().sum())(x)

        self.assert_same_as_eager(
            forward, X, export_options=MAKE_FX, target_opset=20, others=[(torch.randn(6, 3),)]
        )

    def test_control_flow(self):
        def forward(x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

        self.assert_same_as_eager(forward, X, export_options=MAKE_FX, target_opset=20, others=[(-X.abs(),)])

    def test_a_declared_range(self):
        rows = Dim("rows", min=2, max=9)
        self.export_and_compare(
            Forces(),
            (X,),
            others=[(torch.randn(9, 3),)],
            dynamic_shapes=({0: rows},),
            export_options=MAKE_FX,
            target_opset=20,
        )
        with self.assertRaisesRegex(
            CaptureError, r"You marked rows as dynamic(.|\n)*Suggested fixes: rows = 4"
        ):
            to_onnx(lambda x: x.reshape(2, 2, 3), (X,), dynamic_shapes=({0: rows},), export_options=MAKE_FX)


if __name__ == "__main__":
    unittest.main()
