"""Stop strings against a brute-force search of the whole text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.engine.stops import StopStrings

LETTERS = st.sampled_from("abé")


def earliest(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, of equals the longest; and that string."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def feed(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    watcher = StopStrings(stops)
    released = seen = ""
    for piece in pieces:
        seen += piece
        text, stop = watcher.push(piece)
        released += text
        if stop is not None:
            return released, stop
        # held back is exactly the longest end of the text that a stop string begins with
        begun = [n for stop in stops for n in range(1, len(stop)) if seen.endswith(stop[:n])]
        assert len(seen) - len(released) == max(begun, default=0)
    return released + watcher.flush(), None


@settings(max_examples=1000)
@given(
    st.lists(st.text(LETTERS, max_size=4), max_size=12),
    st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_against_brute_force(pieces: list[str], stops: list[str]) -> None:
    assert feed(pieces, stops) == earliest("".join(pieces), stops)


def test_text_is_released_as_soon_as_it_is_certain() -> None:
    watcher = StopStrings(["abc"])
    assert watcher.push("xab") == ("x", None)
    assert watcher.push("ab") == ("ab", None)
    assert watcher.push("c!") == ("", "abc")


def test_nothing_is_held_without_reason() -> None:
    watcher = StopStrings(["END"])
    assert watcher.push("hello") == ("hello", None)
    assert watcher.flush() == ""


def test_many_long_stops_cost_little() -> None:
    watcher = StopStrings(["a" * 4096 + letter for letter in "bcdefghij"])
    assert watcher.push("a" * 10_000) == ("a" * (10_000 - 4096), None)
    assert watcher.push("b") == ("", "a" * 4096 + "b")
