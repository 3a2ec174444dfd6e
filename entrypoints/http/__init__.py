"""Requests over HTTP, in the form OpenAI's clients speak: one file per route family.

Knows no device, no adapter and no container: the services it calls are handed to it. Everything a request can be
refused for is refused before the first byte of an answer.
"""
