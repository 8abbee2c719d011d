"""ONNX Runtime: its own operators for the norms, between buffers bound once."""

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
        return self._call("LayerNormalization", eps, x, weight=weight, bias=bias)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> None:
        return None

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        # What its own optimiser makes of RMSNorm; the standard's operator asks for opset 23.
        return self._call("SimplifiedLayerNormalization", eps, x, weight=weight)

    def _call(self, operator: str, eps: float, x: Array, **parameters: Array) -> Call:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        session = onnxruntime.InferenceSession(
            build_model(operator, eps, x, parameters), options, ["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        y = np.empty_like(x)
        binding.bind_output("y", "cpu", 0, x.dtype, x.shape, y.ctypes.data)

        def call() -> Array:
            session.run_with_iobinding(binding)
            return y

        return call


def build_model(operator: str, eps: float, x: Array, parameters: dict[str, Array]) -> bytes:
    """y = operator(x, *parameters), the parameters as constants of the model."""
    from onnx import helper, numpy_helper

    real = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(operator, ["x", *parameters], ["y"], axis=-1, epsilon=eps)
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_tensor_value_info("x", real, x.shape)],
        [helper.make_tensor_value_info("y", real, x.shape)],
        [numpy_helper.from_array(array, name) for name, array in parameters.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return bytes(model.SerializeToString())
