"""Which layers are raced on two threads: drawn by lot from five networks.

    python tests/benchmarks/race_lot.py

Prints the layers, as ``toolkit race --workload`` takes them. The networks have batch size 1, images
of 224 x 224, and 128 or 197 tokens. One layer of each kind that a network must run well is drawn,
two of convolutions; the seed and the list were committed before the first race. The last two were
drawn later, of all layers of the five networks that had not been, and committed before they were
raced.
"""

from __future__ import annotations

import numpy as np

SEED = 20261123


def convolutions(kind: str, *shapes: str) -> list[str]:
    """Names of layers on square images: ``extent,channels in,channels out,kernel[,stride,pad]``."""
    found = []
    for shape in shapes:
        extent, rest = shape.split(",", 1)
        found.append(f"{kind}:1,{extent},{extent},{rest}")
    return found


NETWORKS = {
    "ResNet-50": [
        *convolutions(
            "conv2d_bias_relu",
            *("224,3,64,7,2,3", "56,64,64,1", "56,64,64,3,1,1", "56,256,64,1", "56,256,128,1"),
            *("56,128,128,3,2,1", "28,512,128,1", "28,128,128,3,1,1", "28,512,256,1"),
            *("28,256,256,3,2,1", "14,1024,256,1", "14,256,256,3,1,1", "14,1024,512,1"),
            *("14,512,512,3,2,1", "7,2048,512,1", "7,512,512,3,1,1"),
        ),
        *convolutions(
            "conv2d_bias_add_relu", "56,64,256,1", "28,128,512,1", "14,256,1024,1", "7,512,2048,1"
        ),
        *convolutions("max_pool2d", "112,64,3,2,1"),
        *convolutions("global_mean", "7,2048"),
        "dense_bias:1,1000,2048",
    ],
    "MobileNet-V2": [
        *convolutions(
            "conv2d_bias_relu6",
            *("224,3,32,3,2,1", "112,16,96,1", "56,24,144,1", "28,32,192,1", "14,64,384,1"),
            *("14,96,576,1", "7,160,960,1", "7,320,1280,1"),
        ),
        *convolutions(
            "depthwise_bias_relu6",
            *("112,32,3,1,1", "112,96,3,2,1", "56,144,3,1,1", "56,144,3,2,1", "28,192,3,1,1"),
            *("28,192,3,2,1", "14,384,3,1,1", "14,576,3,1,1", "14,576,3,2,1", "7,960,3,1,1"),
        ),
        *convolutions(
            "conv2d_bias",
            *("112,32,16,1", "56,96,24,1", "28,144,32,1", "14,192,64,1", "14,384,96,1"),
            *("7,576,160,1", "7,960,320,1"),
        ),
        *convolutions(
            "conv2d_bias_add",
            *("56,144,24,1", "28,192,32,1", "14,384,64,1", "14,576,96,1", "7,960,160,1"),
        ),
        *convolutions("global_mean", "7,1280"),
        "dense_bias:1,1000,1280",
    ],
    "SqueezeNet 1.1": [
        *convolutions(
            "conv2d_bias_relu",
            *("224,3,64,3,2,0", "55,64,16,1", "55,16,64,1", "55,16,64,3,1,1", "55,128,16,1"),
            *("27,128,32,1", "27,32,128,1", "27,32,128,3,1,1", "27,256,32,1", "13,256,48,1"),
            *("13,48,192,1", "13,48,192,3,1,1", "13,384,48,1", "13,384,64,1", "13,64,256,1"),
            *("13,64,256,3,1,1", "13,512,64,1", "13,512,1000,1"),
        ),
        *convolutions("max_pool2d", "111,64,3,2,0", "55,128,3,2,0", "27,256,3,2,0"),
        *convolutions("global_mean", "13,1000"),
    ],
    "BERT-base, 128 tokens": [
        "dense_bias:128,768,768",
        "dense_bias_gelu:128,3072,768",
        "dense_bias:128,768,3072",
        "batch_matmul_nkkm:12,128,128,64",
        "batch_matmul_nkkm:12,128,64,128",
        "softmax:12,128,128",
        "layer_norm:128,768",
    ],
    "ViT-B/16, 197 tokens": [
        *convolutions("conv2d_bias", "224,3,768,16,16,0"),
        "dense_bias:197,2304,768",
        "dense_bias:197,768,768",
        "dense_bias_gelu:197,3072,768",
        "dense_bias:197,768,3072",
        "batch_matmul_nkkm:12,197,197,64",
        "batch_matmul_nkkm:12,197,64,197",
        "softmax:12,197,197",
        "layer_norm:197,768",
        "dense_bias:1,1000,768",
    ],
}

# How many are drawn of which kinds; each layer counts once, however often its network runs it.
DRAWN = (
    (2, ("conv2d_bias_relu", "conv2d_bias_relu6", "conv2d_bias_add_relu")),
    (1, ("dense_bias_gelu",)),
    (1, ("softmax", "layer_norm", "max_pool2d", "global_mean")),
    (1, ("depthwise_bias_relu6",)),
    (1, ("dense_bias", "batch_matmul_nkkm", "conv2d_bias", "conv2d_bias_add")),
)


def lot(seed: int = SEED) -> list[str]:
    """Draw the layers."""
    rng = np.random.default_rng(seed)
    drawn: list[str] = []
    for count, kinds in DRAWN:
        layers = [
            layer for each in NETWORKS.values() for layer in each if layer.split(":")[0] in kinds
        ]
        drawn += rng.choice(layers, count, replace=False).tolist()
    return drawn


def two_more(seed: int = SEED + 1) -> list[str]:
    """Draw two layers of those that the first lot left, whatever their kind."""
    known = set(lot())
    left = sorted({layer for each in NETWORKS.values() for layer in each} - known)
    found: list[str] = np.random.default_rng(seed).choice(left, 2, replace=False).tolist()
    return found


if __name__ == "__main__":
    print("\n".join([*lot(), *two_more()]))
