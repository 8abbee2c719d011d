"""A compiler for tests/mutants.py: each preprocessed text is compiled once.

A mutant differs from the sources as they are in a few of its nine objects. This is what CC is to
setup.py: it asks the real compiler (MUTANTS_CC, else gcc) for the preprocessed text, and keeps the
object under that text's hash in the folder MUTANTS_OBJECTS. MUTANTS_OPTIMIZE stands in for -O3, and
there is no -g: together a quarter of the time.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path


def compile_once(arguments: list[str], objects: Path, optimize: str) -> int:
    """Run the compiler, or copy what it made of the same text by the same flags; its exit code."""
    compiler = shlex.split(os.environ.get("MUTANTS_CC", "gcc"))
    arguments = [optimize if a == "-O3" else a for a in arguments if a != "-g"]
    if "-c" not in arguments:
        return subprocess.run([*compiler, *arguments]).returncode
    at = arguments.index("-o")
    out, rest = arguments[at + 1], arguments[:at] + arguments[at + 2 :]
    flags = [argument for argument in rest if not argument.endswith(".c")]
    text = subprocess.run([*compiler, "-E", "-P", *rest], stdout=subprocess.PIPE)
    if text.returncode:
        return text.returncode
    key = hashlib.sha256(text.stdout + repr([compiler, flags]).encode()).hexdigest()
    kept = objects / key
    if not kept.exists():
        done = subprocess.run([*compiler, *rest, "-o", out])
        if done.returncode:
            return done.returncode
        fresh = objects / f"{key}.{os.getpid()}"
        shutil.copyfile(out, fresh)
        fresh.replace(kept)
    shutil.copyfile(kept, out)
    return 0


if __name__ == "__main__":
    objects, optimize = Path(os.environ["MUTANTS_OBJECTS"]), os.environ["MUTANTS_OPTIMIZE"]
    sys.exit(compile_once(sys.argv[1:], objects, optimize))
