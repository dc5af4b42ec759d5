"""From messages to tokens: one BOS, folding, continuing, and refusals that say what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidParameter, NoChatTemplate
from engine.generation.prompts import (
    NOTE_APPENDED,
    NOTE_FOLDED,
    NOTE_NO_TEMPLATE,
    prepare_chat,
    prepare_text,
    unread_variables,
)
from engine.generation.request import ChatInput, Message, TextInput
from engine.generation.text.reasoning import Beginning
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.made_tokenizers import byte_level, sentencepiece
from tests.tiny import CHAT_TEMPLATE, THINKING_TEMPLATE

# In the manner of the families named; BOS is token 0, "<|bos|>".
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n\n' + m['content'] | trim + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' + m['content'] | trim"
    " + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
    "{% else %}{% set turns = messages %}{% endif %}{{ bos_token }}{% for m in turns %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('After the optional system message, roles must alternate user and assistant') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ ' [INST] ' }}{% if loop.last and system is defined %}{{ system + '\n\n' }}{% endif %}"
    "{{ m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
REWRITING = (
    "{% for m in messages %}{{ m['role'] + ':' + (m['content'] | upper if m['role'] == 'assistant' else m['content'])"
    " + ';' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def chat(*turns: tuple[str, str | None], **variables: object) -> ChatInput:
    return ChatInput(tuple(Message(role, content) for role, content in turns), variables)


def rendered(
    tokenizer: CheckpointTokenizer, *turns: tuple[str, str | None], **variables: object
) -> tuple[str, tuple[str, ...], bool]:
    prompt, notes, continued = prepare_chat(tokenizer, chat(*turns, **variables))
    return prompt.text, notes, continued


# --- one BOS ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer_adds", [False, True])
@pytest.mark.parametrize(
    ("template", "template_writes"),
    [
        (LLAMA_3, 1),
        (CHAT_TEMPLATE, 0),
        ("{{ bos_token }}{{ bos_token }}{{ messages[0]['content'] }}", 1),
        ("\n  {{ bos_token }}{{ messages[0]['content'] }}", 1),
        ("{{ bos_token }}\n{{ bos_token }}{{ messages[0]['content'] }}", 2),
        (None, 0),
    ],
)
def test_the_model_reads_one_bos(template: str | None, template_writes: int, tokenizer_adds: bool) -> None:
    tokenizer = byte_level(add_bos=tokenizer_adds, chat_template=template)
    prompt, _, _ = prepare_chat(tokenizer, chat(("user", "the sea")))
    # The template that writes two apart from each other means what it says.
    expected = template_writes if template_writes else int(tokenizer_adds)
    assert prompt.token_ids.count(0) == expected
    assert prompt.token_ids[0] == 0 or expected == 0
    assert prompt.token_ids[:2] != (0, 0)


def test_a_bos_in_a_message_does_not_stand_in_for_the_models_own() -> None:
    tokenizer = byte_level(add_bos=True)
    prompt, _, _ = prepare_chat(tokenizer, chat(("user", "<|bos|>the sea")))
    assert prompt.token_ids[0] == 0
    assert prompt.token_ids[1] != 0


def test_a_chatml_model_whose_bos_opens_every_turn_is_left_alone() -> None:
    from tests.tiny import build_tokenizer

    inner = build_tokenizer()
    inner.bos_token = "<|im_start|>"
    prompt, _, _ = prepare_chat(CheckpointTokenizer(inner), chat(("system", "calm"), ("user", "the sea")))
    assert (
        prompt.text
        == "<|im_start|>system\ncalm<|im_end|>\n<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.token_ids.count(1) == 3


def test_an_end_token_the_tokenizer_appends_is_left_out() -> None:
    tokenizer = sentencepiece(add_bos=True, add_eos=True, chat_template="{{ messages[0]['content'] }}")
    prompt, _, _ = prepare_chat(tokenizer, chat(("user", "hello")))
    assert prompt.token_ids == (1, *tokenizer.encode("hello", False))
    assert prepare_text(tokenizer, TextInput(("hello",)))[0].token_ids == (1, *tokenizer.encode("hello", False))


def test_raw_prompts_have_one_bos_or_none_as_asked() -> None:
    tokenizer = byte_level(add_bos=True)
    plain = tuple(tokenizer.encode("the sea", False))
    assert prepare_text(tokenizer, TextInput(("the sea",)))[0].token_ids == (0, *plain)
    assert prepare_text(tokenizer, TextInput(("<|bos|>the sea",)))[0].token_ids == (0, *plain)
    assert prepare_text(tokenizer, TextInput(("the sea",), add_special_tokens=False))[0].token_ids == plain
    assert prepare_text(tokenizer, TextInput(("<|bos|><|bos|>",), False))[0].token_ids == (0, 0)
    assert prepare_text(byte_level(), TextInput(("<|bos|><|bos|>",)))[0].token_ids == (0, 0)


# --- templates --------------------------------------------------------------------------------------------------------


def test_a_plain_conversation() -> None:
    text, notes, continued = rendered(
        byte_level(), ("system", "calm"), ("user", "the sea"), ("assistant", None), ("user", "and the coast")
    )
    assert text == (
        "<|im_start|>system\ncalm<|im_end|>\n<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
        "<|im_start|>user\nand the coast<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (notes, continued) == ((), False)


def test_the_token_ids_are_those_of_the_text() -> None:
    tokenizer = byte_level(chat_template=LLAMA_3, add_bos=True)
    prompt, _, _ = prepare_chat(tokenizer, chat(("user", "naïve 🙂")))
    assert prompt.text == "<|bos|><|im_start|>user\n\nnaïve 🙂<|im_end|><|im_start|>assistant\n\n"
    assert tokenizer.decode(prompt.token_ids, skip_special=False) == prompt.text


def test_roles_the_templates_do_not_know_are_settled() -> None:
    template = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    text, _, _ = rendered(byte_level(chat_template=template), ("developer", "a"), ("user", "b"), ("function", "c"))
    # Without tools of its own a template is told in a user's turn what a tool said.
    assert text == "system a user b user <tool_response>\nc\n</tool_response> "


def test_variables_reach_the_template_and_unread_ones_are_noted() -> None:
    tokenizer = byte_level(chat_template="{{ messages[0]['content'] }}{% if enable_thinking %} thinking{% endif %}")
    assert rendered(tokenizer, ("user", "x"), enable_thinking=True) == ("x thinking", (), False)
    assert rendered(tokenizer, ("user", "x"), enable_thinking=False) == ("x", (), False)
    text, notes, _ = rendered(tokenizer, ("user", "x"), enable_thinking=True, mood="calm")
    assert (text, notes) == ("x thinking", ("The chat template does not read 'mood'.",))
    assert unread_variables(tokenizer, {"mood": 1, "enable_thinking": 2}) == ("mood",)
    assert unread_variables(tokenizer, {}) == ()


@pytest.mark.parametrize(
    "name",
    ["tokenize", "chat_template", "add_generation_prompt", "continue_final_message", "messages", "tools", "self"],
)
def test_variables_cannot_steer_the_renderer(name: str) -> None:
    given = ChatInput((Message("user", "x"),), {name: "x"})
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(), given)
    assert caught.value.param == f"chat_template_kwargs.{name}"


def test_a_template_that_refuses_the_system_role_gets_it_in_the_first_user_turn() -> None:
    text, notes, continued = rendered(
        byte_level(chat_template=GEMMA),
        ("system", "Be calm."),
        ("user", "the sea"),
        ("assistant", "is"),
        ("user", "old"),
    )
    assert text == (
        "<|bos|><start_of_turn>user\nBe calm.\n\nthe sea<end_of_turn>\n<start_of_turn>model\nis<end_of_turn>\n"
        "<start_of_turn>user\nold<end_of_turn>\n<start_of_turn>model\n"
    )
    assert (notes, continued) == ((NOTE_FOLDED,), False)


def test_a_template_that_wants_alternating_roles_gets_neighbours_merged() -> None:
    text, notes, _ = rendered(
        byte_level(chat_template=MISTRAL), ("user", "the"), ("user", "sea"), ("assistant", "is"), ("user", "old")
    )
    assert text == "<|bos|> [INST] the\n\nsea [/INST] is<|im_end|> [INST] old [/INST]"
    assert notes == (NOTE_FOLDED,)


def test_a_template_that_accepts_the_conversation_gets_it_unchanged() -> None:
    text, notes, _ = rendered(byte_level(chat_template=MISTRAL), ("system", "calm"), ("user", "the sea"))
    assert text == "<|bos|> [INST] calm\n\nthe sea [/INST]"
    assert notes == ()


def test_later_system_text_goes_to_the_next_user_turn_and_a_dangling_one_becomes_a_turn() -> None:
    tokenizer = byte_level(chat_template=GEMMA)
    text, _, _ = rendered(tokenizer, ("user", "a"), ("assistant", "b"), ("system", "s"), ("user", "c"))
    assert "<start_of_turn>user\ns\n\nc<end_of_turn>" in text
    text, _, _ = rendered(tokenizer, ("user", "a"), ("assistant", "b"), ("system", "s"))
    assert text.endswith("<start_of_turn>user\ns<end_of_turn>\n<start_of_turn>model\n")
    text, _, _ = rendered(tokenizer, ("user", "a"), ("system", "s"), ("assistant", "b"))
    assert text.endswith("<start_of_turn>user\na\n\ns<end_of_turn>\n<start_of_turn>model\nb")
    text, _, _ = rendered(tokenizer, ("system", "s"))
    assert text == "<|bos|><start_of_turn>user\ns<end_of_turn>\n<start_of_turn>model\n"


def test_a_template_that_still_refuses_is_quoted() -> None:
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(chat_template=MISTRAL), chat(("assistant", "hello"), ("user", "x")))
    assert caught.value.param == "messages"
    assert "After the optional system message, roles must alternate user and assistant" in caught.value.message


def test_a_template_that_is_broken_is_the_templates_fault_not_a_crash() -> None:
    for broken in ("{% for %}", "{{ messages[9]['content'] + 1 }}", "{{ ''.__class__.__mro__ }}", "{{ 1 / 0 }}"):
        with pytest.raises(InvalidParameter, match="chat template refused"):
            prepare_chat(byte_level(chat_template=broken), chat(("user", "x")))


def test_a_template_that_writes_nothing_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="empty prompt"):
        prepare_chat(byte_level(chat_template="{% if false %}x{% endif %}"), chat(("user", "x")))


# --- no template ------------------------------------------------------------------------------------------------------


def test_generic_turns_for_a_model_without_a_template() -> None:
    text, notes, continued = rendered(
        byte_level(chat_template=None),
        ("system", "Be calm."),
        ("user", "the sea"),
        ("assistant", "is"),
        ("user", "old"),
        ("user", "and grey"),
    )
    assert text == (
        "<start_of_turn>user\nBe calm.\n\nthe sea<end_of_turn>\n<start_of_turn>model\nis<end_of_turn>\n"
        "<start_of_turn>user\nold<end_of_turn>\n<start_of_turn>user\nand grey<end_of_turn>\n<start_of_turn>model\n"
    )
    assert (notes, continued) == ((NOTE_NO_TEMPLATE,), False)


def test_generic_turns_tell_what_a_tool_said() -> None:
    text, notes, _ = rendered(byte_level(chat_template=None), ("user", "a"), ("tool", "7"), ("system", "end"))
    told = "<start_of_turn>user\n<tool_response>\n7\n</tool_response><end_of_turn>\n"
    ending = "<start_of_turn>user\nend<end_of_turn>\n<start_of_turn>model\n"
    assert text == f"<start_of_turn>user\na<end_of_turn>\n{told}{ending}"
    assert notes == (NOTE_NO_TEMPLATE,)


def test_generic_turns_continue_an_unfinished_answer() -> None:
    text, _, continued = rendered(byte_level(chat_template=None), ("user", "a"), ("assistant", "The sea was "))
    assert text == "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nThe sea was "
    assert continued


def test_variables_for_a_model_without_a_template_are_refused() -> None:
    with pytest.raises(NoChatTemplate, match="'enable_thinking'") as caught:
        prepare_chat(byte_level(chat_template=None), chat(("user", "x"), enable_thinking=True))
    assert caught.value.param == "chat_template_kwargs"


# --- an unfinished answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT_TEMPLATE, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nThe sea was "),
        (LLAMA_3, "<|bos|><|im_start|>user\n\nhi<|im_end|><|im_start|>assistant\n\nThe sea was "),
        (GEMMA, "<|bos|><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nThe sea was "),
        (MISTRAL, "<|bos|> [INST] hi [/INST] The sea was "),
    ],
)
def test_a_trailing_assistant_message_is_continued_to_the_letter(template: str, expected: str) -> None:
    text, notes, continued = rendered(byte_level(chat_template=template), ("user", "hi"), ("assistant", "The sea was "))
    assert (text, notes, continued) == (expected, (), True)


def test_continuing_and_folding_together() -> None:
    text, notes, continued = rendered(
        byte_level(chat_template=GEMMA), ("system", "s"), ("user", "hi"), ("assistant", "The"), ("assistant", "sea")
    )
    assert text == "<|bos|><start_of_turn>user\ns\n\nhi<end_of_turn>\n<start_of_turn>model\nThe\n\nsea"
    assert (notes, continued) == ((NOTE_FOLDED,), True)


def test_a_template_that_rewrites_answers_gets_the_unfinished_one_after_a_new_opening() -> None:
    text, notes, continued = rendered(byte_level(chat_template=REWRITING), ("user", "hi"), ("assistant", "The sea"))
    assert text == "user:hi;assistant:The sea"
    assert (notes, continued) == ((NOTE_APPENDED,), True)


@pytest.mark.parametrize("blank", ["", " \n", None])
def test_a_blank_trailing_assistant_message_counts_as_not_sent(blank: str | None) -> None:
    text, _, continued = rendered(byte_level(), ("user", "hi"), ("assistant", blank))
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert not continued


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [(), (("assistant", " "),)])
def test_nothing_to_answer_is_refused(turns: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(), chat(*turns))
    assert caught.value.param == "messages"


def test_text_that_is_not_unicode_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(), chat(("user", "ok"), ("user", "a\udc80")))
    assert caught.value.param == "messages.1.content"
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(chat_template="{{ mood }}"), chat(("user", "ok"), mood="\ud800"))
    assert caught.value.param == "chat_template_kwargs"
    with pytest.raises(InvalidParameter, match=r"prompt\[1\]") as caught:
        prepare_text(byte_level(), TextInput(("ok", "\ud800")))
    assert caught.value.param == "prompt"


def test_an_empty_prompt_is_refused_unless_a_bos_starts_it() -> None:
    with pytest.raises(InvalidParameter, match=r"^'prompt' is empty") as caught:
        prepare_text(byte_level(), TextInput(("",)))
    assert caught.value.param == "prompt"
    with pytest.raises(InvalidParameter, match=r"^'prompt\[1\]' is empty"):
        prepare_text(byte_level(), TextInput(("the", "", "sea")))
    with pytest.raises(InvalidParameter, match="empty list"):
        prepare_text(byte_level(), TextInput(()))
    assert prepare_text(byte_level(add_bos=True), TextInput(("",)))[0].token_ids == (0,)
    with pytest.raises(InvalidParameter, match="is empty"):
        prepare_text(byte_level(add_bos=True), TextInput(("",), add_special_tokens=False))


def test_several_prompts_keep_their_order() -> None:
    tokenizer = byte_level()
    prepared = prepare_text(tokenizer, TextInput(("the sea", "a ship")))
    assert [prompt.text for prompt in prepared] == ["the sea", "a ship"]
    assert [tokenizer.decode(prompt.token_ids) for prompt in prepared] == ["the sea", "a ship"]


# --- the reasoning of earlier turns -----------------------------------------------------------------------------------

READING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m.reasoning_content is string %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ASKED, OPENED = "<|im_start|>user\nq<|im_end|>\n", "<|im_start|>assistant\n"


def thought(*turns: tuple[str, str, str]) -> ChatInput:
    return ChatInput(tuple(Message(*turn) for turn in turns))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (READING, "<think>why</think>a"),
        (CHAT_TEMPLATE, "a"),
        (CHAT_TEMPLATE.replace("m['content']", "(m | tojson)"), '{"role": "assistant", "content": "a"}'),
    ],
)
def test_thoughts_reach_a_template_that_reads_them_and_no_other(template: str, said: str) -> None:
    given = thought(("user", "q", ""), ("assistant", "a", "why"), ("user", "b", ""))
    prompt, notes, continued = prepare_chat(byte_level(chat_template=template), given)
    assert f"{OPENED}{said}<|im_end|>\n" in prompt.text and "why" not in prompt.text.replace("<think>why</think>", "")
    assert (notes, continued, prompt.beginning) == ((), False, Beginning.BEFORE)


def test_thoughts_go_on_with_the_answer_they_led_to() -> None:
    given = thought(("user", "q", ""), ("assistant", "half", "why"))
    prompt, _, continued = prepare_chat(byte_level(chat_template=READING), given)
    assert prompt.text == f"{ASKED}{OPENED}<think>why</think>half"
    assert (continued, prompt.beginning) == (True, Beginning.BEFORE)


@pytest.mark.parametrize(
    ("template", "opened"),
    [
        (CHAT_TEMPLATE, f"{ASKED}{OPENED}<think>\n"),
        (THINKING_TEMPLATE, f"{ASKED}{OPENED}<think>\n"),
        (None, "<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n<think>\n"),
    ],
)
def test_thoughts_that_were_cut_go_on(template: str | None, opened: str) -> None:
    given = thought(("user", "q", ""), ("assistant", "", "so it"))
    prompt, _, continued = prepare_chat(byte_level(chat_template=template), given)
    assert (prompt.text, continued, prompt.beginning) == (f"{opened}so it", True, Beginning.INSIDE)


def test_thoughts_of_neighbours_that_are_merged_are_kept() -> None:
    template = READING.replace("{% for m in", "{{ raise_exception('no') if messages | length > 3 }}{% for m in")
    given = thought(("user", "q", ""), ("assistant", "a", "one"), ("assistant", "b", "two"), ("user", "c", ""))
    prompt, notes, _ = prepare_chat(byte_level(chat_template=template), given)
    assert f"{OPENED}<think>one\n\ntwo</think>a\n\nb<|im_end|>" in prompt.text and notes == (NOTE_FOLDED,)


def test_thoughts_of_others_and_thoughts_alone() -> None:
    given = thought(("user", "q", "mine"))
    assert "mine" not in prepare_chat(byte_level(chat_template=READING), given)[0].text
    with pytest.raises(InvalidParameter, match="nothing to answer"):
        prepare_chat(byte_level(), thought(("assistant", "", "why")))
    with pytest.raises(InvalidParameter) as caught:
        prepare_chat(byte_level(), thought(("user", "q", ""), ("assistant", "a", "\ud800")))
    assert caught.value.param == "messages.1.reasoning_content"


def test_where_an_answer_begins() -> None:
    given = thought(("user", "q", ""))
    assert prepare_chat(byte_level(chat_template=THINKING_TEMPLATE), given)[0].beginning is Beginning.OPENED
    # Raw text has no reasoning, whatever it ends with.
    assert prepare_text(byte_level(), TextInput(("<think>",)))[0].beginning is Beginning.NEVER
