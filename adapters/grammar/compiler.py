"""Compiles grammars for one tokenizer. Nothing of the library is loaded before the first grammar.

A grammar is tried in a process of its own first, with limits on time and memory, so that a hostile one costs its own
request alone. Every request gets a grammar of its own: the library's lexers grow as they are used, and sharing one
would let a reply's limits depend on its neighbours. Safe to call from several threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from tensorfold.adapters.grammar import refusals, trial
from tensorfold.adapters.grammar.limits import MOST_STATES, TRIAL_CPU_S, TRIAL_MEMORY, TRIAL_WALL_S
from tensorfold.adapters.grammar.matcher import GuidanceMatcher
from tensorfold.adapters.grammar.sources import source_of
from tensorfold.adapters.grammar.vocabulary import Vocabulary
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarMatcher
from tensorfold.application.ports.tokenizer import Tokenizer

_TRIALS_AT_ONCE = 2
_REMEMBERED = 512


class GuidanceCompiler:
    """A `GrammarCompiler` over llguidance. `end_ids` end a reply; there is at least one."""

    def __init__(self, tokenizer: Tokenizer, end_ids: frozenset[int]) -> None:
        if not end_ids:
            raise ValueError("a grammar needs a token that ends the reply")
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._lock = Lock()
        self._trials = BoundedSemaphore(_TRIALS_AT_ONCE)
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()

    def compile(self, kind: str, text: str) -> GrammarMatcher:
        """A matcher at its start. Raises RefusedError with one sentence."""
        source = source_of(self._library, kind, text)
        refusal = self._verdict(kind, source)
        if refusal:
            raise RefusedError(refusal)
        matcher = self._library.LLMatcher(self._guidance, source, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise RefusedError(refusals.malformed(kind, matcher.get_error()))
        made = GuidanceMatcher(matcher, self._end_ids, self._tokenizer.vocabulary)
        # The first mask costs most, and is paid here rather than between two rounds.
        try:
            begins = made.mask().any()
        except ValueError:
            raise RefusedError(refusals.too_costly(kind)) from None
        if not begins:
            raise RefusedError(refusals.nothing_fits(kind))
        return made

    @cached_property
    def _library(self) -> Any:
        return import_module("llguidance")

    @cached_property
    def _limits(self) -> Any:
        return self._library.LLParserLimits(max_lexer_states=MOST_STATES, verbose_errors=False)

    @cached_property
    def _made(self) -> Any:
        wrapper = self._library.TokenizerWrapper(Vocabulary(self._tokenizer, self._end_ids))
        return self._library.LLTokenizer(wrapper, n_vocab=self._tokenizer.vocabulary, eos_token=sorted(self._end_ids))

    @property
    def _guidance(self) -> Any:
        with self._lock:
            return self._made

    def _verdict(self, kind: str, source: str) -> str:
        """The refusal of a grammar, empty when there is none; each is tried once."""
        key = sha256(f"{kind}\0{source}".encode()).digest()
        with self._lock:
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
        with self._trials:
            refusal = _tried(kind, source, self._tokenizer.vocabulary, Path(str(self._library.__file__)).parent.parent)
        with self._lock:
            self._verdicts[key] = refusal
            while len(self._verdicts) > _REMEMBERED:
                self._verdicts.popitem(last=False)
        return refusal


def _tried(kind: str, source: str, vocabulary: int, folder: Path) -> str:
    asked: dict[str, str | int] = {"folder": str(folder), "grammar": source, "memory": TRIAL_MEMORY, "cpu": TRIAL_CPU_S}
    asked["vocabulary"] = vocabulary
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(trial.__file__)],
            input=json.dumps(asked | {"states": MOST_STATES}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TRIAL_WALL_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return refusals.too_costly(kind)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"error": "", "costly": True}
    if said["costly"]:
        return refusals.too_costly(kind)
    if said["error"]:
        return refusals.malformed(kind, said["error"])
    return refusals.nothing_fits(kind) if said["empty"] else ""
