"""A ResNet-50 and a ResNet-18 for 224 × 224 images, random weights: their answers mean nothing, but their cost is real.

The layers are those of He et al. (2015), table 1, with the stride on the 3 × 3 convolution as in
torchvision, and each batch normalisation folded into its convolution, as ONNX Runtime does when it loads an export.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.models import Graph

SIDE, CHANNELS, CLASSES = 224, 3, 1000
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # inner channels and blocks
SMALL_STAGES = tuple((inner, 2) for inner, _ in STAGES)
WIDENED = 4  # the outputs of a block of ResNet-50, as a multiple of its inner channels
OPSET = 21  # ONNX Runtime 1.31 has no CUDA kernel for the pooling of opset 22
# Scale of a block's last weights. At 1 each block would double the numbers' variance.
QUIET = 0.3


def resnet50(seed: int = 0) -> bytes:
    """x FP32 (batch, 3, 224, 224) → y FP32 (batch, 1000): 25.5 million weights, 102 MB. Equal seeds, equal weights."""
    net = _Net(np.random.default_rng(seed))
    return net.whole(STAGES, net.block, WIDENED)


def resnet18(seed: int = 0) -> bytes:
    """x FP32 (batch, 3, 224, 224) → y FP32 (batch, 1000): 11.7 million weights, 47 MB. Equal seeds, equal weights."""
    net = _Net(np.random.default_rng(seed))
    return net.whole(SMALL_STAGES, net.small_block, 1)


class _Net(Graph):
    """The layers of a ResNet."""

    def whole(
        self, stages: Sequence[tuple[int, int]], block: Callable[[str, int, int, int], str], widened: int
    ) -> bytes:
        last = self.conv("x", CHANNELS, 64, kernel=7, stride=2)
        last = self.node("MaxPool", last, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        channels = 64
        for stage, (inner, blocks) in enumerate(stages):
            for number in range(blocks):
                last = block(last, channels, inner, 2 if stage and not number else 1)
                channels = widened * inner
        last = self.node("Flatten", self.node("GlobalAveragePool", last), axis=1)
        weights = self.weights(channels, CLASSES, scale=channels**-0.5)
        self.node("Gemm", last, weights, self.zeros(CLASSES), gives="y")
        return self.model(f"float[batch, {CHANNELS}, {SIDE}, {SIDE}] x => float[batch, {CLASSES}] y", OPSET)

    def block(self, of: str, channels: int, inner: int, stride: int) -> str:
        """A block: 1 × 1, 3 × 3, 1 × 1 convolutions plus the input, which is fitted where shapes differ."""
        outer = WIDENED * inner
        deep = self.conv(self.conv(of, channels, inner), inner, inner, kernel=3, stride=stride)
        deep = self.conv(deep, inner, outer, scale=QUIET, has_relu=False)
        if channels != outer:
            of = self.conv(of, channels, outer, stride=stride, has_relu=False)
        return self.node("Relu", self.node("Add", deep, of))

    def small_block(self, of: str, channels: int, inner: int, stride: int) -> str:
        """A block: two 3 × 3 convolutions plus the input, which is fitted where shapes differ."""
        deep = self.conv(of, channels, inner, kernel=3, stride=stride)
        deep = self.conv(deep, inner, inner, kernel=3, scale=QUIET, has_relu=False)
        if channels != inner:
            of = self.conv(of, channels, inner, stride=stride, has_relu=False)
        return self.node("Relu", self.node("Add", deep, of))

    def conv(
        self,
        of: str,
        channels: int,
        outputs: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        scale: float = 1.0,
        has_relu: bool = True,
    ) -> str:
        """A convolution that keeps the numbers' size (He initialisation), padded so that only the stride shrinks."""
        weights = self.weights(outputs, channels, kernel, kernel, scale=scale * (2 / (channels * kernel**2)) ** 0.5)
        sizes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        found = self.node("Conv", of, weights, self.zeros(outputs), **sizes)
        return self.node("Relu", found) if has_relu else found

    def weights(self, *shape: int, scale: float) -> str:
        return self.constant(self._rng.standard_normal(shape, np.float32) * np.float32(scale))

    def zeros(self, count: int) -> str:
        return self.constant(np.zeros(count))
