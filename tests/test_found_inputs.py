"""Inputs that the search has found: on each of them the code of its day went beyond a bound."""

import numpy as np

import lnfast
from lnfast.check import bounds


def numbers(text):
    return np.array([float.fromhex(word) for word in text.split()])


def test_sums_whose_roundings_agree():
    """y was off by 3.57 eps of 3: trees of four in the mean and the variance, all one way."""
    values = numbers(
        "0x1.5143c5418cbdap0 0x1.5143c9ffa97b8p0 0x1.383446f18735p-2 0x1.38206aab732cfp-2"
    )
    x = np.repeat(values, 8)[None]
    weight, bias = numbers("0x1.004b5f70c6afdp0 0x1.89c6f60bde519p-30")
    for eps in (0.0, 1e-300, 1e-20):
        shares = bounds.shares(x, np.full(32, weight), np.full(32, bias), np.ones_like(x), eps)
        assert max(shares.values()) <= 1, shares


X = """
    0x1.388p13 -0x1.15b1a7c9b7e2cp-2 -0x1.8e312e5aa4a9fp0 0x1.100028ca3c3f6p-1
    -0x1.811cff9fb45fdp-5 0x1.2dc3d70f0e97cp-1 -0x1.ba786c8a2aa9ep-1 0x1.32533cf9dcc5cp-2
    0x1.280a5b383af83p0 0x1.adabbec84d4e6p-4 -0x1.66ce963cca4c6p-1 -0x1.ba786c8a2aa9cp-1
    0x1.388p13 -0x1.76cba8a575c74p1 -0x1.549465703260fp-1 -0x1.f37f97bfede58p-1
    0x1.4c9a73ecef00bp-3
"""
DY = """
    0x1.7d9b1f7e5597ep8 -0x1.fef9cdc48081ap-9 -0x1.826fc2da2fa35p-3 -0x1.74685c00dfd52p-2
    -0x1.c492da877105bp-6 -0x1.19b272d15858ep-1 0x1.2e772b885fefbp-4 0x1.7b12ab6d490d8p-5
    0x1.00bd8ab5c64cbp0 0x1.b4995f250cca6p0 -0x1.a821d9b0c6f11p-4 -0x1.b5cbc16b89d5ap-3
    -0x1.e73801ae39068p-6 -0x1.a4d563e5691b6p2 0x1.aa08901f84cc1p-4 -0x1.351273217d091p-3
    0x1.16a7f33b21f75p0
"""
WEIGHT = """
    0x1.5924370bb5edp-1 0x1.d345ba3f6a45p-1 0x1.d4f4e8624c426p0 0x1.545ef4166179ap0
    0x1.6f358c3010734p-3 0x1.feaaffb68c921p-1 0x1.6064ae2636898p-1 0x1.13065b95c2d4cp0
    0x1.913738b45efacp-3 0x1.1ef2618023a9ap0 0x1.1e20f6420a36fp0 0x1.c9ae1d21dcb92p0
    0x1.2887d2eb1816fp0 0x1.415997cf89637p0 0x1.038635b9eef18p-2 0x1.102cb6c75beep1
    0x1.59840b1d767cp-5
"""


def test_gradient_along_two_massive_activations():
    """dx was off by 6.4 eps of 4: its third term alone, all of whose factors were rounded."""
    x, dy, weight = numbers(X), numbers(DY), numbers(WEIGHT)
    for eps in (1e-30, 1e-5):
        shares = bounds.shares(x[None], weight, np.zeros_like(x), dy[None], eps)
        assert max(shares.values()) <= 1, shares


def test_one_element_as_large_as_there_is_and_a_tiny_eps():
    """rstd, scaled as x is, left the range: 0 · ∞ in a row whose xhat is 0."""
    for dtype, eps in ((np.float64, 1e-300), (np.float32, 1e-300)):
        x = np.full((2, 3), np.finfo(dtype).max, dtype)
        dy = np.array([[1, 2, 4], [1, 1, 1]], dtype)
        shares = bounds.shares(x, None, None, dy, eps)
        assert max(shares.values()) <= 1, shares
        gradients = lnfast.layer_norm_backward(dy[:, :1], one_column(x[:, :1], eps))
        assert not gradients[0].any() and not gradients[1].any()


def one_column(x, eps):
    return lnfast.layer_norm_forward(x, 1, eps=eps)[1]


def test_a_sample_far_from_the_mean():
    """Statistics about a pivot seven σ off: y would be off by 14.8 eps of 3, were it not moved.

    The 64 elements of which float64's pivot is the mean, eight neighbours in eight places, lie
    about 0, all others at one value, whose square is rounded the same way each time.
    """
    rng, cols = np.random.default_rng(0), 4097
    sampled = np.add.outer((cols - 8) * np.arange(8) // 7, np.arange(8)).ravel()
    for value in 1 + rng.random(50):
        x = np.full((1, cols), value)
        x[0, sampled] = rng.choice([-1, 1], 64) * value / 64
        shares = bounds.shares(x, None, None, rng.standard_normal(x.shape), 0.0)
        assert max(shares.values()) <= 1, shares
