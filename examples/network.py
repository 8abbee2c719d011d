"""The parts of a network that are not layer norm: layers, loss, optimiser, in NumPy.

A layer's `forward` returns its result and what `backward` needs; `backward` adds into the
gradients beside the parameters. `layer(x)` is for evaluation. `parameters()` yields (name,
parameter, gradient). `lnfast.LayerNorm` has all four, so that it stands among these layers.
"""

from math import sqrt

import numpy as np


class Dense:
    """y = x @ weight + bias over the last axis."""

    def __init__(self, inputs, outputs, rng, *, bias=True, scale=None, dtype=np.float32):
        scale = 1 / np.sqrt(inputs) if scale is None else scale
        self.weight = (rng.standard_normal((inputs, outputs)) * scale).astype(dtype)
        self.grad_weight = np.zeros_like(self.weight)
        self.bias = np.zeros(outputs, dtype) if bias else None
        self.grad_bias = np.zeros(outputs, dtype) if bias else None

    def __call__(self, x):
        return self.forward(x)[0]

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


class Embedding:
    """y = weight[numbers]: a row for each number; what Dense would make of one-hot vectors."""

    def __init__(self, numbers, width, rng, *, scale=1.0, dtype=np.float32):
        self.weight = (rng.standard_normal((numbers, width)) * scale).astype(dtype)
        self.grad_weight = np.zeros_like(self.weight)

    def __call__(self, numbers):
        return self.weight[numbers]

    def forward(self, numbers):
        return self.weight[numbers], numbers

    def backward(self, dy, numbers):
        np.add.at(self.grad_weight, numbers, dy)

    def parameters(self):
        yield "weight", self.weight, self.grad_weight


class BatchNorm:
    """y = (x − mean) · rstd · weight + bias, with the statistics of each column of x.

    They are the batch's own in `forward`, which the running ones follow, and the running ones in
    `layer(x)`. Names, defaults and the running variance (by rows − 1) follow
    `torch.nn.BatchNorm1d`. Ioffe, Szegedy 2015, arXiv 1502.03167.
    """

    def __init__(self, features, eps=1e-5, momentum=0.1, dtype=np.float32):
        self.weight, self.bias = np.ones(features, dtype), np.zeros(features, dtype)
        self.grad_weight, self.grad_bias = np.zeros(features, dtype), np.zeros(features, dtype)
        self.running_mean, self.running_var = np.zeros(features, dtype), np.ones(features, dtype)
        self.eps, self.momentum = eps, momentum

    def __call__(self, x):
        rstd = 1 / np.sqrt(self.running_var + self.eps)
        return (x - self.running_mean) * rstd * self.weight + self.bias

    def forward(self, x):
        rows = len(x)
        if rows < 2:
            raise ValueError(f"batch norm needs at least 2 rows to train on, got {rows}")
        mean, var = x.mean(axis=0), x.var(axis=0)
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (var * (rows / (rows - 1)) - self.running_var)
        rstd = 1 / np.sqrt(var + self.eps)
        xhat = (x - mean) * rstd
        return xhat * self.weight + self.bias, (xhat, rstd)

    def backward(self, dy, cache):
        xhat, rstd = cache
        self.grad_weight += (dy * xhat).sum(axis=0)
        self.grad_bias += dy.sum(axis=0)
        # dx = rstd · (h − mean(h) − xhat · mean(h · xhat)),   h = dy · weight, means over the rows
        h = dy * self.weight
        return rstd * (h - h.mean(axis=0) - xhat * (h * xhat).mean(axis=0))

    def parameters(self):
        yield "weight", self.weight, self.grad_weight
        yield "bias", self.bias, self.grad_bias


class ReLU:
    """y = max(x, 0)."""

    def __call__(self, x):
        return np.maximum(x, 0)

    def forward(self, x):
        y = np.maximum(x, 0)
        return y, y

    def backward(self, dy, y):
        return dy * (y > 0)

    def parameters(self):
        return iter(())


class SiLU:
    """y = x · sigmoid(x)."""

    def __call__(self, x):
        return x * sigmoid(x)

    def forward(self, x):
        gate = sigmoid(x)
        return x * gate, (x, gate)

    def backward(self, dy, cache):
        # dx = dy · gate · (1 + x · (1 − gate))
        x, gate = cache
        return dy * gate * (1 + x * (1 - gate))

    def parameters(self):
        return iter(())


class Sequential:
    """Layers one after the other; a layer itself."""

    def __init__(self, *layers):
        self.layers = layers

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x):
        caches = []
        for layer in self.layers:
            x, cache = layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dy, caches):
        for layer, cache in zip(reversed(self.layers), reversed(caches), strict=True):
            dy = layer.backward(dy, cache)
        return dy

    def parameters(self):
        for number, layer in enumerate(self.layers):
            for name, parameter, gradient in layer.parameters():
                yield f"{number}.{name}", parameter, gradient


def perceptron(inputs, hidden, outputs, rng, *, norm=None, dtype=np.float32):
    """Dense, norm, ReLU for each width of `hidden`, then dense: a multilayer perceptron.

    `norm(width)` makes the layer that normalises, which brings the bias. It draws nothing from
    `rng`, so that the weights are the same with any norm and with none.
    """
    layers = []
    for width in hidden:
        scale = sqrt(2 / inputs)  # keeps the size of what a ReLU lets through
        layers.append(Dense(inputs, width, rng, bias=norm is None, scale=scale, dtype=dtype))
        if norm is not None:
            layers.append(norm(width))
        layers.append(ReLU())
        inputs = width
    return Sequential(*layers, Dense(inputs, outputs, rng, dtype=dtype))


def sigmoid(x):
    # 1 / (1 + exp(−x)), written so that no x overflows
    return 0.5 * (1 + np.tanh(0.5 * x))


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


def gradient_norm(layers):
    """The root of the sum of the squares of all gradients."""
    gradients = (g.ravel() for layer in layers for _, _, g in layer.parameters())
    return sqrt(sum(float(g @ g) for g in gradients))


def clip_gradients(layers, largest):
    """Scale all gradients by one factor where their norm is above `largest`."""
    norm = gradient_norm(layers)
    if norm > largest:
        for layer in layers:
            for _, _, gradient in layer.parameters():
                gradient *= largest / norm


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
        rate = self.rate * sqrt(1 - second**self.steps) / (1 - first**self.steps)
        for (parameter, gradient), (mean, square) in zip(
            self.parameters, self.moments, strict=True
        ):
            mean += (1 - first) * (gradient - mean)
            square += (1 - second) * (gradient * gradient - square)
            parameter -= rate * mean / (np.sqrt(square) + self.eps)
