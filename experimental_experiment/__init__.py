"""An exporter from PyTorch to ONNX that takes torch.export's programs as they are."""

__version__ = "0.1.0"
