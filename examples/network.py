"""The parts of a network that are not layer norm: dense layer, loss, optimiser, in NumPy.

A layer's `forward` returns its result and what `backward` needs; `backward` adds into the
gradients beside the parameters. `parameters()` yields (name, parameter, gradient), as
`lnfast.LayerNorm` does, so that one optimiser serves them all.
"""

import numpy as np


class Dense:
    """y = x @ weight + bias over the last axis."""

    def __init__(self, inputs, outputs, rng, *, bias=True, scale=None, dtype=np.float32):
        scale = 1 / np.sqrt(inputs) if scale is None else scale
        self.weight = (rng.standard_normal((inputs, outputs)) * scale).astype(dtype)
        self.grad_weight = np.zeros_like(self.weight)
        self.bias = np.zeros(outputs, dtype) if bias else None
        self.grad_bias = np.zeros(outputs, dtype) if bias else None

    def forward(self, x):
        y = x @ self.weight
        return (y if self.bias is None else y + self.bias), x

    def backward(self, dy, x):
        rows, gradients = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        self.grad_weight += rows.T @ gradients
        if self.bias is not None:
            self.grad_bias += gradients.sum(axis=0)
        return dy @ self.weight.T

    def parameters(self):
        yield "weight", self.weight, self.grad_weight
        if self.bias is not None:
            yield "bias", self.bias, self.grad_bias


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def cross_entropy(scores, labels):
    """Mean over all labels of −log softmax(scores)[label], and its gradient for the scores."""
    flat, wanted = scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)
    probabilities = softmax(flat)
    each = np.arange(len(wanted))
    loss = -np.log(probabilities[each, wanted] + np.finfo(probabilities.dtype).tiny).mean()
    probabilities[each, wanted] -= 1
    probabilities /= len(wanted)
    return float(loss), probabilities.reshape(scores.shape)


class Adam:
    """Adam (Kingma, Ba 2015, arXiv 1412.6980) over parameters that are changed in place."""

    def __init__(self, layers, rate=1e-3, betas=(0.9, 0.999), eps=1e-8):
        self.parameters = [(p, g) for layer in layers for _, p, g in layer.parameters()]
        self.moments = [(np.zeros_like(p), np.zeros_like(p)) for p, _ in self.parameters]
        self.rate, self.betas, self.eps = rate, betas, eps
        self.steps = 0

    def zero_grad(self):
        for _, gradient in self.parameters:
            gradient[...] = 0

    def step(self):
        self.steps += 1
        first, second = self.betas
        rate = self.rate * np.sqrt(1 - second**self.steps) / (1 - first**self.steps)
        for (parameter, gradient), (mean, square) in zip(
            self.parameters, self.moments, strict=True
        ):
            mean += (1 - first) * (gradient - mean)
            square += (1 - second) * (gradient * gradient - square)
            parameter -= (rate * mean / (np.sqrt(square) + self.eps)).astype(parameter.dtype)
