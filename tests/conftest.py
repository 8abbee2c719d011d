"""The implementations that every test of the interface runs against; what no oracle can judge."""

import pytest
from norms import NORMS, Norm

import lnfast
import lnfast.reference
from lnfast.check.oracle import NoOracle


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that needs the oracle is skipped, by name, where there is none."""
    try:
        return (yield)
    except NoOracle as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["compiled", "reference"])
def implementation(request):
    """lnfast itself, and the definition in NumPy: the same calls, the same answers and errors."""
    return {"compiled": lnfast, "reference": lnfast.reference}[request.param]


@pytest.fixture(params=NORMS)
def norm(request, implementation):
    """layer_norm and rms_norm of each implementation."""
    return Norm(request.param, implementation)
