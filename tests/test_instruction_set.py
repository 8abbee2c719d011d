"""LNFAST_ISA chooses the instruction set at import; a name that is none says which there are."""

import pytest
from runs import fresh_python, in_fresh_python

import lnfast

SHOW = "import lnfast; print(lnfast.config()['isa'])"
AVAILABLE = lnfast.config()["isa_available"]


@pytest.mark.parametrize("isa", AVAILABLE)
def test_chosen(isa):
    assert in_fresh_python(SHOW, LNFAST_ISA=isa) == isa


@pytest.mark.parametrize("variable", ["", None])
def test_the_best_by_default(variable):
    assert in_fresh_python(SHOW, LNFAST_ISA=variable) == AVAILABLE[0]


@pytest.mark.parametrize("name", ["mmx", "AVX2", "avx2 "])
def test_unknown(name):
    done = fresh_python(SHOW, LNFAST_ISA=name)
    assert done.returncode == 1
    wanted = f"ImportError: LNFAST_ISA={name!r} is not one of {', '.join(AVAILABLE)}\n"
    assert done.stderr.endswith(wanted)
