"""How far thinc's LayerNorm and lnfast's may lie apart: both compute one formula, and round.

thinc computes in X's dtype. With u = eps_m / 2, an operation loses at most u of its result, and
a sum of n terms, in any order, n · u of the sum of their magnitudes. Through thinc's code, to
first order, with D elements in a row, R rows and m = max(1, |xhat|):

    mean    is off by  u · D · mean|x|
    rstd    is off by  u · (D/2 + 4) · rstd         half of what var + eps is off, and the power
    xhat    is off by  u · (D · mean|x| · rstd + (D/2 + 6) · m)

lnfast's own bounds (README) come on top.
"""

import numpy as np

EPS = 1e-8


class Bounds:
    """The largest |thinc's − lnfast's| of each element of Y, dX, dG and db."""

    def __init__(self, X, G, b, dY):
        u = np.finfo(X.dtype).eps / 2
        X, G, b, dY = (np.float64(a) for a in (X, G, b, dY))
        R, D = X.shape
        mean = X.mean(axis=1, keepdims=True)
        rstd = 1 / np.sqrt(X.var(axis=1, keepdims=True) + EPS)
        offset = D * np.abs(X).mean(axis=1, keepdims=True) * rstd
        m = np.maximum(1, np.abs(X - mean) * rstd)
        h = np.abs(dY * G)
        terms = h + h.mean(axis=1, keepdims=True) + m * (h * m).mean(axis=1, keepdims=True)
        # xhat · G + b: two operations more; lnfast 6 u
        self.Y = u * (np.abs(G) * (offset + (D / 2 + 14) * m) + 7 * np.abs(b))
        # rstd · (h − Σh / D − xhat · Σ h · xhat / D): a sum, 1 / var and rstd are off by up to
        # 5/2 D u, x − mean twice by its mean's share, a dozen operations more; lnfast 8 u
        self.dX = u * rstd * terms * (2.5 * D + 28 + 2 * offset)
        # Σ dY · xhat and Σ dY: a product and R terms; lnfast 8 u and 4 u
        self.dG = u * (np.abs(dY) * (offset + (D / 2 + R + 16) * m)).sum(axis=0)
        self.db = u * (np.abs(dY) * (R + 4)).sum(axis=0)
