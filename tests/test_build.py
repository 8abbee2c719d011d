"""What was built: no instruction above the baseline but in the functions made for it.

Also the version, config(), and the error of an unbuilt tree.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys

import pytest

import lnfast
from lnfast import _api

# 32- and 64-byte registers, mask registers, and the three-operand forms of AVX
BEYOND_BASELINE = re.compile(r"%[yz]mm|%k[0-7]\b|\tv[a-z]+[0-9a-z]*\s+\S*%xmm")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(not lnfast.config()["isa_available"][-1:] == ["baseline"], reason="not x86-64")
def test_no_instruction_above_the_baseline_outside_its_objects():
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-l", _api.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    beyond = {}
    name = ""
    for line in listing.splitlines():
        if line.endswith(">:"):
            name = line.split("<")[1][:-2]
        elif BEYOND_BASELINE.search(line):
            beyond.setdefault(name, line)
    made_for_it = re.compile(r"_(avx2|avx512)(\.|$)")
    assert any("_avx512" in n for n in beyond) and any("_avx2" in n for n in beyond)
    strays = {n: line for n, line in beyond.items() if not made_for_it.search(n)}
    assert not strays


def test_version():
    assert lnfast.__version__ == importlib.metadata.version("lnfast") == lnfast.config()["version"]


def test_config_is_complete():
    config = lnfast.config()
    assert sorted(config) == [
        "compiler",
        "isa",
        "isa_available",
        "num_threads",
        "openmp",
        "version",
    ]
    assert config["isa"] in config["isa_available"]
    assert re.search(r"gcc|clang", config["compiler"], re.IGNORECASE)
    assert config["num_threads"] == lnfast.get_num_threads() >= 1
    assert config["openmp"] or config["num_threads"] == 1


def test_show_config(capsys):
    lnfast.show_config()
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["version"] == lnfast.__version__ and lines["isa"] == lnfast.config()["isa"]


def test_import_from_the_source_tree(tmp_path):
    """The folder `lnfast` without its extension says what to do, and hides no other error."""
    package = tmp_path / "lnfast"
    shutil.copytree(
        lnfast.__path__[0], package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    done = subprocess.run(
        [sys.executable, "-c", "import lnfast"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "Run `pip install .` in it" in done.stderr
