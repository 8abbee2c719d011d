"""OpenVINO: layer norm as it compiles it from a model, between buffers bound once."""

import sys
from typing import Any

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer


class OpenVino(Peer):
    """MVN, weight and bias; y lands in the same buffer at every call.

    There is no backward pass, and no float64: it would be computed in float32.
    """

    name, module, package = "OpenVINO", "openvino", "openvino"
    is_library = refills = True

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call | None:
        if x.dtype != np.float32:
            return None
        openvino = import_openvino()
        ops = openvino.opset13
        parameter = ops.parameter(x.shape, np.float32)
        xhat = ops.mvn(parameter, np.array([-1]), True, eps, "inside_sqrt")
        result = ops.add(ops.multiply(xhat, ops.constant(weight)), ops.constant(bias))
        options = {
            "INFERENCE_NUM_THREADS": self.num_threads,
            "ENABLE_HYPER_THREADING": True,  # as many threads as the others get
            "ENABLE_CPU_PINNING": False,  # the cores are shared with the others
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        model = openvino.Model([result], [parameter], "layer_norm")
        request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
        y = np.empty_like(x)
        request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
        request.set_output_tensor(openvino.Tensor(y, shared_memory=True))

        def call() -> Array:
            request.infer(share_outputs=True)
            return y

        return call

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> None:
        return None


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
