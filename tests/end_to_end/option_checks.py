"""What shows over two servers that an option did something, or that a request stands above it."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import RunSettings, run_settings
from tests.end_to_end.commands import in_process
from tests.end_to_end.option_scene import EFFORTS, FILE_KEY, PAGE, THINKS, Scene

Check = Callable[[Scene], bool]


def in_report(given: str, plain: str = "") -> Check:
    """What the startup report of the one says, and of the other."""
    return lambda both: given in both.given.report and (given not in both.plain.report) and plain in both.plain.report


def greedy_under(field: str, value: float) -> Check:
    """A request that leaves one candidate says what a greedy one says, which this server's default does not."""

    def check(both: Scene) -> bool:
        greedy = both.given.said(temperature=0)
        free = {both.given.said(seed=seed, temperature=5.0, top_p=1.0, top_k=0, min_p=0.0) for seed in range(4)}
        only = {both.given.said(seed=seed, temperature=5.0, **{field: value}) for seed in range(4)}
        return only == {greedy} and free != {greedy}

    return check


def host(both: Scene) -> bool:
    ran = in_process(["serve", "demo", "--host", "192.0.2.1", "--port", "0"])
    return ran.code == 1 and "192.0.2.1" in ran.err


def served_ids(both: Scene) -> list[str]:
    return [entry["id"] for entry in both.given.ask("GET", "/v1/models").body["data"]]


def context(both: Scene) -> bool:
    asked = {"prompt": [5] * 200, "max_tokens": 200}
    sides = [side.ask("POST", "/v1/completions", asked) for side in (both.plain, both.given)]
    refused = sides[1].status == 400 and sides[1].body["error"]["code"] == "context_length_exceeded"
    return sides[0].status == 200 and refused and "context: 300 tokens" in both.given.report


def reply_tokens(both: Scene, **fields: int) -> int:
    tokens: int = both.given.chat(ignore_eos=True, **fields)["usage"]["completion_tokens"]
    return tokens


def alias(both: Scene) -> bool:
    return served_ids(both)[1:] == ["other"] and in_report("also served as other")(both)


def most_tokens(both: Scene) -> bool:
    return reply_tokens(both) == 7 and in_report("up to 7 tokens", "as long as the context leaves room")(both)


def backend(both: Scene) -> bool:
    ran = in_process(["serve", "demo", "--port", "0", "--backend", "cuda"])
    refused = ran.code == 1 and "install the extra `cuda`" in ran.err
    return refused and in_report("backend mlx (chosen by --backend)", "backend mlx (auto")(both)


def drafts_off(both: Scene) -> bool:
    drafted: int = both.given.chat()["tensorfold"]["drafted"]
    return drafted == 0 and in_report("drafts are off, as --no-drafts asked", "drafts: context copies")(both)


def serial_request(both: Scene) -> bool:
    repeats = {"messages": [{"role": "user", "content": "1, 2, 3, 4, " * 8}], "max_tokens": 60, "temperature": 0}
    drafted, serial = both.plain.chat(**repeats), both.plain.chat(**repeats, draft=False)
    blocks = [reply["tensorfold"] for reply in (drafted, serial)]
    drafted_tokens = [block["drafted"] > 0 for block in blocks]
    return drafted_tokens == [True, False] and len({block["token_sha"] for block in blocks}) == 1


def keys(both: Scene) -> bool:
    path, wrong = "/v1/models", {"Authorization": "Bearer wrong"}
    statuses = [both.given.ask("GET", path, **wrong).status, both.given.ask("GET", path).status]
    return statuses == [401, 200] and both.plain.ask("GET", path, **wrong).status == 200


def file_keys(both: Scene) -> bool:
    opened = both.given.ask("GET", "/v1/models", Authorization=f"Bearer {FILE_KEY}").status
    return opened == 200 and "keys: 2 API keys" in both.given.report


def open_metrics(both: Scene) -> bool:
    status = both.given.ask("GET", "/metrics", Authorization="Bearer wrong").status
    return status == 200 and "metrics need none" in both.given.report


def cors(both: Scene) -> bool:
    sides = (both.plain, both.given)
    allowed = [side.ask("GET", "/health", Origin=PAGE).headers.get("access-control-allow-origin") for side in sides]
    return allowed == [None, PAGE] and f"web pages of {PAGE} may use this server" in both.given.report


def thinking(both: Scene) -> bool:
    kept = both.plain.prompt() - both.given.prompt() + EFFORTS["high"] - EFFORTS["medium"]
    return kept == THINKS and in_report("thinking off", "thinking on")(both)


def thinking_request(both: Scene) -> bool:
    return both.given.prompt(chat_template_kwargs={"enable_thinking": True}) - both.given.prompt() == THINKS


def effort_request(both: Scene) -> bool:
    least, most = (both.given.prompt(reasoning_effort=effort) for effort in ("low", "max"))
    return most - least == EFFORTS["high"] - EFFORTS["low"]


def record(both: Scene) -> bool:
    states = [side.ask("GET", "/v1/recall").body["state"] for side in (both.plain, both.given)]
    return states == ["off", "on"]


def settings(*words: str, wanted: Callable[[RunSettings], bool]) -> Check:
    return lambda both: wanted(run_settings(parse(["serve", "demo", *words]), {}))


def reads_only(made: RunSettings) -> bool:
    return made.recall is not None and made.recall.read_only
