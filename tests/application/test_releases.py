"""Tags, versions, addresses and changelogs: strict in, harmless out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.application.changelog import MOST_LINES, news
from tensorfold.application.releases import read_address, read_tag, read_version

CHANGES = """# Changes

What the versions brought.

## 0.10.0 - 2027-03-01

- Ten.

## [0.9.1] - 2027-02-01

- Nine and a bit.

### Fixed

- A fault of 0.9.0.

## v0.9.0

- Nine.

## 0.1.0 - 2026-11-30

The first version.

# Before

- Nothing.
"""

HOSTILE_TAGS = (
    "", "v", "v1", "v1.2", "v1.2.3.4", "1.2.3", "V1.2.3", "v1.2.3\n", " v1.2.3", "v1.2.3 ", "v01.2.3", "v1.2.-3",
    "v1.2.3rc1", "v1.2.3+local", "v1.2.3;rm -rf .", "v1.2.3@evil", "--upload-pack=evil", "v1.2.3/../../main", "v١.2.3",
    "v1.2.3#egg=evil", "v1.2.1234567890", "latest", None, 1.2, ["v1.2.3"], {"tag": "v1.2.3"}, True, b"v1.2.3",
)  # fmt: skip


@pytest.mark.parametrize("tag", HOSTILE_TAGS, ids=repr)
def test_anything_but_a_strict_tag_is_no_tag(tag: object) -> None:
    assert read_tag(tag) is None


@given(st.text())
@settings(derandomize=True, deadline=None, max_examples=200)
@pytest.mark.slow
def test_a_text_that_is_read_as_a_tag_is_spelled_from_its_numbers(text: str) -> None:
    for tag in (text, f"v{text}", f"v{text}.0.1"):
        version = read_tag(tag)
        assert version is None or tag == "v{}.{}.{}".format(*version)


def test_versions_compare_by_number_not_by_letter() -> None:
    texts = ["0.9.0", "0.10.0", "0.10.10", "1.0.0", "10.0.0"]
    versions = [read_version(text) for text in texts]
    assert None not in versions
    assert versions == sorted(versions, key=lambda version: version or (0, 0, 0))
    assert read_version("0.10.0") > read_version("0.9.9")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "page", "api"),
    [
        (
            "https://github.com/some/Name",
            "https://github.com/some/Name",
            "https://api.github.com/repos/some/Name",
        ),
        (
            "https://GitHub.com/some/name.git/",
            "https://github.com/some/name",
            "https://api.github.com/repos/some/name",
        ),
        (
            "https://git.example:8443/a/b",
            "https://git.example:8443/a/b",
            "https://git.example:8443/api/v3/repos/a/b",
        ),
        ("http://127.0.0.1:80/a/b", "http://127.0.0.1:80/a/b", "http://127.0.0.1:80/api/v3/repos/a/b"),
        ("http://[::1]:80/a/b", "http://[::1]:80/a/b", "http://[::1]:80/api/v3/repos/a/b"),
    ],
)
def test_an_address_tells_where_its_api_is(text: str, page: str, api: str) -> None:
    address = read_address(text)
    assert address is not None
    assert (address.page, address.api) == (page, api)
    assert address.notes("v1.2.3") == f"{page}/releases/tag/v1.2.3"


@pytest.mark.parametrize(
    "text",
    [
        "", None, 7, "github.com/a/b", "http://github.com/a/b", "http://localhost.evil.example/a/b",
        "https://user:word@github.com/a/b", "https://github.com/a", "https://github.com/a/b/c", "https://github.com/a/b?c",
        "https://github.com/a/b#c", "https://github.com/a/b@c", "https://github.com/-a/b", "https://github.com/../b",
        "https://git hub.com/a/b", "file:///a/b", "ssh://github.com/a/b", "https://github.com/a/b\n", "https:///a/b",
    ],
)  # fmt: skip
def test_anything_but_a_plain_address_is_none(text: object) -> None:
    assert read_address(text) is None


def test_news_are_the_sections_above_the_old_version_and_up_to_the_new() -> None:
    lines = news(CHANGES, (0, 1, 0), (0, 9, 1))
    assert lines[0] == "## [0.9.1] - 2027-02-01" and lines[-1] == "- Nine."
    assert "### Fixed" in lines and "- A fault of 0.9.0." in lines
    assert not [line for line in lines if "Ten" in line or "first" in line or "Nothing" in line]
    assert news(CHANGES, (0, 9, 1), (0, 10, 0)) == ["## 0.10.0 - 2027-03-01", "", "- Ten."]
    assert news(CHANGES, (0, 10, 0), (0, 10, 0)) == news("", (0, 1, 0), (1, 0, 0)) == []


@pytest.mark.parametrize("heading", ["## 1.2.3rc1", "## 1.2", "## Unreleased", "##1.2.3", "## x 1.2.3", "### 1.2.3"])
def test_a_heading_that_names_no_version_begins_no_section(heading: str) -> None:
    assert news(f"{heading}\n- News.\n", (0, 0, 0), (9, 0, 0)) == []


def test_news_carry_no_control_characters_and_end_somewhere() -> None:
    text = "## 1.0.0\n- \x1b]0;title\x07red\x1b[31m\u202e \x00\ttab\r\n" + "- more\n" * (2 * MOST_LINES)
    lines = news(text, (0, 0, 0), (1, 0, 0))
    assert lines[1].startswith("- ]0;titlered[31m ") and all(line.isprintable() for line in lines)
    assert len(lines) == MOST_LINES + 1 and lines[-1] == f"({MOST_LINES + 2} more lines)"
