"""Higher-order operators of torch that this project adds."""

from experimental_experiment.higher_order_ops import dynamo  # noqa: F401 (it registers)
from experimental_experiment.higher_order_ops.loop import simple_loop_for

__all__ = ["simple_loop_for"]
