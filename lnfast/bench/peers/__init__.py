"""The implementations that lnfast is measured against, all behind one signature.

A peer prepares a call from NumPy arrays and hands it back; the call takes no arguments and does the
whole work. Only the call is timed. To add a peer, write its class and enter it here. Either norm is
over the last axis: weight and bias have one axis.
"""

from lnfast.bench.peers.c_loops import CCopy, CLoops, CStreamingCopy
from lnfast.bench.peers.jax_jit import Jax
from lnfast.bench.peers.numba_kernels import Numba
from lnfast.bench.peers.numpy_formula import NumPyCopy, NumPyFormula
from lnfast.bench.peers.onnx_runtime import OnnxRuntime
from lnfast.bench.peers.openvino_model import OpenVino
from lnfast.bench.peers.ours import LnFast, LnFastRefilling
from lnfast.bench.peers.peer import Array, Call, Peer
from lnfast.bench.peers.pytorch import PyTorch, PyTorchCopy, TorchCompile

__all__ = ["COPIES", "PEERS", "REFILLING", "Array", "Call", "Peer"]

# Who computes the norms, in the order of the table's columns: lnfast, libraries, hand-written
# code. --peers takes the names in lower case and without spaces.
PEERS: dict[str, Peer] = {
    peer.name.lower().replace(" ", ""): peer
    for peer in (
        *(LnFast(), PyTorch(), TorchCompile(), OnnxRuntime(), OpenVino(), Jax()),
        *(Numba(), NumPyFormula(), CLoops()),
    )
}

# lnfast as it is measured against the peers that refill their output.
REFILLING = LnFastRefilling()

# Who moves the same bytes and computes nothing. The best of them in a cell is its floor.
COPIES: tuple[Peer, ...] = (NumPyCopy(), PyTorchCopy(), CCopy(), CStreamingCopy())
