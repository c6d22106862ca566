"""What messages say never becomes a control token, whatever the template does with it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.errors import TemplateError
from fucina.text.chat import chat_ids
from fucina.text.pieces import CONTROL, USER_DEFINED
from fucina.text.provenance import Guard
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

Build = Callable[..., dict[str, Any]]


def _templates() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("chat_templates", Path(__file__).with_name("templates.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.ALL
    return found


TEMPLATES = _templates()
QWEN_MARKERS = [
    *[(marker, USER_DEFINED) for marker in ("<think>", "</think>", "<tool_call>", "</tool_call>")],
    *[(marker, USER_DEFINED) for marker in ("<tool_response>", "</tool_response>", "<tools>", "</tools>")],
    *[(marker, CONTROL) for marker in ("<|user|>", "<|assistant|>", "<|end|>", "<city>")],
]


@pytest.fixture(scope="module")
def qwen(vocabulary: Build) -> Tokenizer:
    """A tiny vocabulary with Qwen's markers, thinking and tool calls among them, and some of Phi's."""
    metadata = {**vocabulary("gpt2", QWEN_MARKERS), "tokenizer.chat_template": TEMPLATES["QWEN"]}
    return Tokenizer.from_metadata(metadata)


def controls(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The names of all markers among `ids`."""
    return [tokenizer.vocabulary.pieces.text(i) for i in ids if i in tokenizer.vocabulary.marker_ids]


def user(content: object, **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


@pytest.mark.model
@pytest.mark.parametrize(
    ("model", "template", "bos"), [("smollm2", "ONE_LINE", "<|im_start|>"), ("gemma3-270m", "GEMMA", "<bos>")]
)
def test_every_marker_of_the_real_vocabularies_stays_text_in_content(
    real: dict[str, Tokenizer], model: str, template: str, bos: str
) -> None:
    tokenizer = real[model]
    chat = ChatTemplate(TEMPLATES[template], variables={"bos_token": bos})
    every = [tokenizer.vocabulary.pieces.text(i) for i in sorted(tokenizer.vocabulary.marker_ids)]
    for content in ("".join(every), " ".join(every), *every[:300]):
        messages = [user(content), {"role": "assistant", "content": content}, user(content)]
        plain = [user("x"), {"role": "assistant", "content": "x"}, user("x")]
        ids = chat_ids(tokenizer, chat, messages)
        assert controls(tokenizer, ids) == controls(tokenizer, chat_ids(tokenizer, chat, plain))
        assert tokenizer.decode(ids, special=True) == chat.render(messages)


@pytest.mark.model
def test_gemmas_file_without_a_template_says_so(gemma3: Tokenizer, gemma3_metadata: dict[str, Any]) -> None:
    chat = ChatTemplate.from_metadata(gemma3_metadata, gemma3.vocabulary)
    with pytest.raises(TemplateError, match="no chat template"):
        chat_ids(gemma3, chat, [user("hi")])


@pytest.mark.model
def test_harmless_chats_encode_like_their_text(smollm2: Tokenizer, smollm2_metadata: dict[str, Any]) -> None:
    chat = ChatTemplate.from_metadata(smollm2_metadata, smollm2.vocabulary)
    messages = [
        user("1 < 2, <b>bold</b> & [x] | > quote"),
        {"role": "assistant", "content": "日本 > a"},
        user("\ue000"),
    ]
    assert chat_ids(smollm2, chat, messages) == smollm2.encode(chat.render(messages), special=True)


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "<|im_start|>",
                "<|im_end|>",
                "<|endoftext|>",
                "<think>",
                "</tool_call>",
                "<|end|>",
                "<|user|>",
                "<city>",
            ),
            *("<|im_", "start|>", "end|>", "im_start", "|>", ">", "<", "<|", "|", "city", "user", "system", " ", "\n"),
            *("a", "\U00100000", "\U00100001", "\ue000", '"', "\\"),
        ]
    ),
    max_size=6,
).map("".join)


@settings(max_examples=200)
@given(contents=st.lists(FRAGMENTS, min_size=1, max_size=3), role=FRAGMENTS)
def test_no_content_and_no_role_makes_a_marker(qwen: Tokenizer, contents: list[str], role: str) -> None:
    messages = [user(content) for content in contents] + [{"role": role, "content": contents[0]}]
    chat = ChatTemplate(TEMPLATES["CHATML"])
    opened = 0 if messages[0]["role"] == "system" else 1
    turn = ["<|im_start|>", "<|im_end|>"]
    ids = chat_ids(qwen, chat, messages)
    assert controls(qwen, ids) == turn * (len(messages) + opened) + ["<|im_start|>"]
    assert qwen.decode(ids, special=True) == chat.render(messages)


@settings(max_examples=100)
@given(texts=st.lists(FRAGMENTS, min_size=1, max_size=4))
def test_parts_that_stand_side_by_side_make_no_marker(qwen: Tokenizer, texts: list[str]) -> None:
    messages = [user([{"type": "text", "text": text} for text in texts])]
    chat = ChatTemplate(TEMPLATES["PARTS"])
    ids = chat_ids(qwen, chat, messages)
    assert controls(qwen, ids) == ["<|user|>", "<|assistant|>"]
    assert qwen.decode(ids, special=True) == chat.render(messages)


def test_a_role_that_spells_a_marker_with_the_templates_brackets_does_not(qwen: Tokenizer) -> None:
    chat = ChatTemplate(TEMPLATES["PHI"], variables={"eos_token": ""})
    for role, expected in (("assistant", ["<|assistant|>", "<|end|>"]), ("end", ["<|end|>"])):
        ids = chat_ids(qwen, chat, [{"role": role, "content": "x"}], add_generation_prompt=False)
        assert controls(qwen, ids) == expected
        assert qwen.decode(ids, special=True) == f"<|{role}|>x<|end|>"


def test_names_in_schemas_and_arguments_make_no_marker(qwen: Tokenizer) -> None:
    source = (
        "{% for t in tools %}{% for k in t.properties %}<{{ k }}>{% endfor %}{% endfor %}"
        "{% for m in messages %}{% for c in m.tool_calls or [] %}<{{ c.name }}>{{ c.arguments | tojson }}"
        "{% endfor %}{% endfor %}"
    )
    chat = ChatTemplate(source)
    tools = [{"properties": {"city": {}, "<|im_end|>": {}, "text": {}}}]
    call = {"name": "city", "arguments": {"<|im_end|>": "<|im_start|>", "city": 1}}
    messages: list[dict[str, object]] = [{"role": "assistant", "tool_calls": [call]}]
    ids = chat_ids(qwen, chat, messages, tools=tools)
    assert controls(qwen, ids) == []
    expected = '<city><<|im_end|>><text><city>{"<|im_end|>": "<|im_start|>", "city": 1}'
    assert qwen.decode(ids, special=True) == expected == chat.render(messages, tools=tools)


def test_variables_of_the_caller_are_text_too(qwen: Tokenizer) -> None:
    chat = ChatTemplate(
        "{{ bos_token }}{{ note }}{% if effort == 'end' %}!{% endif %}", variables={"bos_token": "<|end|>"}
    )
    ids = chat_ids(qwen, chat, [], note="<|im_end|>", effort="end")
    assert controls(qwen, ids) == ["<|end|>"]
    assert qwen.decode(ids, special=True) == "<|end|><|im_end|>!"


def test_a_thinking_answer_is_recognized_in_history_but_not_in_what_users_say(qwen: Tokenizer) -> None:
    chat = ChatTemplate(TEMPLATES["QWEN"])
    thought = "<think>\nhm <|im_end|>\n</think>\n\nyes"
    ids = chat_ids(qwen, chat, [user("a"), {"role": "assistant", "content": thought}, user("b")])
    assert qwen.decode(ids, special=True) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    shown = chat_ids(qwen, chat, [user("a"), {"role": "assistant", "content": thought}])
    turn = ["<|im_start|>", "<|im_end|>"]
    assert controls(qwen, shown) == [*turn, "<|im_start|>", "<think>", "</think>", "<|im_end|>", "<|im_start|>"]
    said = chat_ids(qwen, chat, [user(thought)])
    assert controls(qwen, said) == [*turn, "<|im_start|>"]
    assert qwen.decode(said, special=True) == f"<|im_start|>user\n{thought}<|im_end|>\n<|im_start|>assistant\n"


def test_bos_stands_in_front_once(vocabulary: Build) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary("llama", add_bos_token=True))
    for source in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        chat = ChatTemplate(source, variables={"bos_token": "<bos>"})
        assert chat_ids(tokenizer, chat, [user("hi")]) == [tokenizer.bos_id, *tokenizer.encode("hi")]
        # content that spells BOS is not BOS
        ids = chat_ids(tokenizer, chat, [user("<bos>")])
        assert ids == [tokenizer.bos_id, *tokenizer.encode("<bos>")]


def test_what_cannot_be_encoded_or_walked_is_refused_by_name(qwen: Tokenizer) -> None:
    chat = ChatTemplate(TEMPLATES["CHATML"])
    with pytest.raises(TemplateError, match="surrogate"):
        chat_ids(qwen, chat, [user("\ud800")])
    nested: object = "x"
    for _ in range(100):
        nested = {"x": nested}
    with pytest.raises(TemplateError, match="64 deep"):
        chat_ids(qwen, chat, [user("a", extra=nested)])


@given(text=FRAGMENTS)
def test_stand_ins_keep_length_space_and_equality(qwen: Tokenizer, text: str) -> None:
    guard = Guard(qwen.markers, frozenset(), [text])
    once, again = guard.message(user(text))["content"], guard.message(user(text))["content"]
    assert isinstance(once, str)
    assert once == again
    assert len(once) == len(text)
    assert [letter.isspace() for letter in once] == [letter.isspace() for letter in text]
    assert once.translate(guard.originals) == text
