"""Flags and environment become settings, or one sentence that names the flag, its value and its limit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.settings import EngineSettings, HttpSettings, RecallSettings, SamplingDefaults
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, LEAST_CHUNKS, MOST_CHUNKS
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import MOST_QUEUE, RECALL, RunSettings, run_settings
from tests.command_pages import flags

MIB = 1 << 20

EVERY_FLAG = """
    serve demo --backend mlx --context 900 --parallel 3 --host ::1 --port 0 --name m --alias a --alias b --max-tokens 7
    --temperature 0.5 --top-p 0.9 --top-k 5 --min-p 0.1 --no-thinking --no-drafts --decode-share 2
"""


def settings_of(*words: str, **environment: str) -> RunSettings:
    return run_settings(parse(words), environment)


@pytest.mark.parametrize("command", ["serve", "verify"])
def test_without_flags_every_setting_is_its_default(command: str) -> None:
    made = settings_of(command, "demo", XDG_CACHE_HOME="cache")
    assert made.engine == EngineSettings()
    assert made.http == HttpSettings()
    assert made.generation.max_tokens == SamplingDefaults().max_tokens
    assert made.generation.temperature is made.generation.top_k is made.generation.min_p is None
    assert (made.model.model, made.model.name, made.model.aliases, made.model.context) == ("demo", "", (), None)
    assert made.model.thinking and made.cache == Path("cache/tensorfold")


def test_every_flag_of_serve_reaches_its_setting() -> None:
    made = settings_of(*EVERY_FLAG.split())
    assert made.engine == EngineSettings(parallel=3, queue=24, drafts=False, decode_share=2.0)
    assert made.http == HttpSettings(host="::1", port=0)
    assert (made.model.backend, made.model.context, made.model.name) == ("mlx", 900, "m")
    assert made.model.aliases == ("a", "b") and not made.model.thinking
    given = made.generation
    assert (given.max_tokens, given.temperature, given.top_p, given.top_k, given.min_p) == (7, 0.5, 0.9, 5, 0.1)


def test_a_model_alone_is_served() -> None:
    assert settings_of("demo@4bit", "--port", "9").http.port == 9
    assert settings_of("./some/folder").model.model == "./some/folder"


def test_the_queue_grows_with_the_streams_to_its_most() -> None:
    assert settings_of("serve", "demo", "--parallel", "2").engine.queue == 16
    assert settings_of("serve", "demo", "--parallel", "64").engine.queue == MOST_QUEUE
    assert settings_of("serve", "demo", "--parallel", "auto").engine == EngineSettings()


@pytest.mark.parametrize(
    ("flag", "value", "limit"),
    [
        ("--parallel", "65", "1 to 64"),
        ("--parallel", "none", "1 to 64"),
        ("--port", "65536", "0 to 65535"),
        ("--context", "-1", "0 to 2147483648"),
        ("--top-p", "0", "above 0 and at most 1"),
        ("--top-p", "nan", "above 0 and at most 1"),
        ("--temperature", "inf", "0 to 100"),
        ("--temperature", "warm", "0 to 100"),
        ("--max-tokens", "1.5", "1 to 2147483648"),
        ("--prompt-cache-gib", "-1", "0 to 1048576"),
    ],
)
def test_a_value_outside_its_limits_is_refused_by_flag_value_and_limit(
    flag: str, value: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["serve", "demo", flag, value])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert flag in told and value in told and limit in told
    assert told.count("\n") == 1 and "tensorfold serve --help" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required: COMMAND; "),
        (["serve"], "the following arguments are required: MODEL; "),
        (["nowhere"], "'nowhere' is neither a command (serve, pull, models, info, update, verify, bench) nor a folder"),
        (
            ["serve", "demo", "--unheard-of"],
            "tensorfold serve: unrecognized arguments: --unheard-of; `tensorfold serve --help` shows",
        ),
        (["demo", "--unheard-of"], "tensorfold serve: unrecognized arguments: --unheard-of; "),
        (["models", "more"], "tensorfold models: unrecognized arguments: more; `tensorfold models --help` shows"),
        (["serve", "demo", "--max", "5"], "unrecognized arguments: --max"),
    ],
)
def test_words_that_make_no_command_are_refused_in_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert told in errors and errors.count("\n") == 1 and "--help` shows" in errors


@pytest.mark.parametrize("flag", ["--name", "--alias"])
@pytest.mark.parametrize("text", [" ", "two\nlines", "x" * 257])
def test_a_model_id_that_no_line_can_show_is_refused_by_its_flag(flag: str, text: str) -> None:
    with pytest.raises(RefusedError, match=f"{flag} holds a model id that is not 1 to 256"):
        settings_of("serve", "demo", flag, text)


def test_keys_come_from_flags_and_environment_under_labels_that_hold_none_of_them() -> None:
    made = settings_of("serve", "demo", "--api-key", "one", "--api-key", "two", TENSORFOLD_API_KEY=" three, ,four ")
    assert made.http.keys == (("cli-1", "one"), ("cli-2", "two"), ("env-1", "three"), ("env-2", "four"))


@pytest.mark.parametrize("key", ["", "two words", "k\u00e9y", "tab\there", "x" * 513])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(RefusedError, match="--api-key holds a key that is not 1 to 512") as refused:
        settings_of("serve", "demo", "--api-key", key)
    assert not key or key not in refused.value.message


def test_a_key_of_the_environment_is_refused_by_the_variables_name() -> None:
    with pytest.raises(RefusedError, match="TENSORFOLD_API_KEY"):
        settings_of("serve", "demo", TENSORFOLD_API_KEY="fine,not fine")


def test_the_salt_is_an_integer_or_blank() -> None:
    assert settings_of("serve", "demo", TENSORFOLD_SEED_SALT=" ").generation.seed_salt == 0
    assert settings_of("serve", "demo", TENSORFOLD_SEED_SALT="-12").generation.seed_salt == -12
    with pytest.raises(RefusedError, match="TENSORFOLD_SEED_SALT is 'pepper'; it must be an integer"):
        settings_of("serve", "demo", TENSORFOLD_SEED_SALT="pepper")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999", "24GB", "a few", "1,5"])
def test_a_memory_limit_that_is_no_budget_stops_the_start(text: str) -> None:
    for command in ("serve", "verify"):
        with pytest.raises(RefusedError) as refused:
            settings_of(command, "demo", TENSORFOLD_MEMORY_LIMIT_GB=text)
        assert refused.value.message == (
            f"TENSORFOLD_MEMORY_LIMIT_GB is {text!r}; it must be a positive number of GiB, or blank for none."
        )


@pytest.mark.parametrize(("text", "limit"), [("24", 24 << 30), (" 0.5 ", 1 << 29), (" ", None), ("1e300", 1 << 50)])
def test_a_memory_limit_is_bytes_of_the_budget(text: str, limit: int | None) -> None:
    for command in ("serve", "verify"):
        assert settings_of(command, "demo", TENSORFOLD_MEMORY_LIMIT_GB=text).memory.limit == limit


def test_freed_buffers_are_kept_up_to_eight_gib_or_what_the_flag_says() -> None:
    assert settings_of("serve", "demo").memory.cache == 8 << 30
    assert settings_of("serve", "demo", "--mlx-cache-gib", "0.5").memory.cache == 1 << 29
    assert settings_of("serve", "demo", "--mlx-cache-gib", "0").memory.cache == 0


@pytest.mark.parametrize(
    ("environment", "live"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "TENSORFOLD_NO_LIVE": "0"}, True),
        ({"TERM": "xterm", "TENSORFOLD_NO_LIVE": "1"}, False),
        ({"TERM": "xterm", "TENSORFOLD_NO_LIVE": "Yes"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_a_live_line_needs_a_terminal_that_can_redraw_and_can_be_turned_off(
    environment: dict[str, str], live: bool
) -> None:
    assert settings_of("serve", "demo", **environment).live is live


def test_a_request_log_is_a_path_of_the_environment() -> None:
    assert settings_of("serve", "demo", TENSORFOLD_REQUEST_LOG=" ").http.request_log is None
    made = settings_of("serve", "demo", TENSORFOLD_REQUEST_LOG="~/requests").http.request_log
    assert made == Path.home() / "requests"
    with pytest.raises(RefusedError, match="TENSORFOLD_REQUEST_LOG names a home that is not known"):
        settings_of("serve", "demo", TENSORFOLD_REQUEST_LOG="~nobody-of-that-name/requests")


def test_without_a_cache_home_the_cache_lies_in_the_users_own() -> None:
    assert settings_of("serve", "demo").cache == Path("~/.cache/tensorfold").expanduser()


def test_recall_is_off_unless_a_flag_asks_for_it() -> None:
    assert settings_of("serve", "demo").recall is None
    assert settings_of("serve", "demo", "--no-drafts").recall is None
    assert settings_of("verify", "demo").recall is None


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["--recall"], RecallSettings(None, 64 * MIB, False)),
        (["--recall-dir", "ids"], RecallSettings(Path.cwd() / "ids", 64 * MIB, False)),
        (["--recall-gib", "1/128"], RecallSettings(None, 8 * MIB, False)),
        (["--recall-read-only"], RecallSettings(None, 64 * MIB, True)),
        (
            ["--recall", "--recall-dir", "~/ids", "--recall-gib", "8", "--recall-read-only"],
            RecallSettings(Path.home() / "ids", 8192 * MIB, True),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_flag_of_the_record_turns_recall_on(words: list[str], made: RecallSettings) -> None:
    assert settings_of("serve", "demo", *words) == replace(settings_of("serve", "demo"), recall=made)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("1/16", 16), ("0.0625", 16), (".0625", 16), ("1/128", 2), ("3/128", 6), ("8", 2048), ("8.", 2048),
        ("16/2", 2048), ("0.5/4", 32), ("0.0078125", 2),
    ],
)  # fmt: skip
def test_a_size_of_the_record_is_a_decimal_or_a_fraction(text: str, chunks: int) -> None:
    made = settings_of("serve", "demo", "--recall-gib", text)
    assert made.recall is not None
    assert made.recall.budget_bytes == chunks * CHUNK_BYTES
    assert made.notes == ()


@pytest.mark.parametrize(("text", "chunks", "asked"), [("0.01", 2, "10.2"), ("1/100", 2, "10.2"), ("1/3", 85, "341.3")])
def test_a_size_between_chunks_is_cut_to_whole_ones_and_that_is_said(text: str, chunks: int, asked: str) -> None:
    made = settings_of("serve", "demo", "--recall-gib", text)
    assert made.recall is not None
    assert made.recall.budget_bytes == chunks * CHUNK_BYTES
    assert made.notes == (
        f"--recall-gib asks for {asked} MiB; a record is whole chunks of 4 MiB, so {4 * chunks} MiB are used",
    )


UNDER = "is less than 2 chunks of 4 MiB; 1/128 is the least that works"
OVER = "is more than 8, the most that positions of 31 bits can number"
NO_NUMBER = "is not a number of GiB such as 0.5 or 1/16"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0", f"0 {UNDER}"),
        ("1/129", f"1/129 {UNDER}"),
        ("0.0078124", f"0.0078124 {UNDER}"),
        ("8.000001", f"8.000001 {OVER}"),
        ("17/2", f"17/2 {OVER}"),
        ("999999999", f"999999999 {OVER}"),
        *(
            (text, f"{text!r} {NO_NUMBER}")
            for text in (
                "-1", "1/0", "1/00", "1/2/3", "1/0.5", "1/-2", "nan", "inf", "1e-2", "64MiB", "", " 1", "1_0", "\u0661",
                "1" * 40, "1\n",
            )
        ),
    ],
)  # fmt: skip
def test_a_size_of_the_record_outside_its_limits_is_refused_with_the_limit(
    text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["serve", "demo", f"--recall-gib={text}"])
    line = f"tensorfold serve: argument --recall-gib: {told}; `tensorfold serve --help` shows what there is.\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, line)


def test_the_help_has_the_limits_of_the_record_as_the_layout_has_them() -> None:
    (size,) = [action for group, action in flags("serve") if "--recall-gib" in action.option_strings]
    assert size.help is not None
    words = " ".join(size.help.split())
    least = Fraction(LEAST_CHUNKS * CHUNK_BYTES, 1 << 30)
    assert f"{Fraction(RECALL.budget_bytes, 1 << 30)} ({RECALL.budget_bytes >> 20} MiB) without it" in words
    assert f"from {least} to {MOST_CHUNKS * CHUNK_BYTES >> 30}, since ids are numbered in 31 bits" in words
    assert MOST_CHUNKS * CHUNK_IDS == 1 << 31


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_folder_of_the_record_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        settings_of("serve", "demo", "--recall-dir", text)
    assert refused.value.message == "--recall-dir is empty; give it a folder, or leave it out."


def test_a_folder_in_an_unknown_home_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        settings_of("serve", "demo", "--recall-dir", "~nobody-of-that-name/ids")
    assert refused.value.message == "--recall-dir names a home that is not known: '~nobody-of-that-name/ids'."


@pytest.mark.parametrize("flag", [("--recall",), ("--recall-dir", "x"), ("--recall-gib", "1"), ("--recall-read-only",)])
def test_verify_takes_no_record_of_the_users(flag: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["verify", "demo", *flag])
    told = f"unrecognized arguments: {' '.join(flag)}; `tensorfold verify --help` shows what there is.\n"
    told = f"tensorfold verify: {told}"
    assert (ended.value.code, capsys.readouterr().err) == (2, told)


@pytest.mark.parametrize(
    ("words", "value", "looks"),
    [
        ((), "", True),
        ((), "0", True),
        ((), "off", True),
        ((), "2", True),
        ((), "1", False),
        ((), " TRUE ", False),
        ((), "Yes", False),
        ((), "on", False),
        (("--no-update-check",), "", False),
        (("--no-update-check",), "0", False),
    ],
)
def test_either_switch_turns_the_release_check_off(words: tuple[str, ...], value: str, looks: bool) -> None:
    made = settings_of("serve", "demo", *words, TENSORFOLD_NO_UPDATE_CHECK=value, XDG_CACHE_HOME="cache")
    assert (made.update.check, made.update.address) == (looks, None)
    assert made.update.cache == made.cache


def test_another_address_of_the_project_is_plain_https_or_refused() -> None:
    made = settings_of("serve", "demo", TENSORFOLD_PROJECT_URL=" https://git.example/a/b ").update.address
    assert made is not None and made.page == "https://git.example/a/b"
    with pytest.raises(RefusedError, match=r"TENSORFOLD_PROJECT_URL is 'http://git\.example/a/b'; it must be"):
        settings_of("serve", "demo", TENSORFOLD_PROJECT_URL="http://git.example/a/b")


def test_a_key_file_is_an_absolute_path_and_asks_for_a_key() -> None:
    made = settings_of("serve", "demo", "--api-key-file", "keys").http
    assert made.key_file == Path("keys").absolute() and made.needs_key and made.keys == ()
    assert settings_of("serve", "demo", "--api-key-file", "~/keys").http.key_file == Path("~/keys").expanduser()
    assert not settings_of("serve", "demo").http.needs_key
    with pytest.raises(RefusedError, match="--api-key-file is empty; give it a file"):
        settings_of("serve", "demo", "--api-key-file", " ")


@pytest.mark.parametrize(
    "origin",
    ["*", "http://localhost:3000", "https://a.example", "http://[::1]:80", "http://127.0.0.1/", "app-scheme://local"],
)
def test_origins_are_taken_as_browsers_send_them(origin: str) -> None:
    assert settings_of("serve", "demo", "--cors", origin, "--cors", "http://x").http.origins == (origin, "http://x")


@pytest.mark.parametrize(
    "origin",
    ["", "localhost:3000", "http://", "http://a/b", "http://a b", "http://u@a", "null", "http://a,http://b", "**"],
)
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(RefusedError, match=r"--cors is .* must be an origin"):
        settings_of("serve", "demo", "--cors", origin)


def test_snapshots_go_into_a_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", Path("/dev/null")):
        with pytest.raises(RefusedError) as refused:
            settings_of("serve", "demo", "--snapshot-dir", str(bad))
        assert refused.value.message == f"--snapshot-dir '{bad}' is not a folder; give it a folder, or `none`."
    assert settings_of("serve", "demo", "--snapshot-dir", str(tmp_path / "new")).prompts.snapshots == tmp_path / "new"
