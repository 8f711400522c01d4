"""What is written on values, nodes and graphs of onnx-ir, in their ``meta``, which is not part of the model: all of its keys.

Everything else that is known of a value stands in its type and shape, in the environment of the walk or in the `Context`.
"""

STAMPED = "stamped"
"""On a value: the fake tensor of torch that its dtype and shape were checked against; it keeps the name of that node."""

PARTS = "parts"
"""On a value of a complex tensor: its real and imaginary parts, when they were computed apart and joined."""

COLUMNS = "columns"
"""On a value of a complex tensor: its parts with a last axis of 1, when they were joined."""

PADDED = "padded"
"""On a value of packed sequences: the padded batch that they were packed from."""

PROTO = "proto"
"""On a constant: its TensorProto, as onnx's inference reads it."""

DATA = "data"
"""On a small constant: its bytes, as what the types of a node's results depend on."""

NUMBERS = "numbers"
"""On a small constant: its elements as Python numbers in a row, and its rank, as rules of the optimizer read them."""

REFUSED = "refused"
"""On a value that rules of the optimizer judge by its readers: the reader that did not suit, by the name of the judgement."""

ALONE = "alone"
"""On a number computed from sizes: all that is computed with it becomes vectors of one element, as a rule of the optimizer found."""

BOUND = "bound"
"""On an integer computed from sizes: a number that it is never below."""

MODULES = "modules"
"""On a node: the calls of modules that it comes from, outermost first, each ``(key, path, class)``."""

SELECTED = "selected"
"""On the graph of a model: the names of the sizes that are 0 when the data select nothing."""

ANNOTATION = "quant_parameter_tensor_names"
"""On a value of a file: its quantization annotation, where onnx-ir keeps it."""
