"""What reaches the template and what a reward reads."""

import pytest
import tiny

from anygrpo.errors import DataError
from anygrpo.language.prompts import Prompts
from anygrpo.language.settings import CausalLMConfig

TEMPLATE = (
    "{% if tools %}[{{ tools[0].function.name }}]{% endif %}{% if loud %}LOUD{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def prompts(template=TEMPLATE, ends=(1,), **settings):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    return Prompts(tokenizer, CausalLMConfig(kind="causal_lm", model="memory", **settings), 128, ends)


def test_tools_and_settings_of_the_recipe_and_the_row_reach_the_template():
    tools = '[{"type": "function", "function": {"name": "search", "parameters": {}}}]'
    assert prompts().rendered({"prompt": "w1", "tools": tools}) == "[search]<user>w1</s><assistant>"
    assert prompts(chat_template_kwargs={"loud": True}).rendered("w1") == "LOUD<user>w1</s><assistant>"
    quiet = {"prompt": "w1", "chat_template_kwargs": {"loud": False}}
    assert prompts(chat_template_kwargs={"loud": True}).rendered(quiet) == "<user>w1</s><assistant>"
    with pytest.raises(DataError, match="chat_template_kwargs"):
        prompts().rendered({"prompt": "w1", "chat_template_kwargs": 3})


def test_a_last_turn_of_the_assistant_is_left_open():
    asked = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2 w3"}]
    assert prompts().rendered(asked) == "<user>w1</s><assistant>w2 w3"


def test_a_template_that_changes_the_open_turn_is_refused():
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content | upper }}{% endfor %}"
    with pytest.raises(DataError, match=r"continue|refuses"):
        prompts(template).rendered([{"role": "user", "content": "x"}, {"role": "assistant", "content": "mixed Case"}])


def test_what_a_template_refuses_is_told_with_its_words():
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}{% endfor %}"
    )
    with pytest.raises(DataError, match="no tools here"):
        prompts(template).rendered([{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}])


def test_a_row_keeps_its_own_system_message():
    made = prompts(system="the recipe's")
    assert [m["content"] for m in made.messages("w1")] == ["the recipe's", "w1"]
    own = [{"role": "system", "content": "mine"}, {"role": "user", "content": "w1"}]
    assert made.messages(own) == own


def test_special_tokens_are_read_but_for_ends_and_padding():
    ids = [3, 10, 3, 11, 1, 2]  # <turn> w6 <turn> w7 </s> <pad>
    assert prompts().text(ids) == "<turn> w6 <turn> w7"
    assert prompts(special_tokens=False).text(ids) == "w6 w7"


def test_a_tokenizer_that_ends_every_text_does_not_end_the_prompt():
    from tokenizers.processors import TemplateProcessing

    made = prompts(chat_template=False)
    inner = made.tokenizer.backend_tokenizer
    inner.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    assert made.tokenizer("w1 w2")["input_ids"][-1] == 1
    assert made.encode(["w1 w2"], 4) == [[0, 5, 6]]
    assert made.encode(["w1 </s>"], 4)[0][:3] == [0, 5, 1]  # an end that the text itself holds stays


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ raise_exception.__globals__.os }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.clear() }}",
    ],
)
def test_the_template_of_a_strangers_model_reaches_nothing(template):
    with pytest.raises(DataError, match="the chat template refuses"):
        prompts(template).rendered("w1")
