"""The house keeps its own rules: bands, sizes, tables that agree with folders, a door that opens fast."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fucina
from fucina import errors
from fucina.cli.exits import EXIT_CODES, exit_code
from fucina.cli.main import VERBS
from fucina.errors import ConfigError, FucinaError
from fucina.models.registry import FAMILIES

PACKAGE = Path(fucina.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


def subclasses(cls: type[FucinaError]) -> set[type[FucinaError]]:
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


ALL_ERRORS = {cls for cls in subclasses(FucinaError) if cls.__module__ == "fucina.errors"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_bands_cycles_and_sizes() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_house.py", PACKAGE], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert "0 broken rules" in ran.stdout


def test_import_is_light() -> None:
    out = run_python(
        "import sys, time; start = time.perf_counter(); import fucina; print(time.perf_counter() - start);"
        "print('numpy' in sys.modules)"
    )
    seconds, numpy_loaded = out.split()
    print(f"import fucina: {float(seconds) * 1000:.0f} ms")
    assert numpy_loaded == "False"


def test_command_line_help_needs_no_numpy() -> None:
    out = run_python(
        "import sys\n"
        "from fucina.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: print('numpy' in sys.modules)"
    )
    assert out.splitlines()[-1] == "False"
    assert all(verb in out for verb in VERBS)


def test_public_names_are_sorted_there_and_explained() -> None:
    assert list(fucina.__all__) == sorted(fucina.__all__)
    assert {cls.__name__ for cls in ALL_ERRORS} <= set(fucina.__all__)
    for name in fucina.__all__:
        assert getattr(fucina, name).__doc__ or name.startswith("__")


def test_unknown_public_name_is_an_attribute_error() -> None:
    assert not set(dir(fucina)).isdisjoint(fucina.__all__)
    try:
        fucina.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("fucina.no_such_name exists")


def test_every_error_has_an_exit_code_and_is_exported() -> None:
    assert set(EXIT_CODES) == ALL_ERRORS
    assert set(errors.__all__) == {cls.__name__ for cls in ALL_ERRORS}
    assert all(1 <= code < 128 for code in EXIT_CODES.values())


def test_a_class_outside_the_table_takes_its_ancestors_code() -> None:
    class Odd(ConfigError):
        pass

    assert exit_code(Odd("x", got=1, expected="2")) == EXIT_CODES[ConfigError]


def test_the_drawn_error_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path = ["FucinaError"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"([│├└─ ]+)(\w+)  ", line):
            depth = len(found[1]) // 4
            drawn[found[2]] = path[depth - 1]
            path[depth:] = [found[2]]
    assert drawn == {cls.__name__: cls.__base__.__name__ for cls in ALL_ERRORS - {FucinaError}}


def test_registry_and_folder_of_families_agree() -> None:
    modules = {describe.__module__.rpartition(".")[2] for describe in FAMILIES.values()}
    assert modules == {p.stem for p in (PACKAGE / "models" / "families").glob("[a-z]*.py")}


def test_table_and_folder_of_verbs_agree() -> None:
    files = {p.stem for p in (PACKAGE / "cli").glob("*.py") if "app = typer.Typer(" in p.read_text("utf-8")}
    assert {f"fucina.cli.{stem}" for stem in files - {"main"}} == {module for module, _ in VERBS.values()}


@pytest.mark.parametrize("verb", ["run", "chat", "bench"])
def test_options_have_the_defaults_of_the_python_door(verb: str) -> None:
    """But for --max-tokens of `run`: nobody may be there to stop it."""
    options = inspect.signature(importlib.import_module(VERBS[verb][0]).command).parameters
    load = inspect.signature(fucina.load).parameters
    fields = {field.name: field.default for field in dataclasses.fields(fucina.SamplingParams)}
    fields["temp"] = fields.pop("temperature")
    for name, option in options.items():
        if name in load and name != "model":
            assert option.default == load[name].default, name
        elif name in fields and (verb, name) != ("run", "max_tokens"):
            assert (option.default or fields[name]) == fields[name], name


def test_every_environment_variable_is_documented() -> None:
    variables = set(re.findall(r"FUCINA_[A-Z_]+", (PACKAGE / "core" / "settings.py").read_text("utf-8")))
    page = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    # those of `fucina serve` are its options', of which the page and the guide name some
    pages = page + (ROOT / "docs" / "guides" / "server.md").read_text("utf-8")
    options = inspect.signature(importlib.import_module(VERBS["serve"][0]).command).parameters
    assert set(re.findall(r"FUCINA_SERVE_([A-Z_]+)", pages)) <= {name.upper() for name in options}
    assert variables == set(re.findall(r"FUCINA_(?!SERVE_)[A-Z_]+", page))
