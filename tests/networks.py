"""Networks written here in plain PyTorch: MLP, convolutional networks, recurrent networks, transformers of torch.nn."""

from __future__ import annotations

import torch
from torch import nn

from tests.architectures import Architecture, architecture, image_model


@architecture
def mlp() -> Architecture:
    """Two linear layers."""
    model = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 3)
    ).eval()
    return Architecture(
        model, {"input": torch.randn(4, 10)}, [{"input": torch.randn(7, 10)}], {"input": {0: "batch"}}
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalization beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += kept
        return self.relu(x)


@architecture
def resnet() -> Architecture:
    """A ResNet with batch statistics of its own."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    model.train()(torch.randn(4, 3, 32, 32))
    return image_model(model, 32, 48, "input")


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, channels-last layer norm, inverted bottleneck, layer scale."""

    def __init__(self, width: int):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


@architecture
def convnext() -> Architecture:
    """A ConvNeXt."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), ConvNeXtBlock(8), nn.Conv2d(8, 16, 2, 2), ConvNeXtBlock(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(16, 5),
    )  # fmt: skip
    return image_model(model, 32, 64, "input")


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        hidden = inputs * 4
        self.expand = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish(inplace=True)
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(hidden, hidden, 5, stride, 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(hidden, 8, 1),
            nn.ReLU(),
            nn.Conv2d(8, hidden, 1),
            nn.Hardsigmoid(inplace=True),
        )
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.squeeze(y))
        return x + y if self.residual else y


@architecture
def mobilenet() -> Architecture:
    """A MobileNetV3."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(), InvertedResidual(8, 8, 1),
        InvertedResidual(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(12, 5),
    )  # fmt: skip
    return image_model(model, 32, 40, "input")


class UNet(nn.Module):
    """Two levels, transposed convolution on one side and interpolation on the other."""

    def __init__(self):
        super().__init__()
        self.down1 = self.double(3, 8)
        self.down2 = self.double(8, 16)
        self.middle = self.double(16, 32)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, 2)
        self.conv2 = self.double(32, 16)
        self.conv1 = self.double(24, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def double(inputs: int, outputs: int) -> nn.Module:
        """Two convolutions with group normalization."""
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True),
        )  # fmt: skip

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        low = self.middle(nn.functional.max_pool2d(second, 2))
        second = self.conv2(torch.cat([self.up2(low), second], dim=1))
        up = nn.functional.interpolate(second, size=first.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(self.conv1(torch.cat([up, first], dim=1)))


@architecture
def unet() -> Architecture:
    """A UNet, with height and width that are multiples of 4."""
    found = image_model(UNet(), 16, 24, "x")
    found.dynamic_shapes = {"x": {0: "batch", 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}}
    return found


def recurrent(name: str, build) -> None:
    """Register a recurrent network: two bidirectional layers, batch first, with initial states."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = build(6, 8, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x, h0):
            states = (h0, h0 * 0.5) if isinstance(self.rnn, nn.LSTM) else h0
            return self.rnn(x, states)

    def builder() -> Architecture:
        call = lambda batch: {"x": torch.randn(batch, 5, 6), "h0": torch.randn(4, batch, 8)}  # noqa: E731
        return Architecture(Recurrent().eval(), call(2), [call(3)], {"x": {0: "batch"}, "h0": {1: "batch"}})

    builder.__name__ = name
    architecture(builder)


recurrent("lstm", nn.LSTM)
recurrent("gru", nn.GRU)
recurrent("rnn", nn.RNN)


class Attention(nn.Module):
    """nn.MultiheadAttention with a padding mask and weights."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x, padding):
        return self.attention(x, x, x, key_padding_mask=padding)


@architecture
def multihead_attention() -> Architecture:
    """nn.MultiheadAttention."""

    def call(batch: int, length: int):
        padding = torch.zeros(batch, length, dtype=torch.bool)
        padding[0, -2:] = True
        return {"x": torch.randn(batch, length, 16), "padding": padding}

    axes = {0: "batch", 1: "sequence"}
    return Architecture(Attention().eval(), call(2, 5), [call(3, 8)], {"x": axes, "padding": axes})


@architecture
def nn_transformer() -> Architecture:
    """nn.Transformer, encoder and decoder."""
    model = nn.Transformer(16, 4, 2, 2, 24, batch_first=True).eval()
    call = lambda batch, a, b: {"src": torch.randn(batch, a, 16), "tgt": torch.randn(batch, b, 16)}  # noqa: E731
    shapes = {"src": {0: "batch", 1: "source"}, "tgt": {0: "batch", 1: "target"}}
    return Architecture(model, call(2, 5, 4), [call(3, 7, 6)], shapes)


@architecture
def nn_transformer_encoder() -> Architecture:
    """nn.TransformerEncoder with a causal mask."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(
                16, 4, 24, batch_first=True, activation="gelu", norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.encoder(x, mask=mask, is_causal=True)

    call = lambda batch, length: {"x": torch.randn(batch, length, 16)}  # noqa: E731
    return Architecture(Encoder().eval(), call(2, 5), [call(3, 7)], {"x": {0: "batch", 1: "sequence"}})
