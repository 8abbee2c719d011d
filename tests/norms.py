"""The norms, for tests of what both promise: what each is called, takes, keeps and gives."""

import lnfast

# Record, layer and parameters of each.
NORMS = {
    "layer_norm": (lnfast.LayerNormCache, lnfast.LayerNorm, ("weight", "bias")),
    "rms_norm": (lnfast.RMSNormCache, lnfast.RMSNorm, ("weight",)),
}
FUNCTIONS = [name + kind for name in NORMS for kind in ("", "_forward", "_backward")]


class Norm:
    """One of them, in lnfast or lnfast.reference: its three functions under the same names."""

    def __init__(self, name, implementation=lnfast):
        self.name = name
        self.record, self.layer, self.parameters = NORMS[name]
        self.normalize = getattr(implementation, name)
        self.forward = getattr(implementation, f"{name}_forward")
        self.backward = getattr(implementation, f"{name}_backward")
        self.fields = self.record._fields[:-2]  # axis and mask may be left out
        self.statistics = self.fields[3:]
        self.centred = "mean" in self.statistics
        self.gradients = ("dx", *(f"d{parameter}" for parameter in self.parameters))

    def parameters_of(self, weight, bias):
        """As arguments: those that this norm has."""
        return (weight, bias)[: len(self.parameters)]

    def record_of(self, **fields):
        """Its record, of these fields and perhaps some that it does not have."""
        return self.record(*(fields[name] for name in self.fields))


def norm_of(function, implementation=lnfast):
    """The norm that one of FUNCTIONS belongs to."""
    return Norm(function.removesuffix("_forward").removesuffix("_backward"), implementation)
