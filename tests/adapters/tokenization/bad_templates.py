"""Chat templates that must be refused in one sentence, whatever they do.

`CASES` holds (name, source); `ENDLESS` names those that only the clock can end.
"""

from __future__ import annotations

CASES: tuple[tuple[str, str], ...] = (
    (
        "endless loop",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a * b %}{% endfor %}{% endfor %}",
    ),
    ("endless power in one operation", "{{ (9 * (messages | length)) ** (9 ** 8) }}"),
    ("endless power while compiling", "{{ 9 ** (9 ** 8) }}"),
    (
        "huge output",
        "{% for a in range(100000) %}{% for b in range(1000) %}{{ messages[0].content }}{% endfor %}{% endfor %}",
    ),
    ("huge output in one piece", "{{ 'x' * (messages | length) * 20000000 }}"),
    ("string bomb", "{{ 'a' * (messages | length) * 10 ** 10 }}"),
    ("string bomb while compiling", "{{ 'a' * 10 ** 10 }}"),
    (
        "doubling string",
        "{% set n = namespace(t='ab') %}{% for a in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    ),
    (
        "growing list",
        "{% set n = namespace(t=[1]) %}{% for a in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}{{ n.t | length }}",
    ),
    ("padding bomb", "{{ messages[0].role.ljust(10 ** 10) }}"),
    ("format bomb", "{{ '%1000000000d' % (messages | length) }}"),
    ("range bomb", "{{ range(10 ** 9) | list | length }}"),
    ("json bomb", "{{ ([messages] * 50000) | tojson(indent=1000) }}"),
    ("endless recursion", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
    ("endless recursive loop", "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}"),
    ("deep nesting of blocks", "{% for a in messages %}" * 60 + "{% endfor %}" * 60),
    ("deep nesting of brackets", "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}"),
    ("deep nesting of lists", "{{ " + "[" * 5000 + "]" * 5000 + " }}"),
    ("class of a value", "{{ ''.__class__ }}"),
    ("classes of the interpreter", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    ("globals of a function", "{{ raise_exception.__globals__['os'] }}"),
    ("attribute filter", "{{ '' | attr('__class__') }}"),
    ("attribute by format", "{{ '{0.__class__.__mro__}'.format(messages) }}"),
    ("frame of a generator", "{{ (messages | map('upper')).gi_frame }}"),
    ("changes to the messages", "{{ messages.append(1) }}{{ messages[0].update({'role': 'x'}) }}"),
    ("including a file", "{% include '/etc/passwd' %}"),
    ("importing a file", "{% import 'os' as os %}{{ os.environ }}"),
    ("extending a file", "{% extends '../../secret' %}"),
    ("undefined value", "{{ settings.secret.key }}"),
    ("undefined function", "{{ open('/etc/passwd') }}"),
    ("unknown filter", "{{ messages | shell }}"),
    ("unknown tag", "{% while true %}{% endwhile %}"),
    ("unclosed block", "{% for m in messages %}{{ m.content }}"),
    ("python in place of Jinja", "{{ __import__('os').system('id') }}"),
    ("wrong types", "{{ messages + 1 }}"),
    ("division by zero", "{{ 1 // (messages | length - 1) }}"),
    ("a refusal of many lines", "{{ raise_exception('line one\nline two\x1b[31m\n' ~ 'x' * 5000) }}"),
    ("codec that would be imported", "{{ messages[0].content.encode('idna') }}{{ 1 // 0 }}"),
)

ENDLESS = frozenset({"endless loop", "endless power in one operation", "endless power while compiling"})
