"""Gradients of layers, in training and in evaluation."""

import unittest

import torch
from torch.nn import functional as F

from _unittests.ut_torch_dynamo.gradient_case import (
    BAGS,
    FLAT,
    GROUPS,
    IMAGE,
    KEY,
    MASK,
    POSITIVE,
    QUERY,
    SEQUENCE,
    VALUE,
    VOLUME,
    GradientTestCase,
    integers,
    normal,
)
from experimental_experiment.torch_interpreter import ExportError


class TestLayers(GradientTestCase):
    CASES = {
        "linear": (torch.nn.Linear(5, 4), FLAT),
        "linear on sequences": (torch.nn.Linear(8, 3), SEQUENCE),
        "bilinear": (torch.nn.Bilinear(5, 4, 3), FLAT, normal(3, 4)),
        "conv1d": (torch.nn.Conv1d(5, 6, 3, padding=1), SEQUENCE),
        "conv2d with stride": (torch.nn.Conv2d(4, 6, 3, stride=2, padding=1), IMAGE),
        "conv2d with groups and dilation": (torch.nn.Conv2d(4, 4, 3, groups=2, dilation=2), IMAGE),
        "conv3d": (torch.nn.Conv3d(2, 3, 2), VOLUME),
        "depthwise": (torch.nn.Conv2d(4, 4, 3, groups=4, bias=False), IMAGE),
        "conv_transpose2d": (torch.nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1), IMAGE),
        "conv_transpose1d": (torch.nn.ConvTranspose1d(5, 3, 2), SEQUENCE),
        "max_pool1d": (lambda x: F.max_pool1d(x, 2), SEQUENCE),
        "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
        "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), SEQUENCE),
        "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
        "adaptive pools": (
            lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 2)),
            IMAGE),
        "batch_norm in training": (torch.nn.BatchNorm2d(4), IMAGE),
        "batch_norm in evaluation": (torch.nn.BatchNorm2d(4).eval(), IMAGE),
        "batch_norm without statistics": (torch.nn.BatchNorm1d(5, track_running_stats=False), FLAT),
        "layer_norm": (torch.nn.LayerNorm(8), SEQUENCE),
        "layer_norm without weight": (torch.nn.LayerNorm(8, elementwise_affine=False), SEQUENCE),
        "rms_norm": (torch.nn.RMSNorm(8), SEQUENCE),
        "group_norm": (torch.nn.GroupNorm(2, 4), IMAGE),
        "instance_norm": (torch.nn.InstanceNorm2d(4, affine=True), IMAGE),
        "local_response_norm": (lambda x: F.local_response_norm(x, 2), IMAGE),
        "embedding": (torch.nn.Embedding(7, 4, padding_idx=2), integers(7, 3, 4)),
        "embedding_bag": (torch.nn.EmbeddingBag(7, 4, mode="mean"), integers(7, 3, 4)),
        "embedding_bag of the mean": (torch.nn.EmbeddingBag(7, 4, mode="mean", padding_idx=2), *BAGS),
        "embedding_bag of the sum": (torch.nn.EmbeddingBag(7, 4, mode="sum"), *BAGS),
        "embedding_bag with weights": (
            torch.nn.EmbeddingBag(7, 4, mode="sum", padding_idx=2), *BAGS, normal(12)),
        "embedding_bag of the maximum": (torch.nn.EmbeddingBag(7, 4, mode="max", padding_idx=2), *BAGS),
        "embedding_bag of the maximum of rows": (torch.nn.EmbeddingBag(7, 4, mode="max"), integers(7, 3, 4)),
        "attention": (F.scaled_dot_product_attention, QUERY, KEY, VALUE),
        "causal attention": (lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), QUERY, KEY, VALUE),
        "grouped attention": (
            lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True), QUERY, *GROUPS),
        "attention with a row that is closed": (
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3), QUERY, KEY, VALUE,
            MASK.tril(-1)),
        "masked attention": (
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), QUERY, KEY, VALUE, MASK),
        "attention with a float mask": (
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), QUERY, KEY, VALUE,
            normal(5, 5)),
        "multi-head attention": (torch.nn.MultiheadAttention(8, 2, batch_first=True), SEQUENCE, SEQUENCE, SEQUENCE),
        "encoder layer": (
            torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), SEQUENCE),
        "upsample nearest": (lambda x: F.interpolate(x, scale_factor=2), IMAGE),
        "upsample bilinear": (lambda x: F.interpolate(x, size=(5, 9), mode="bilinear"), IMAGE),
        "upsample bicubic": (lambda x: F.interpolate(x, size=(5, 9), mode="bicubic"), IMAGE),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), IMAGE),
        "grid_sample": (
            lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, normal(2, 3, 4, 2).clamp(-1, 1)),
        "grid_sample on the border": (
            lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), IMAGE,
            F.affine_grid(torch.eye(2, 3).expand(2, -1, -1), IMAGE.shape, align_corners=True)),
        "grid_sample of volumes": (
            lambda x, g: [
                F.grid_sample(x, g, mode, padding, align_corners=False)
                for mode, padding in (("bilinear", "reflection"), ("nearest", "zeros"), ("bilinear", "zeros"))],
            VOLUME, normal(1, 2, 3, 4, 3)),
        "upsample antialiased": (
            lambda x: F.interpolate(x, size=(5, 3), mode="bilinear", antialias=True), IMAGE),
        "sampled at fixed places": (
            lambda x: F.grid_sample(x, F.affine_grid(torch.eye(2, 3).expand(2, -1, -1), x.shape, False), align_corners=False),
            IMAGE),
        "weight_norm": (torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 3)), SEQUENCE),
        "weight_norm of the last axis": (
            torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(5, 6, 3), dim=2), SEQUENCE),
        "pdist": (F.pdist, FLAT),
        "cosine_similarity": (F.cosine_similarity, FLAT, POSITIVE),
        "cdist": (
            lambda x, y: [torch.cdist(x, y, p) for p in (2.0, 1.0, 3.0, 1.5, float("inf"))], FLAT, POSITIVE),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_functions(self.CASES)

    def test_filters_of_each_channel_gather_no_windows(self):
        self.compiled(torch.nn.Conv2d(4, 8, 3, groups=4))(IMAGE).sum().backward()
        backward = self.instances[-1]["onnx"].graph
        self.assertNotIn("MatMul", [node.op_type for node in backward.node])

    def test_bags_divided_by_uses_are_refused(self):
        layer = torch.nn.EmbeddingBag(7, 4, mode="sum", scale_grad_by_freq=True)
        message = "only dense gradients without scale_grad_by_freq are handled"
        with self.assertRaisesRegex(Exception, message) as caught:
            self.compiled(layer)(*BAGS).sum().backward()
        self.assertIsInstance(getattr(caught.exception, "inner_exception", caught.exception), ExportError)


if __name__ == "__main__":
    unittest.main()
