"""OpenVINO: the norms as it compiles them from models, between buffers bound once."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer


class OpenVino(Peer):
    """MVN, or the formula that it makes one RMS of; y lands in the same buffer at every call.

    There is no backward pass, and no float64: it would be computed in float32.
    """

    name, module, package = "OpenVINO", "openvino", "openvino"
    is_library = refills = True

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call | None:
        def layer_norm(ops: Any, x: Any) -> Any:
            xhat = ops.mvn(x, np.array([-1]), True, eps, "inside_sqrt")
            return ops.add(ops.multiply(xhat, ops.constant(weight)), ops.constant(bias))

        return self._call(layer_norm, x)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> None:
        return None

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call | None:
        def rms_norm(ops: Any, x: Any) -> Any:
            square = ops.power(x, np.float32(2))
            mean_square = ops.reduce_mean(square, np.array([-1]), keep_dims=True)
            xhat = ops.divide(x, ops.sqrt(ops.add(mean_square, np.float32(eps))))
            return ops.multiply(xhat, ops.constant(weight))

        return self._call(rms_norm, x)

    def _call(self, formula: Callable[[Any, Any], Any], x: Array) -> Call | None:
        if x.dtype != np.float32:
            return None
        openvino = import_openvino()
        parameter = openvino.opset13.parameter(x.shape, np.float32)
        result = formula(openvino.opset13, parameter)
        options = {
            "INFERENCE_NUM_THREADS": self.num_threads,
            "ENABLE_HYPER_THREADING": True,  # as many threads as the others get
            "ENABLE_CPU_PINNING": False,  # the cores are shared with the others
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        model = openvino.Model([result], [parameter], "norm")
        request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
        y = np.empty_like(x)
        request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
        request.set_output_tensor(openvino.Tensor(y, shared_memory=True))

        def call() -> Array:
            request.infer(share_outputs=True)
            return y

        return call


def import_openvino() -> Any:
    """The package without its model converter, which forks and reports home when imported."""
    converter = "openvino.tools.ovc"
    blocked = converter not in sys.modules
    if blocked:
        sys.modules[converter] = None  # type: ignore[assignment]
    try:
        import openvino
        import openvino.opset13
    finally:
        if blocked:
            del sys.modules[converter]
    return openvino
