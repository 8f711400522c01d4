"""The reference evaluator: ONNX models run by numpy, node after node, operators of com.microsoft included.

evaluator = ExtendedReferenceEvaluator("model.onnx", verbose=1)
outputs = evaluator.run(None, {"x": x})
results = evaluator.run(None, {"x": x}, intermediate=True)      # every result by its name
"""

from experimental_experiment.reference.evaluator import ExtendedReferenceEvaluator

__all__ = ["ExtendedReferenceEvaluator"]
