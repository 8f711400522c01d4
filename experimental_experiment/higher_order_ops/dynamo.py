"""``simple_loop_for`` under TorchDynamo: strict ``torch.export`` and ``torch.compile``.

Dynamo has no public way to describe a higher-order operator; this one is described as ``map`` is.
"""

from __future__ import annotations

import inspect

from torch._dynamo.variables import higher_order_ops as variables
from torch._dynamo.variables.lazy import LazyVariableTracker

from experimental_experiment.higher_order_ops.loop import iteration_number, sample, simple_loop_for_op


class SimpleLoopForVariable(variables.TorchHigherOrderOperatorVariable):
    """Traces the body once; what it reads of the enclosing function becomes operands behind the others."""

    _HOP_NAME = "simple_loop_for"
    _ALLOW_FALLBACK_TO_EAGER = False
    supports_input_mutation = False
    supports_aliasing = True

    def _call_function(self, tx, args, kwargs):
        """One node ``simple_loop_for(n_iter, body, operands, concatenation_dims)``."""
        args, kwargs = LazyVariableTracker.realize_all((args, kwargs))
        n_iter, body_fn, operands, dims = args
        variables._check_supported_callable_arg(tx, body_fn, "body_fn")
        tensors = operands.unpack_var_sequence(tx)
        with variables.discard_graph_changes(tx):
            iteration = variables._make_inlined(tx, first_iteration)(operands)
        (_, spec), graph, captured = variables.speculate_subgraph(
            tx,
            body_fn,
            [iteration, *tensors],
            {},
            self._HOP_NAME,
            source_target=self.value,
            set_subgraph_inputs="flatten_manual",
            should_flatten_outputs=True,
            remove_consts_from_outputs=False,
            supports_input_mutation=self.supports_input_mutation,
            supports_aliasing=self.supports_aliasing,
        )
        name = tx.output.install_subgraph(
            "simple_loop_for_body", variables.torch.fx.GraphModule(dict(tx.output.nn_modules), graph)
        )
        proxies = (
            n_iter.as_proxy(),
            variables.make_attr(tx, name),
            (*(tensor.as_proxy() for tensor in tensors), *captured),
            dims.as_python_constant(),
        )
        call = variables._call_function_and_unflatten_output
        body_result = (None,) * ("body_r" in inspect.signature(call).parameters)  # younger than torch 2.9
        return call(tx, simple_loop_for_op, proxies, {}, None, spec, *body_result)


def first_iteration(operands):
    """The iteration number that the body is traced with."""
    return sample(iteration_number(0, operands))


variables._hop_name_to_variable_class[simple_loop_for_op.__name__] = SimpleLoopForVariable
