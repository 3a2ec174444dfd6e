"""Prompts of a benchmark: what is read of an object, what is refused, and the digest that names a set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.application.benchmark_prompts import MOST_PROMPTS, Prompt, PromptSet, read_prompts
from tensorfold.application.ports.checkpoints import RefusedError

GOOD: dict[str, Any] = {"name": "a", "messages": [{"role": "user", "content": "Hello."}]}
FULL = GOOD | {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3}


def read(*objects: dict[str, Any]) -> PromptSet:
    return read_prompts([(f"p, line {n}", one) for n, one in enumerate(objects, start=1)], "a file", "--prompts p")


def test_a_prompt_has_its_messages_and_sampling() -> None:
    assert read(FULL).prompts == (Prompt("a", (("user", "Hello."),), 0.5, 0.9, 4, 3),)
    (plain,) = read(GOOD).prompts
    assert plain.greedy and plain.seed is None and plain.turns() == [{"role": "user", "content": "Hello."}]
    assert not read(FULL).prompts[0].greedy


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": ""}, "p, line 1 needs a name of 1 to 40 printable characters."),
        ({"name": "x" * 41}, "p, line 1 needs a name of 1 to 40"),
        ({"name": "two\nlines"}, "p, line 1 needs a name"),
        ({"name": 7}, "p, line 1 needs a name"),
        ({"messages": []}, "p, line 1 needs messages, a list of 1 to 64 objects"),
        ({"messages": "Hello"}, "p, line 1 needs messages"),
        ({"messages": ["Hello"]}, "p, line 1 has a message that is not a role of system, user, assistant and"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "p, line 1 has a message that is not"),
        ({"messages": [{"role": "user", "content": ""}]}, "p, line 1 has a message that is not"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "p, line 1 has a message that is not"),
        ({"messages": [{"role": "user", "content": "x" * (1 << 20)}, *GOOD["messages"]]}, "has 1048582 characters"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a surrogate pair"),
        ({"temperature": "hot"}, "p, line 1 has a temperature that is no number."),
        ({"temperature": True}, "p, line 1 has a temperature that is no number."),
        ({"temperature": -1}, "p, line 1 has the temperature -1, which is not from 0 to 100."),
        ({"temperature": float("nan")}, "p, line 1 has a temperature that is no number."),
        ({"top_p": 0}, "p, line 1 has the top_p 0, which is not from 1e-06 to 1."),
        ({"top_k": 1.5}, "p, line 1 has a top_k that is no whole number from 0 to"),
        ({"seed": -1}, "p, line 1 has a seed that is no whole number from 0 to"),
        ({"seed": True}, "p, line 1 has a seed that is no whole number"),
        ({"stop": "x"}, "p, line 1 has the key 'stop'; a prompt's keys are name, messages, temperature, top_p, top_k"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_place(change: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(GOOD | change)
    assert told in refused.value.message and refused.value.message.startswith("p, line 1")


def test_a_set_has_one_to_sixty_four_prompts_of_different_names() -> None:
    with pytest.raises(RefusedError, match=r"^--prompts p holds no prompt;"):
        read()
    with pytest.raises(RefusedError, match=r"^p, line 2 is named 'a' like an earlier prompt"):
        read(GOOD, GOOD)
    many = [GOOD | {"name": f"p{n}"} for n in range(MOST_PROMPTS + 1)]
    assert len(read(*many[:-1]).prompts) == MOST_PROMPTS
    with pytest.raises(RefusedError, match="holds 65 prompts, more than the 64"):
        read(*many)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"messages": [{"role": "user", "content": "Hello!"}]},
        {"messages": [{"role": "system", "content": "Hello."}]},
        {"messages": [*GOOD["messages"], *GOOD["messages"]]},
        {"temperature": 0.25},
        {"top_p": 0.5},
        {"top_k": 5},
        {"seed": 0},
    ],
)
def test_the_digest_changes_with_everything_that_can_change_a_reply(change: dict[str, Any]) -> None:
    assert read(FULL).digest != read(FULL | change).digest


def test_the_digest_follows_the_order_and_not_the_place_a_set_is_from() -> None:
    other = GOOD | {"name": "b"}
    assert read(GOOD, other).digest != read(other, GOOD).digest
    assert read_prompts([("x", GOOD)], "the public files", "x").digest == read(GOOD).digest
    assert read(GOOD | {"temperature": 0}).digest == read(GOOD).digest


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from([*FULL, "role", "x"]), _VALUES, max_size=6))
@pytest.mark.slow
def test_any_object_is_a_prompt_or_refused_in_one_printable_line(stated: dict[str, Any]) -> None:
    try:
        made = read(GOOD | stated)
    except RefusedError as refusal:
        assert refusal.message.endswith(".") and refusal.message.isprintable()
    else:
        assert made.digest.startswith("sha256:")
