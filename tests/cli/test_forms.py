"""`--json-schema`, `--regex` and `--lark`: the form of an answer on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}'
OPEN = '{"type": "array", "items": {"const": 1}, "minItems": 100}'


@pytest.mark.parametrize("raw", [(), ("--raw",)])
@pytest.mark.parametrize(
    ("option", "form", "said"),
    [("--regex", "(yes|no)", ("yes", "no")), ("--lark", 'start: "a" /[bc]/', ("ab", "ac"))],
)
def test_an_answer_has_its_form(invoke, tiny_path: Path, tmp_path: Path, option, form, said, raw) -> None:
    result = invoke("run", tiny_path, "-p", "hello", option, form, *raw)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.removesuffix("\n") in said
    file = tmp_path / "form.txt"
    file.write_text(form + "\n", "utf-8")
    assert invoke("run", tiny_path, "-p", "hello", option, f"@{file}", *raw).stdout == result.stdout


def test_the_object_tells_whether_it_is_whole(invoke, tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(SCHEMA, "utf-8")
    result = invoke("run", tiny_path, "-p", "hello", "--json-schema", f"@{file}", "--json", "-n", 300)
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["satisfied"], answer["finish_reason"]) == (True, "stop")
    assert isinstance(json.loads(answer["text"])["n"], int)
    assert json.loads(invoke("run", tiny_path, "-p", "hello", "-n", 2, "--json").stdout)["satisfied"] is None


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_what_is_cut_off_is_printed_and_exits_10(invoke, tiny_path: Path, as_json, raw) -> None:
    result = invoke("run", tiny_path, "-p", "hello", "--json-schema", OPEN, "-n", 8, *as_json, *raw)
    assert result.exit_code == 10
    text = json.loads(result.stdout)["text"] if as_json else result.stdout
    assert text.startswith("[1")
    assert "error: the answer ran out of tokens after 8, before it was whole" in result.stderr
    assert "max_tokens" in result.stderr
    assert "warning" not in result.stderr


def test_every_answer_of_a_chat_has_the_form(invoke, tiny_path: Path) -> None:
    result = invoke("chat", tiny_path, "--regex", "yes|no", input="one\ntwo\n")
    assert result.exit_code == 0, result.stderr
    assert set(result.stdout.split()) <= {"yes", "no"}
    assert len(result.stdout.split()) == 2
    cut = invoke("chat", tiny_path, "--json-schema", OPEN, "-n", 8, input="one\ntwo\n")
    assert cut.exit_code == 10
    assert "before it was whole" in cut.stderr


@pytest.mark.parametrize("verb", ["run", "chat"])
@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("--regex", "a", "--lark", "start: a"), 2, "--regex and --lark: got 'both', expected one of them"),
        (("--json-schema", "true", "--regex", "a", "--lark", "b"), 2, "--json-schema and --regex and --lark"),
        (("--regex", "@/no/such/file"), 2, "--regex: got '@/no/such/file', expected a text file in UTF-8 ([Errno 2]"),
        (("--lark", "@"), 2, "--lark: got '@', expected a text file"),
        (("--json-schema", "{not json"), 2, "it is no JSON"),
        (("--json-schema", '{"type": "strin"}'), 2, "type"),
        (("--regex", "foo**("), 2, "error"),
        (("--lark", "no rules here"), 2, "error"),
    ],
)
def test_forms_that_cannot_be(
    invoke, tiny_path: Path, verb: str, words: tuple[str, ...], code: int, named: str
) -> None:
    result = invoke(verb, tiny_path, *words, input="hello\n")
    assert result.exit_code == code
    assert named in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_an_empty_file_is_no_form(invoke, tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    result = invoke("run", tiny_path, "-p", "x", "--json-schema", f"@{file}")
    assert result.exit_code == 2
    assert "this one is empty" in result.stderr
    file.write_bytes(b"\xff")
    assert "UTF-8" in invoke("run", tiny_path, "-p", "x", "--json-schema", f"@{file}").stderr
