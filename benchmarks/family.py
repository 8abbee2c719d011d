"""What the family adds, beside what a user would do without it: residual, masks, axes, half types.

    python benchmarks/family.py [residual mask axis adaptive half axis-backward half-backward]
                                [--seconds 2] [--dtype float32]

For each case three calls in turns, on all threads: lnfast with the feature, lnfast without it
(`plain`: the contiguous call of the same size, or in float32), and what one writes in PyTorch
(`apart` for the residual: adding by NumPy, then lnfast). A number is a time over that of the
feature's call, the median over the turns: above 1, lnfast with the feature is faster. Results are
compared before anything is timed.
"""

import argparse
from contextlib import ExitStack
from statistics import median

import numpy as np

import lnfast
from lnfast.bench import available_threads, present, ratio, take_turns
from lnfast.bench.cells import EPS
from lnfast.bench.command import parse_seconds
from lnfast.bench.peers import PEERS
from lnfast.bench.table import microseconds
from lnfast.machine import describe, look_around

ROWS = [(1, 768), (128, 768), (1024, 768), (4096, 64), (8192, 768), (8192, 4096), (500_000, 64)]
IMAGES = [(2, 64, 32, 32), (8, 768, 7, 7), (8, 256, 14, 14), (4, 96, 56, 56), (16, 256, 56, 56)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="*", metavar="feature", help=f"of {', '.join(FEATURES)}")
    parser.add_argument("--seconds", type=parse_seconds, default=2, help="for each case")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    arguments = parser.parse_args()
    unknown = set(arguments.features) - set(FEATURES)
    if unknown:
        parser.error(f"no feature: {', '.join(sorted(unknown))}")
    threads = available_threads()
    with ExitStack() as stack:
        peers = present([PEERS["pytorch"]], threads)
        for peer in peers:
            stack.enter_context(peer.on_threads(threads))
        print(*describe(look_around(peers, threads)), sep="\n")
        torch = None
        if peers:
            import torch

            stack.enter_context(torch.inference_mode())
        for feature in arguments.features or FEATURES:
            print(f"\n{feature:<40}{'µs':>10}{'others, in multiples of it':>30}")
            for name, calls in FEATURES[feature](np.dtype(arguments.dtype), torch):
                times = take_turns(calls, arguments.seconds)
                own, *others = calls
                shown = (f"{other} {ratio(times[other], times[own]):.2f}" for other in others)
                time = f"{microseconds(median(times[own])):>10}"
                print(f"{name:<40}{time}    {'   '.join(shown)}", flush=True)


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(calls, few=64):
    """The same result from all, in the first and in the last rows."""
    results = {name: call() for name, call in calls.items() if name != "plain"}
    results = {name: r[0] if isinstance(r, tuple) else r for name, r in results.items()}
    for name, result in results.items():
        if hasattr(result, "float"):  # PyTorch's
            results[name] = result.float().numpy()
    own, *others = (np.asarray(r, np.float64) for r in results.values())
    unit = np.finfo(np.float32).eps if few < 100 else 2.0**-8
    for other in others:
        for part in (np.s_[:2], np.s_[-2:]):
            np.testing.assert_allclose(own[part], other[part], rtol=few * unit, atol=few * unit)
    return calls


def residual(dtype, torch):
    for rows, cols in ROWS:
        x, s = numbers((rows, cols), dtype), numbers((rows, cols), dtype, 1)
        weight, bias = numbers((2, cols), dtype, 2)
        calls = {
            "lnfast": lambda x=x, s=s, w=weight, b=bias: lnfast.add_layer_norm(x, s, None, w, b),
            "apart": lambda x=x, s=s, w=weight, b=bias: lnfast.layer_norm(x + s, None, w, b),
        }
        if torch:
            t = [torch.from_numpy(a) for a in (x, s, weight, bias)]
            norm = torch.nn.functional.layer_norm
            calls["PyTorch"] = lambda t=t, cols=cols, norm=norm: norm(
                t[0].add(t[1]), (cols,), t[2], t[3], EPS
            )
        yield f"{rows}×{cols} {dtype}", check(calls)


def mask(dtype, torch):
    for rows, cols in ROWS[1:-2]:
        x, (weight, bias) = numbers((rows, cols), dtype), numbers((2, cols), dtype, 2)
        rng = np.random.default_rng(0)
        kinds = {
            "padding": np.arange(cols) < rng.integers(1, cols + 1, (rows, 1)),
            "scattered": rng.random((rows, cols)) < 0.7,
            "of columns": rng.random(cols) < 0.7,
        }
        for kind, live in kinds.items():
            calls = {
                "lnfast": lambda x=x, w=weight, b=bias, live=live: lnfast.layer_norm(
                    x, None, w, b, mask=live
                ),
                "plain": lambda x=x, w=weight, b=bias: lnfast.layer_norm(x, None, w, b),
            }
            if torch:
                t = [torch.from_numpy(a) for a in (x, live, weight, bias)]
                calls["PyTorch"] = lambda t=t, torch=torch: masked_formula(torch, *t)
            yield f"{rows}×{cols} {dtype}, {kind}", check(calls)


def masked_formula(torch, x, live, weight, bias):
    count = live.to(x.dtype).sum(-1, keepdim=True)
    mean = torch.where(live, x, 0).sum(-1, keepdim=True) / count
    d = torch.where(live, x - mean, 0)
    rstd = torch.rsqrt((d * d).sum(-1, keepdim=True) / count + EPS)
    return torch.where(live, d * rstd * weight + bias, 0)


def axis(dtype, torch):
    for shape in IMAGES:
        x, (weight, bias) = numbers(shape, dtype), numbers((2, shape[1]), dtype, 2)
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        calls = {
            "lnfast": lambda x=x, w=weight, b=bias: lnfast.layer_norm(x, None, w, b, axis=1),
            "plain": lambda x=last, w=weight, b=bias: lnfast.layer_norm(x, None, w, b),
        }
        if torch:
            t = [torch.from_numpy(a) for a in (x, weight, bias)]
            norm = torch.nn.functional.layer_norm
            calls["PyTorch"] = lambda t=t, norm=norm, shape=shape: (
                norm(t[0].permute(0, 2, 3, 1), shape[1:2], t[1], t[2], EPS)
                .permute(0, 3, 1, 2)
                .contiguous()
            )
        yield f"{'×'.join(map(str, shape))} {dtype}, axis 1", check(calls)


def adaptive(dtype, torch):
    for samples, length, cols in [(8, 128, 768), (64, 64, 64), (32, 1, 1024), (32, 256, 1024)]:
        x = numbers((samples, length, cols), dtype)
        weight, bias = numbers((2, samples, 1, cols), dtype, 2)
        calls = {
            "lnfast": lambda x=x, w=weight, b=bias, cols=cols: lnfast.layer_norm(x, cols, w, b),
            "plain": lambda x=x, w=weight[0, 0], b=bias[0, 0]: lnfast.layer_norm(x, None, w, b),
        }
        if torch:
            t = [torch.from_numpy(a) for a in (x, weight, bias)]
            norm = torch.nn.functional.layer_norm
            calls["PyTorch"] = lambda t=t, norm=norm, cols=cols: (
                norm(t[0], (cols,), None, None, EPS).mul(t[1]).add(t[2])
            )
        yield f"{samples}×{length}×{cols} {dtype}, of samples", check(calls)


def half_types():
    kinds = {"float16": np.float16}
    try:
        import ml_dtypes

        kinds["bfloat16"] = ml_dtypes.bfloat16
    except ModuleNotFoundError:
        print("without bfloat16: ml_dtypes is not installed")
    return kinds


def half(dtype, torch):
    """Plain: in float32."""
    kinds = half_types()
    for rows, cols in ROWS:
        for name, kind in kinds.items():
            wide, (weight, bias) = numbers((rows, cols), "f4"), numbers((2, cols), "f4", 2)
            x = wide.astype(kind)
            calls = {
                "lnfast": lambda x=x, w=weight, b=bias: lnfast.layer_norm(x, None, w, b),
                "plain": lambda x=wide, w=weight, b=bias: lnfast.layer_norm(x, None, w, b),
            }
            if torch:
                t = [torch.from_numpy(a).to(getattr(torch, name)) for a in (wide, weight, bias)]
                norm = torch.nn.functional.layer_norm
                calls["PyTorch"] = lambda t=t, norm=norm, cols=cols: norm(
                    t[0], (cols,), t[1], t[2], EPS
                )
            yield f"{rows}×{cols} {name}", check(calls, few=1000)


def axis_backward(dtype, torch):
    for shape in IMAGES:
        x, dy, (weight, bias) = *numbers((2, *shape), dtype), numbers((2, shape[1]), dtype, 2)
        last = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, dy)]
        cache = lnfast.layer_norm_forward(x, None, weight, bias, axis=1)[1]
        of_last = lnfast.layer_norm_forward(last[0], None, weight, bias)[1]
        calls = {
            "lnfast": lambda dy=dy, cache=cache: lnfast.layer_norm_backward(dy, cache),
            "plain": lambda dy=last[1], cache=of_last: lnfast.layer_norm_backward(dy, cache),
        }
        if torch:
            t = [torch.from_numpy(a) for a in (dy, x, weight, bias)]
            mean, rstd = (torch.from_numpy(a.astype(dtype)) for a in (of_last.mean, of_last.rstd))
            calls["PyTorch"] = lambda t=t, mean=mean, rstd=rstd, torch=torch: (
                torch.ops.aten.native_layer_norm_backward(
                    *(a.permute(0, 2, 3, 1).contiguous() for a in t[:2]),
                    *(t[2].shape, mean, rstd, t[2], t[3], [True, True, True]),
                )[0]
                .permute(0, 3, 1, 2)
                .contiguous()
            )
        yield f"{'×'.join(map(str, shape))} {dtype}, axis 1", check(calls)


def half_backward(dtype, torch):
    """Plain: in float32."""
    kinds = half_types()
    for rows, cols in ROWS:
        for name, kind in kinds.items():
            wide, dy = numbers((2, rows, cols), "f4")
            weight, bias = numbers((2, cols), "f4", 2)
            half_x, half_dy = wide.astype(kind), dy.astype(kind)
            cache = lnfast.layer_norm_forward(half_x, None, weight, bias)[1]
            of_wide = lnfast.layer_norm_forward(wide, None, weight, bias)[1]
            calls = {
                "lnfast": lambda dy=half_dy, cache=cache: lnfast.layer_norm_backward(dy, cache),
                "plain": lambda dy=dy, cache=of_wide: lnfast.layer_norm_backward(dy, cache),
            }
            if torch:
                to = getattr(torch, name)
                t = [torch.from_numpy(a).to(to) for a in (dy, wide, weight, bias)]
                _, mean, rstd = torch.native_layer_norm(t[1], t[2].shape, t[2], t[3], EPS)
                calls["PyTorch"] = lambda t=t, mean=mean, rstd=rstd, torch=torch: (
                    torch.ops.aten.native_layer_norm_backward(
                        *(t[0], t[1], t[2].shape, mean, rstd, t[2], t[3], [True, True, True])
                    )
                )
            yield f"{rows}×{cols} {name}", check(calls, few=1000)


FEATURES = {
    "residual": residual,
    "mask": mask,
    "axis": axis,
    "adaptive": adaptive,
    "half": half,
    "axis-backward": axis_backward,
    "half-backward": half_backward,
}

if __name__ == "__main__":
    main()
