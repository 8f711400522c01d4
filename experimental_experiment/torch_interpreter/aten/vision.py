"""Operators of torchvision, by name: nms, roi_align, deform_conv2d.

Source of semantics: torchvision.ops and ONNX NonMaxSuppression, RoiAlign, DeformConv.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@translates("torchvision::nms")
def nms(op, dets, scores, iou_threshold):
    """The boxes that no better box overlaps by more than the threshold, the best ones first."""
    boxes = op.Unsqueeze(op.Cast(dets, to=FLOAT), [0])
    ranks = op.Unsqueeze(op.Cast(scores, to=FLOAT), [0, 1])
    chosen = op.NonMaxSuppression(
        boxes, ranks, op.shape_of(scores), op.constant(np.array([iou_threshold], np.float32))
    )
    return op.Squeeze(op.Slice(chosen, [2], [3], [1]), [1])


@translates("torchvision::roi_align")
def roi_align(
    op, input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
):  # fmt: skip
    """The mean of bilinear samples in each cell of every region (batch index, x1, y1, x2, y2)."""
    dtype = input.dtype
    index = op.Cast(op.Squeeze(op.Slice(rois, [0], [1], [1]), [1]), to=INT64)
    result = op.RoiAlign(
        op.Cast(input, to=FLOAT),
        op.Cast(op.Slice(rois, [1], [5], [1]), to=FLOAT),
        index,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=float(spatial_scale),
    )
    return op.Cast(result, to=dtype)


@translates("torchvision::deform_conv2d")
def deform_conv2d(
    op, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    groups, offset_groups, use_mask,
):  # fmt: skip
    """A convolution that reads every element of its window at its own offset, times its own mask."""
    kernel = list(weight.shape)[2:]
    if not all(isinstance(size, int) for size in kernel):
        raise Untranslatable("a kernel of symbolic size")
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        kernel_shape=kernel,
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w],
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )
