"""Drawing a model: `plot_dot` with graphviz, `dot_source` the text that graphviz reads.

plot_dot(model)                                # on axes of matplotlib
plot_dot(model, filename="model.svg", fold=True)
"""

from experimental_experiment.plotting.dot import dot_source
from experimental_experiment.plotting.drawing import plot_dot

__all__ = ["dot_source", "plot_dot"]
