"""The pages tell the truth: their code runs, and the files they name are there.

Every block of README.md and of the pages below docs/ runs, from top to bottom, in one namespace for
a page:

    ```python             runs; with prompts its output is compared
    ```pycon              its output is compared
    ```console, ```bash   each `lnfast …` runs; in console what follows a `$ ` line is compared

`...` stands for any output. A block in another language is only shown, and must be one of SHOWN.
In front of a block `<!-- skip: next missing("torch") -->` leaves it out, by name, where that
package is not installed; `skip: start missing("torch")` and `skip: end` do so for all between them.
"""

import doctest
import importlib.util
import re
import subprocess
import sys
from glob import glob
from pathlib import Path

import pytest

import lnfast

MISSING = "the packages of the pages are missing: pip install '.[docs]'"
markdown_it = pytest.importorskip("markdown_it", reason=MISSING)
sybil = pytest.importorskip("sybil", reason=MISSING)
parsers = pytest.importorskip("sybil.parsers.myst", reason=MISSING)

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RUN = {"python", "pycon", "console", "bash"}
SHOWN = {"text", "c", "cython", "toml"}
DIRECTIVES = {"{eval-rst}", "{figure}", "{literalinclude}", "{note}", "{toctree}"}
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

COMMAND = re.compile(r"(\w+=\S+ )*lnfast( |$)")
PROMPT = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
FILE = re.compile(r"[\w./-]+\.(?:h|c|pxd|pyx|pyi|py|md|svg|toml|txt)\b(?!\w)")
OWN_KINDS = {".h", ".c", ".pxd", ".pyx", ".svg"}  # files of that kind are the project's own
DOCUMENTED = re.compile(r"^\.\. (?:auto)?(?:class|data|function|module):: (\S+)", re.MULTILINE)


class PromptParser(parsers.PythonCodeBlockParser):
    """```pycon"""

    @staticmethod
    def codeblock_parser_class(language, evaluator):
        return parsers.CodeBlockParser("pycon", evaluator)


def run_session(example):
    """What is wrong, if anything is; so do the two below."""
    if not example.parsed.startswith("$ "):
        return "a session begins with `$ `"
    return first_problem(PROMPT.findall(example.parsed))


def run_commands(example):
    return first_problem((command, "") for command in example.parsed.splitlines())


def first_problem(commands):
    """Of commands and what they must print, if anything is said of that."""
    for command, printed in commands:
        if not COMMAND.match(command):
            return f"only lnfast runs here: `{command}` belongs into ```text"
        done = subprocess.run(
            command, shell=True, capture_output=True, encoding="utf-8", timeout=60
        )
        if done.returncode or done.stderr:
            return f"{command}: exit code {done.returncode}\n{done.stderr}"
        if printed and not doctest.OutputChecker().check_output(printed, done.stdout, COMPARED):
            return f"{command}: expected\n{printed}\ngot\n{done.stdout}"
    return None


SYBIL = sybil.Sybil(
    [
        parsers.PythonCodeBlockParser(doctest_optionflags=COMPARED),
        PromptParser(doctest_optionflags=COMPARED),
        parsers.CodeBlockParser("console", run_session),
        parsers.CodeBlockParser("bash", run_commands),
        parsers.SkipParser(),
    ]
)


def missing(package):
    """Why a block is skipped; None where it is not."""
    if importlib.util.find_spec(package) is None:
        return f"{package} is missing"


def parse(page):
    document = SYBIL.parse(page)
    document.namespace["missing"] = missing
    return document


def name_of(page):
    return page.relative_to(ROOT).as_posix()


DOCUMENTS = {page: parse(page) for page in PAGES}
EXAMPLES = [
    pytest.param(example, id=f"{name_of(page)}:{example.line}")
    for page, document in DOCUMENTS.items()
    for example in document
]
of_each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where blocks write their files, and where `lnfast` is this Python's."""
    folder = tmp_path_factory.mktemp("pages")
    command = folder / "bin" / "lnfast"
    command.parent.mkdir()
    code = "import sys; from lnfast.cli import main; sys.exit(main())"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -P -c '{code}' \"$@\"\n")
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_block(example, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    example.evaluate()


@of_each_page
def test_every_block_is_known(page):
    """By another parser than the one that runs them: no block stays out unseen."""
    starts = [example.line for example in DOCUMENTS[page]]
    for block in markdown_it.MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if block.type != "fence":
            continue
        first, end = block.map  # from 0; the closing fence is the last
        language = block.info.partition(" ")[0]
        where = f"{name_of(page)}:{first + 1}"
        assert language in RUN | SHOWN | DIRECTIVES, f"{where}: nobody knows {language!r}"
        if language in RUN:
            assert any(first < start <= end for start in starts), f"{where} would not run"


@pytest.mark.parametrize("page", [*PAGES, *sorted(DOCS.rglob("*.svg"))], ids=name_of)
def test_files_that_are_named_exist(page):
    for name in FILE.findall(page.read_text(encoding="utf-8")):
        assert exists(name, page.parent), f"{name_of(page)} names {name}"


def exists(name, folder):
    """From the tree's root or the page's folder; a bare name anywhere. NAME in it is any name."""
    pattern = name.replace("NAME", "*")
    if "/" in name:
        return any(glob(str(place / pattern)) for place in (ROOT, folder))
    return Path(name).suffix not in OWN_KINDS or any(
        glob(f"**/{pattern}", root_dir=ROOT / part, recursive=True)
        for part in ("src", "lnfast", "tests", "docs")
    )


def test_api_is_complete():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = {name.removeprefix("lnfast.") for name in DOCUMENTED.findall(page)}
    assert set(lnfast.__all__) - documented == set()
