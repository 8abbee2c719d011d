"""How to compile lnfast: one extension, Cython over C. Metadata stand in pyproject.toml."""

import os
import platform
import subprocess
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

C_SOURCES = ["src/dispatch.c", *sorted(str(p) for p in Path("src/rows").glob("*.c"))]
HEADERS = sorted(str(p) for p in Path("src").rglob("*.[hp]*") if p.suffix in (".h", ".pxd"))

# Strict IEEE arithmetic, no contraction: the same bits from every compiler and instruction set.
# Instruction sets beyond the baseline are opened in the sources that need them. No -g, which is
# among Python's own flags: a third of a build's time (LNFAST_CFLAGS=-g for a debugger).
STRICT = ["-O3", "-g0", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

# Flags after those, which they may take back (.ci/sanitize: less optimisation, sanitizers).
MORE = os.environ.get("LNFAST_CFLAGS", "").split()

PROBE = """
#include <omp.h>
int main(void) {
    int n = 0;
    #pragma omp parallel reduction(+ : n)
    n += 1;
    return n < 1 || omp_get_max_threads() < 1;
}
"""


class BuildExt(build_ext):
    """Adds OpenMP where the compiler in use can compile and link it."""

    def build_extensions(self):
        self.force = True  # what lies in build/ may be another compiler's, or have other flags
        flag = self.openmp_flag()
        for extension in self.extensions:
            extension.extra_compile_args += [*STRICT, *flag, *MORE]
            extension.extra_link_args += [*flag, *MORE]
        self.compile_side_by_side()
        super().build_extensions()

    def compile_side_by_side(self):
        """A compiler on each processor: setuptools compiles one source after the other."""
        one_after_the_other = self.compiler.compile

        def compile_all(sources, *args, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda s: one_after_the_other([s], *args, **options), sources)
                return [name for each in objects for name in each]

        self.compiler.compile = compile_all

    def openmp_flag(self):
        if os.environ.get("LNFAST_OPENMP", "1") == "0":
            return []
        flag = ["-fopenmp"]
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            try:
                objects = self.compiler.compile([str(source)], folder, extra_postargs=flag)
                self.compiler.link_executable(
                    objects, str(Path(folder, "probe")), extra_postargs=flag
                )
                subprocess.run([str(Path(folder, "probe"))], check=True)
                return flag
            except Exception as error:  # whatever the compiler answers, the build goes on without
                warnings.warn(f"no OpenMP ({error}): lnfast will work on one thread", stacklevel=1)
                return []


if platform.system() == "Windows":
    raise SystemExit("lnfast needs gcc or clang")

extension = Extension(
    "lnfast._api",
    ["lnfast/_api.pyx", *C_SOURCES],
    include_dirs=["src", numpy.get_include()],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_22_API_VERSION")],
    libraries=["m"],  # fma, exact by definition, where the processor has none
    depends=HEADERS,
)
setup(
    ext_modules=cythonize([extension], include_path=["src"], build_dir="build"),
    cmdclass={"build_ext": BuildExt},
)
