"""Operators of torchvision, by name: nms, roi_align, roi_pool, deform_conv2d; and batched_nms, which the patch `boxes_of_classes` makes one.

Source of semantics: torchvision.ops and ONNX NonMaxSuppression, RoiAlign, MaxRoiPool, DeformConv.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.unread import zeros_for_gradient

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

MOST_SHIFTED = 1000
"""Boxes up to which torchvision moves those of each class where no other is, on a CPU; it compares more of them class by class."""


@translates("torchvision::nms")
def nms(op, dets, scores, iou_threshold):
    """The boxes that no better box overlaps by more than the threshold, the best ones first."""
    return chosen_boxes(op, dets, op.Unsqueeze(op.Cast(scores, to=FLOAT), [0, 1]), iou_threshold)


def chosen_boxes(op, boxes, ranks, iou_threshold, *least):
    """Class by class, the boxes that no better box of the class overlaps. *ranks*: (1, classes, boxes); *least*: what the rank of a box is above."""
    boxes = op.Unsqueeze(op.Cast(boxes, to=FLOAT), [0])
    threshold = op.constant(np.array([iou_threshold], np.float32))
    chosen = op.NonMaxSuppression(boxes, ranks, op.shape_of(boxes, 1, 2), threshold, *least)
    return op.Squeeze(op.Slice(chosen, [2], [3], [1]), [1])


@translates("experimental_experiment::batched_nms")
def batched_nms(op, boxes, scores, idxs, iou_threshold):
    """The boxes that no better box of their class overlaps by more than the threshold, the best ones first.

    Up to `MOST_SHIFTED` boxes are of one class here, and those of each of theirs are moved, which rounds, as in torchvision.
    """
    count = op.constant(op.size(scores, 0))
    is_shifted = op.LessOrEqual(count, MOST_SHIFTED)
    lowest = op.constant([dtypes.lowest(boxes.dtype)], boxes.dtype)  # there may be no box
    furthest = op.ReduceMax(op.Concat(op.Reshape(boxes, [-1]), lowest, axis=0), keepdims=0)
    shifts = op.Mul(op.Cast(idxs, to=boxes.dtype), op.Add(furthest, 1))
    boxes = op.Add(boxes, op.Unsqueeze(op.Where(is_shifted, shifts, 0.0), [1]))
    classes = op.Where(is_shifted, op.constant(0, idxs.dtype), idxs)
    each = op.Unsqueeze(op.Unique(classes), [1])
    ranks = op.Where(op.Equal(each, classes), op.Cast(scores, to=FLOAT), -np.inf)
    kept = chosen_boxes(op, boxes, op.Unsqueeze(ranks, [0]), iou_threshold, op.constant([-np.inf]))
    # equal scores are in the order of the boxes
    kept, _ = op.TopK(kept, op.Shape(kept), largest=0, outputs=2)
    _, order = op.TopK(op.Gather(scores, kept), op.Shape(kept), outputs=2)
    return op.Gather(kept, order)


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


@translates("torchvision::roi_pool")
def roi_pool(op, input, rois, spatial_scale, pooled_height, pooled_width):
    """The largest element in each cell of every region (batch index, x1, y1, x2, y2); its place is for the gradient."""
    size = [pooled_height, pooled_width]
    result = op.MaxRoiPool(input, rois, pooled_shape=size, spatial_scale=float(spatial_scale))
    return result, *zeros_for_gradient(op)


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
