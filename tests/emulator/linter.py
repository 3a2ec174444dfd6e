"""What Metal refuses and g++ takes: checked on the text of a body and its header.

Every pointer and reference carries an address space, and a pointer starts from the space it names. Floating literals
are `float` (Metal has no double). No exceptions, recursion, virtual functions, lambdas, allocation or static locals.
Threadgroup arrays are declared in the body, one to a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

SPACES = ("device", "constant", "thread", "threadgroup")
FORBIDDEN = {
    "double": "there is no double",
    "try": "there are no exceptions",
    "catch": "there are no exceptions",
    "throw": "there are no exceptions",
    "virtual": "there are no virtual functions",
    "new": "nothing can be allocated",
    "delete": "nothing can be allocated",
    "typeid": "there is no run-time type information",
    "dynamic_cast": "there is no run-time type information",
    "goto": "there is no goto",
    "std": "the standard library is metal's",
    "static": "there are no static variables",
    "thread_local": "there are no static variables",
    "long double": "there is no double",
}
RESERVED = ("kernel", "vertex", "fragment", "half", "bfloat", "sampler", "texture", "constant", "device")
TYPES = (
    r"(?:float|half|bfloat|int|uint|short|ushort|char|uchar|long|ulong|bool|float16_t|bfloat16_t|"
    r"u?int(?:8|16|32|64)_t|atomic_u?int|auto|void|size_t)[234]?"
)
TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX]\w+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*|::|->|[-+*/%&|^=<>!]=|&&|\|\||<<|>>|\S|\n"
)
DOUBLE_LITERAL = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")


def without_comments(text: str) -> str:
    """The text with comments blanked; line numbers stay."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.S)


def tokens(text: str) -> list[tuple[str, int]]:
    """(token, line) of every token."""
    line, found = 1, []
    for match in TOKEN.finditer(text):
        if match.group() == "\n":
            line += 1
        else:
            found.append((match.group(), line))
    return found


def complaints(body: str, header: str, spaces: Mapping[str, str], type_names: tuple[str, ...] = ()) -> list[str]:
    """One sentence for every rule broken. `spaces` gives the address space of each buffer of this launch.

    A buffer in constant memory may be indexed and nothing else: functions and pointers here are for device memory.
    """
    found = []
    clean = {"header": without_comments(header), "body": without_comments(body)}
    declared = tuple(re.findall(r"\b(?:struct|typename|class|using)\s+(\w+)", "\n".join(clean.values())))
    types = re.compile(rf"(?:{TYPES}|{'|'.join((*type_names, *declared)) or 'float'})$")
    for part, text in clean.items():
        listed = tokens(text)
        found += [f"{part} line {line}: {what}" for line, what in _words(listed)]
        found += [f"{part} line {line}: {what}" for line, what in _pointers(listed, types, spaces)]
    found += [f"body line {line}: {what}" for line, what in _constants(tokens(clean["body"]), spaces)]
    found += [f"header: {name} calls itself" for name in _recursive(clean["header"])]
    if re.search(r"\bthreadgroup\s+\w+\s+\w+\s*\[", clean["header"]):
        found.append("header: a threadgroup array can only be declared in the body")
    if re.search(r"\bthreadgroup\s+\w+\s+\w+\s*(?:\[[^\]]*\])+\s*[,=]", clean["body"]):
        found.append("body: declare one threadgroup array a statement, without a value")
    return found


def _constants(listed: list[tuple[str, int]], spaces: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    for i, (word, line) in enumerate(listed):
        following = listed[i + 1][0] if i + 1 < len(listed) else ""
        if spaces.get(word) == "constant" and following != "[" and (not i or listed[i - 1][0] not in (".", "->")):
            yield line, f"'{word}' has too few elements for device memory and may only be indexed"


def _words(listed: list[tuple[str, int]]) -> Iterator[tuple[int, str]]:
    for i, (word, line) in enumerate(listed):
        if word in FORBIDDEN:
            yield line, f"'{word}': {FORBIDDEN[word]}"
        if word in RESERVED and i and re.fullmatch(TYPES, listed[i - 1][0]):
            yield line, f"'{word}' is a word of the language and cannot name a variable"
        if DOUBLE_LITERAL.fullmatch(word):
            yield line, f"the literal {word} needs an f behind it"
        if word == "[" and i and not (listed[i - 1][0].isidentifier() or listed[i - 1][0] in ")]"):
            yield line, "there are no lambdas"


def _pointers(
    listed: list[tuple[str, int]], types: re.Pattern[str], spaces: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    known = dict(spaces)
    for i, (word, line) in enumerate(listed):
        if word not in ("*", "&") or i == 0 or not types.match(listed[i - 1][0]):
            continue
        start = i - 1
        while start and listed[start - 1][0] not in {";", "{", "}", "(", ",", "<", ")", "="}:
            start -= 1
        before = [token for token, _ in listed[start:i]]
        named = next((space for space in SPACES if space in before), None)
        if named is None:
            yield line, f"'{' '.join(before)} {word}' names no address space"
            continue
        after = [token for token, _ in listed[i + 1 : i + 4]]
        if len(after) == 3 and after[0].isidentifier():
            known[after[0]] = named
        if len(after) == 3 and after[1] == "=" and known.get(after[2], named) != named:
            yield line, f"'{after[0]}' points into {named} memory, '{after[2]}' lies in {known[after[2]]} memory"


def _recursive(header: str) -> list[str]:
    """Functions of the header from which a call leads back to themselves."""
    bodies: dict[str, str] = {}
    for match in re.finditer(r"\b(\w+)\s*\([^;{}]*\)\s*\{", header):
        depth, end = 1, match.end()
        while end < len(header) and depth:
            depth += {"{": 1, "}": -1}.get(header[end], 0)
            end += 1
        if match.group(1) not in ("if", "for", "while", "switch"):
            bodies[match.group(1)] = bodies.get(match.group(1), "") + header[match.end() : end]
    calls = {
        name: {other for other in bodies if re.search(rf"\b{other}\b[^;]*?\(", text)} for name, text in bodies.items()
    }
    found = []
    for name in bodies:
        reached, frontier = set[str](), {name}
        while frontier:
            frontier = set[str]().union(*(calls[one] for one in frontier)) - reached
            reached |= frontier
        if name in reached:
            found.append(name)
    return found
