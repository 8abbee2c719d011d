"""ONNX Runtime: its LayerNormalization, between buffers bound once."""

from importlib.util import find_spec

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer

OPSET, IR_VERSION = 17, 8  # the first with LayerNormalization: any release since 1.12 reads them
ERRORS_ONLY = 3


class OnnxRuntime(Peer):
    """A model of one node; y lands in the same buffer at every call. There is no backward pass."""

    name, module, package = "ONNX Runtime", "onnxruntime", "onnxruntime"
    is_library = refills = True

    def missing(self, num_threads: int | None = None) -> str | None:
        if reason := super().missing(num_threads):
            return reason
        return None if find_spec("onnx") else "onnx, which builds its model, is not installed"

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        session = onnxruntime.InferenceSession(
            build_model(x, weight, bias, eps), options, ["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        y = np.empty_like(x)
        binding.bind_output("y", "cpu", 0, x.dtype, x.shape, y.ctypes.data)

        def call() -> Array:
            session.run_with_iobinding(binding)
            return y

        return call

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> None:
        return None


def build_model(x: Array, weight: Array, bias: Array, eps: float) -> bytes:
    """y = LayerNormalization(x), weight and bias as constants of the model."""
    from onnx import helper, numpy_helper

    real = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(
        "LayerNormalization", ["x", "weight", "bias"], ["y"], axis=-1, epsilon=eps
    )
    graph = helper.make_graph(
        [node],
        "layer_norm",
        [helper.make_tensor_value_info("x", real, x.shape)],
        [helper.make_tensor_value_info("y", real, x.shape)],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return bytes(model.SerializeToString())
