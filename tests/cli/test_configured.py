"""Options of `fucina serve` from flags, the environment and a file: all of them, and which one wins."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fucina.cli import serve as verb

#: option -> (as text, what arrives). Texts in the environment and in the file are the same, but for flags and lists.
OPTIONS: dict[str, tuple[str, Any]] = {
    "model": ("some.gguf", "some.gguf"),
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("9000", 9000),
    "alias": ("one two", ("one", "two")),
    "api_key": ("first-secret second-secret", ("first-secret", "second-secret")),
    "cors": ("https://a.example *", ("https://a.example", "*")),
    "host_name": ("a.example b.example", ("a.example", "b.example")),
    "parallel": ("3", 3),
    "queue": ("5", 5),
    "max_body": ("2M", 2 << 20),
    "deadline": ("7.5", 7.5),
    "drain": ("2.5", 2.5),
    "temp": ("0.25", 0.25),
    "top_k": ("11", 11),
    "top_p": ("0.5", 0.5),
    "min_p": ("0.125", 0.125),
    "spec": ("false", False),
    "threads": ("1", 1),
    "tier": ("scalar", "scalar"),
    "backend": ("reference", "reference"),
    "context": ("256", 256),
    "kv_format": ("q8_0", "q8_0"),
    "prefill_chunk": ("32", 32),
    "repack": ("false", False),
    "kv_memory": ("64M", "64M"),
    "kv_cache_dir": ("some/folder", Path("some/folder")),
    "kv_disk": ("1G", "1G"),
    "moe_stream": ("true", True),
    "moe_cache": ("32M", "32M"),
    "moe_pin": ("8M", "8M"),
    "moe_learn": ("false", False),
    "moe_pilot": ("true", True),
    "moe_expert_top_p": ("0.75", 0.75),
}
#: Tested for what they do, below and in test_serve.py.
OTHERS = {"config", "api_key_file", "log_format"}
LISTS = {"alias", "api_key", "cors", "host_name"}
FLAGS = {"spec", "repack", "moe_stream", "moe_learn", "moe_pilot"}


@pytest.fixture
def given(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run the verb as far as its options: what arrived, or the failure's text under 'failure'."""
    arrived: dict[str, Any] = {}

    def take(word: str, aliases: list[str], served: Any, given: dict[str, Any], show: object) -> None:
        del show
        arrived.update(model=word, alias=tuple(aliases), host=served.host, port=served.port, api_key=served.api_keys)
        arrived.update(cors=served.origins, host_name=served.hosts, parallel=served.parallel, queue=served.queue)
        arrived.update(max_body=served.max_body, deadline=served.deadline_s, drain=served.drain_s)
        defaults = served.defaults
        arrived.update(temp=defaults.temperature, top_k=defaults.top_k, top_p=defaults.top_p, min_p=defaults.min_p)
        arrived.update(given, spec=given["speculation"])

    monkeypatch.setattr(verb, "_serve", take)
    monkeypatch.setattr(verb, "set_up_logs", lambda form: arrived.update(log_format=form))

    def run(*words: object) -> dict[str, Any]:
        arrived.clear()
        result = invoke("serve", *words, env={"COLUMNS": "400"})
        return dict(arrived) if result.exit_code == 0 else {"failure": result.stderr, "code": result.exit_code}

    return run


def toml(name: str, text: str) -> str:
    """A line of the file."""
    value = text if name in FLAGS else json.dumps(text.split() if name in LISTS else text)
    return f"{name.replace('_', '-')} = {value}\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "server.toml"
    file.write_text(text, "utf-8")
    return file


def test_the_table_has_every_option() -> None:
    assert OPTIONS.keys() | OTHERS == inspect.signature(verb.command).parameters.keys()


def test_every_option_may_stand_in_the_environment(
    given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (text, _) in OPTIONS.items():
        monkeypatch.setenv(f"FUCINA_SERVE_{name.upper()}", text)
    arrived = given()
    assert {name: arrived[name] for name in OPTIONS} == {name: value for name, (_, value) in OPTIONS.items()}


def test_every_option_may_stand_in_a_file(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path, "[serve]\n" + "".join(toml(name, text) for name, (text, _) in OPTIONS.items()))
    arrived = given("--config", file)
    assert {name: arrived[name] for name in OPTIONS} == {name: value for name, (_, value) in OPTIONS.items()}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    given: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, '[serve]\nmodel = "of-file"\nport = 1\nqueue = 2\nparallel = 3\nspec = false\n')
    monkeypatch.setenv("FUCINA_SERVE_CONFIG", str(file))
    monkeypatch.setenv("FUCINA_SERVE_PORT", "11")
    monkeypatch.setenv("FUCINA_SERVE_QUEUE", "12")
    arrived = given("of-flag", "--port", 21, "--spec")
    assert [arrived[name] for name in ("model", "port", "queue", "parallel", "spec")] == ["of-flag", 21, 12, 3, True]
    assert arrived["deadline"] == 3600.0
    monkeypatch.setenv("FUCINA_SERVE_PORT", "")  # as good as not there
    assert given()["port"] == 1


def test_numbers_of_a_file_may_be_numbers(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path, '[serve]\nmodel = "m"\nport = 9\ntemp = 1\ndrain = 0.5\nlog-format = "json"\n')
    arrived = given("--config", file)
    assert [arrived[name] for name in ("port", "temp", "drain", "log_format")] == [9, 1.0, 0.5, "json"]


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[serve]\nprot = 9\n", "[serve] prot", "'port'"),
        ("[serve]\nkv_memory = '4G'\n", "[serve] kv_memory", "'kv-memory'"),
        ("[serve]\nconfig = 'other.toml'\n", "[serve] config", "option"),
        ("[server]\nport = 9\n", "server", "[serve]"),
        ("port = 9\n", "port", "[serve]"),
        ("serve = 9\n", "serve", "[serve]"),
        ("[serve]\nport = 'x'\n", "[serve] port", "integer"),
        ("[serve]\nport = true\n", "[serve] port", "number"),
        ("[serve]\nport = [9]\n", "[serve] port", "number"),
        ("[serve]\nport = 99999\n", "[serve] port", "65535"),
        ("[serve]\nspec = 'no'\n", "[serve] spec", "true or false"),
        ("[serve]\napi-key = 'first-secret'\n", "[serve] api-key", "array"),
        ("[serve]\napi-key = [17]\n", "[serve] api-key", "array"),
        ("[serve]\napi-key = ['short']\n", "[serve] api-key", "8 printable"),
        ("[serve]\nkv-format = 'f8'\n", "[serve] kv-format", "q8_0"),
        ("[serve]\nmax-body = 'much'\n", "[serve] max-body", "KiB"),
        ("[serve]\ndrain = -1\n", "[serve] drain", "more than 0"),
        ("[serve\n", "--config", "TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    given: Callable[..., dict[str, Any]], tmp_path: Path, text: str, key: str, hint: str
) -> None:
    file = write(tmp_path, text)
    outcome = given("m", "--config", file)
    assert outcome["code"] == 2
    assert str(file) in outcome["failure"]
    assert key in outcome["failure"]
    assert hint in outcome["failure"]
    assert "first-secret" not in outcome["failure"]


def test_a_file_that_is_not_there(given: Callable[..., dict[str, Any]]) -> None:
    outcome = given("m", "--config", "nowhere.toml")
    assert (outcome["code"], "nowhere.toml" in outcome["failure"]) == (2, True)


@pytest.mark.parametrize(("name", "text"), [("PORT", "x"), ("KV_FORMAT", "f8"), ("DRAIN", "-1"), ("QUEUE", "-1")])
def test_what_is_wrong_in_the_environment_is_named(
    given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"FUCINA_SERVE_{name}", text)
    outcome = given("m")
    assert (outcome["code"], f"FUCINA_SERVE_{name}" in outcome["failure"]) == (2, True)


def test_what_is_wrong_in_a_flag_is_named(given: Callable[..., dict[str, Any]]) -> None:
    assert "--drain" in given("m", "--drain", -1)["failure"]
    assert "--api-key" in given("m", "--api-key", "short")["failure"]


def test_keys_from_a_file(
    given: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-secret\n\n  second-secret\n", "utf-8")
    assert given("m", "--api-key-file", keys)["api_key"] == ("first-secret", "second-secret")
    monkeypatch.setenv("FUCINA_SERVE_API_KEY_FILE", str(keys))
    assert given("m", "--api-key", "third-secret")["api_key"] == ("third-secret", "first-secret", "second-secret")
    for text in ("", "\n \n"):  # must not open the server to everybody
        keys.write_text(text, "utf-8")
        outcome = given("m")
        assert (outcome["code"], str(keys) in outcome["failure"]) == (2, True)
    keys.write_text("short\n", "utf-8")
    outcome = given("m")
    assert outcome["code"] == 2
    assert "short\n" not in outcome["failure"]


def test_no_model_at_all(given: Callable[..., dict[str, Any]]) -> None:
    outcome = given()
    assert (outcome["code"], "MODEL" in outcome["failure"]) == (2, True)
