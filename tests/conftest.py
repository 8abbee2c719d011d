"""The implementations that every test of the interface runs against."""

import pytest

import lnfast
import lnfast.reference


@pytest.fixture(params=["compiled", "reference"])
def implementation(request):
    """lnfast itself, and the definition in NumPy: the same calls, the same answers and errors."""
    return {"compiled": lnfast, "reference": lnfast.reference}[request.param]
