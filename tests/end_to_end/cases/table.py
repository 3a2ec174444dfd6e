"""The cases: what is done, what must come of it, and the tests that do it. A case without its part says what it needs.

A test is named as pytest does, by its file below `tests` and its function; all of its parameters count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STREAMS: Final = "end_to_end/cases/test_streams.py::test_"
REQUESTS: Final = "end_to_end/cases/test_requests.py::test_"
DIALECTS: Final = "end_to_end/cases/test_dialects.py::test_"
HTTP: Final = "end_to_end/cases/test_http.py::test_"
COMMANDS: Final = "end_to_end/cases/test_commands.py::test_"
HUB: Final = "end_to_end/test_hub.py::test_a_model_is_refused_in_one_line_before_its_weights"
DOWNLOADS: Final = "end_to_end/test_hub.py::test_a_download_ends_whole"
RECORD: Final = "end_to_end/test_recall.py::test_"
OVER_STORE: Final = "entrypoints/http/test_recall_over_store.py::test_"

HUBS: Final = (
    "gated without a token", "gated for this token", "bad token", "unknown repository", "unknown revision",
    "private repository",
)  # fmt: skip

PROMPT_CACHE: Final = "a prompt cache"
RECURRENT: Final = "a family with recurrent state"
RANKS: Final = "CUDA with two ranks"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `needs` names the part it waits for; `note` says what of it comes later or is decided otherwise."""

    id: str
    done: str
    expected: str
    tests: tuple[str, ...] = ()
    needs: str = ""
    note: str = ""


CASES: Final = (
    Case(
        "SSE-01", "a reply's letters arrive one byte a token, streamed and whole",
        "no delta holds a replacement character, and both give the same text",
        (STREAMS + "letters_that_come_byte_by_byte_are_whole_in_every_delta",
         "domain/test_reply_text.py::test_characters_that_arrive_byte_by_byte_come_out_whole"),
    ),
    Case(
        "SSE-04", "the limit of tokens falls inside a letter of four bytes",
        "the reply ends by length, alike streamed and whole, and counts its tokens",
        (STREAMS + "a_reply_cut_inside_a_letter_ends_alike_streamed_and_whole",),
    ),
    Case(
        "SSE-05", "a stream is asked to include its usage",
        "one chunk behind the finish has it, with no choices, and no other chunk has",
        (STREAMS + "usage_that_is_asked_for_comes_once_in_a_chunk_of_its_own_before_the_end",),
    ),
    Case(
        "SSE-08", "the engine fails behind the first tokens; a prompt is beyond the context",
        "one error event without a word of the fault and no good end; a context refusal is a 400 before the stream",
        (STREAMS + "a_fault_behind_the_first_tokens_is_one_error_event_and_no_good_end",
         STREAMS + "a_prompt_beyond_the_context_is_refused_with_both_numbers_before_the_stream_opens"),
    ),
    Case(
        "SSE-09", "a stream is read chunk by chunk",
        "one id, time and model throughout, the role once and first, one finish, the end mark last",
        (STREAMS + "every_chunk_of_a_stream_carries_the_same_names_and_the_role_comes_once",),
    ),
    Case(
        "SSE-10", "half a surrogate pair stands in a message, in its parts and in a call",
        "it is read as a replacement character; nothing fails",
        (STREAMS + "half_a_surrogate_pair_is_read_as_a_replacement",),
    ),
    Case(
        "STP-01", "a stop string arrives letter by letter, in words and at once",
        "everything before it is sent, blanks included, and nothing of it",
        (STREAMS + "nothing_of_a_stop_string_is_sent_and_all_before_it_is",),
    ),
    Case(
        "STP-03", "a stop string occurs in the thought and again in the answer",
        "the thought stays whole, and the answer ends at the stop",
        (DIALECTS + "a_stop_in_the_thought_ends_nothing_and_the_one_in_the_answer_does",),
    ),
    Case(
        "STP-06", "stop is null, empty, a list of empties, of five, of a number, of a null character",
        "none means none, an empty or a number is refused, five work, and no reply ends at once",
        (STREAMS + "odd_stop_strings_are_none_or_refused_and_end_no_reply",),
    ),
    Case(
        "TC-01", "a model writes a call in its family's own markup",
        "one structured call, no markup in the text, finished by tool_calls",
        (DIALECTS + "a_call_in_its_familys_markup_is_one_structured_call",
         DIALECTS + "a_form_that_the_family_does_not_use_is_text",
         "domain/conversation/dialects/test_every_dialect.py::test_a_written_call_is_read_back_however_it_is_cut"),
    ),
    Case(
        "TC-03", "the first of two calls is broken, the second is good",
        "the good one is delivered whole, the broken one is not turned into an empty call",
        (DIALECTS + "a_good_call_behind_a_broken_one_is_delivered_and_the_broken_one_is_text",),
    ),
    Case(
        "TC-04", "parameters that may be an object or null, and a list, written between tags",
        "the arguments hold the JSON values and no texts of JSON",
        (DIALECTS + "values_between_tags_are_the_json_that_the_schema_takes",),
    ),
    Case(
        "TC-07", "a call is streamed", "its first delta has index, id, type and whole name, later ones arguments alone",
        (DIALECTS + "the_first_delta_of_a_call_has_its_id_and_whole_name_and_later_ones_arguments_alone",),
    ),
    Case(
        "TC-09", "the same call behind some text, streamed and whole",
        "finished by tool_calls both ways, with a content key",
        (DIALECTS + "a_call_behind_some_text_ends_the_reply_as_a_call_with_the_text_kept",),
    ),
    Case(
        "TC-11", "a call follows a thought that was never closed",
        "it is delivered as a call and does not vanish in the thought",
        (DIALECTS + "a_call_behind_a_thought_that_was_never_closed_is_a_call",),
    ),
    Case(
        "TC-14", "a reply holds the markup of a call though the request has no tools, an empty list, or chooses none",
        "the requests are taken, and the markup is text",
        (STREAMS + "markup_of_a_call_is_text_where_no_tool_may_be_called",
         DIALECTS + "markup_of_a_call_is_text_where_no_tool_is_offered",
         DIALECTS + "a_call_of_another_tool_is_not_made_one_of_an_offered_tool"),
    ),
    Case(
        "RSN-01", "the prompt opens the thought, so that the reply only closes it",
        "thought and answer are told apart without a tag in either",
        (DIALECTS + "a_thought_that_the_prompt_opened_is_told_from_the_answer",),
    ),
    Case(
        "RSN-03", "the limit falls inside the thought", "all of it is thought, the content is empty",
        (DIALECTS + "a_limit_inside_the_thought_leaves_the_answer_empty",),
    ),
    Case(
        "RSN-06", "the answer quotes the tags of a thought", "they are text and open nothing",
        (DIALECTS + "tags_that_the_answer_quotes_are_text",),
    ),
    Case(
        "TPL-01", "system messages behind the first user turn, and two at the beginning",
        "their text reaches the prompt, whatever the template takes",
        (REQUESTS + "a_system_message_reaches_the_prompt_wherever_it_stands",
         "adapters/tokenization/test_template_traits.py::"
         "test_a_late_system_message_reaches_the_prompt_of_every_kind_of_template"),
    ),
    Case(
        "TPL-03", "roles that are unknown, missing or numbers; messages that are none, empty, a text, a list of texts",
        "a 400 that says which message and why",
        (REQUESTS + "a_conversation_that_is_none_is_refused_with_the_place_of_what_is_wrong",),
    ),
    Case(
        "TPL-04", "the second turn of a tool loop: a call with null content, then its result",
        "both reach the prompt, and no None or null is written out",
        (REQUESTS + "a_call_without_text_and_its_result_reach_the_prompt",
         "adapters/tokenization/test_template_traits.py::test_a_templates_traits_are_what_it_renders"),
    ),
    Case(
        "TPL-06", "a tool's result comes as a list of text parts",
        "the prompt is that of the joined text", (REQUESTS + "a_result_in_parts_is_the_prompt_of_the_joined_text",),
    ),
    Case(
        "TPL-07", "contents of one part, two, none, a part without a type, an image",
        "text parts are the joined text; anything else is a 400 that names the part",
        (REQUESTS + "parts_of_text_are_the_prompt_of_the_joined_text_and_other_parts_are_refused_by_place",),
    ),
    Case(
        "TPL-11", "template and tokenizer would both write the first token",
        "it stands once at the beginning of a chat's prompt, and not at all where there is none",
        ("adapters/tokenization/test_template.py::"
         "test_a_prompt_has_one_first_token_though_template_and_tokenizer_would_both_write_it",
         "adapters/tokenization/test_tokenizer.py::test_no_token_is_added_unless_asked_for"),
        note="a raw prompt runs as given, without a first token of its own",
    ),
    Case(
        "TPL-12", "a template in a file of its own and another in the tokenizer's configuration, then each alone",
        "the file wins, each alone works, and info says which it is",
        ("adapters/tokenization/test_tokenizer_config.py::test_the_jinja_file_wins_over_the_configuration",
         "adapters/tokenization/test_tokenizer_config.py::test_each_file_alone_is_read",
         "entrypoints/test_model_commands.py::test_info_tells_what_is_here_and_where_the_template_is_read"),
    ),
    Case(
        "REQ-01", "every optional field is null", "null is no field at all", (REQUESTS + "null_is_no_field_at_all",),
    ),
    Case(
        "REQ-03", "the newer limit of tokens alone, and beside a larger older one", "the newer one counts",
        (REQUESTS + "the_newer_limit_of_tokens_counts",),
    ),
    Case(
        "REQ-05", "several choices are asked for, one, none, null, streamed too",
        "one is given; two and none are refused by name",
        (REQUESTS + "one_choice_is_given_and_more_or_none_are_refused",),
    ),
    Case(
        "REQ-07", "fields that agents send and nobody here knows, on the request, its messages and tools",
        "they are ignored", (REQUESTS + "fields_that_nobody_here_knows_are_ignored",),
    ),
    Case(
        "REQ-09", "biases of tokens, good ones and malformed ones", "all are refused by name, none is forgotten",
        (REQUESTS + "a_bias_of_tokens_is_refused_by_name_and_never_forgotten",),
    ),
    Case(
        "REQ-10", "models that are unknown, empty, absent, a path, in other letters",
        "the request is served, loads nothing, and the reply names the served model",
        (REQUESTS + "whatever_model_is_asked_for_the_reply_names_the_one_that_spoke",
         "entrypoints/http/test_streams.py::test_the_model_shown_is_a_served_one_whatever_was_asked"),
    ),
    Case(
        "HTTP-01", "bodies that are no JSON, nearly JSON, empty, twice JSON", "a 400 in the shape of the API",
        (HTTP + "a_body_that_is_no_json_object_is_a_400_in_json",),
    ),
    Case(
        "HTTP-06", "packed bodies, a plain one that says it is packed, one that swells",
        "read, or refused naming the encoding; the swelling stops at the limit",
        (HTTP + "a_packed_body_is_read_and_one_that_lies_or_swells_is_refused",),
    ),
    Case(
        "HTTP-07", "a browser's page asks beforehand, without a key, at a server that has one",
        "it learns what it may send; the request itself without a key is a 401",
        (HTTP + "a_page_asks_beforehand_without_a_key_and_its_request_without_one_is_refused",),
        note="for the origins that --cors lists",
    ),
    Case(
        "HTTP-09", "HEAD, wrong methods, a slash at the end, two at the beginning, a doubled prefix, capitals",
        "answered in JSON: as GET without a body, 405 with the methods, or 404",
        (HTTP + "odd_methods_and_paths_are_answered_in_json",),
    ),
    Case(
        "HTTP-11", "good JSON under the types of forms and texts, no type, with charsets",
        "read all the same; what really is UTF-16 is refused",
        (HTTP + "json_is_read_whatever_its_type_is_said_to_be", HTTP + "json_that_is_really_utf_16_is_refused"),
    ),
    Case(
        "RUN-01", "a client leaves a long stream; another asks at once, with one lane",
        "the first reply ends soon, the second does not wait for its whole length",
        (HTTP + "a_client_that_leaves_a_long_reply_frees_the_one_lane_for_the_next_at_once",
         "end_to_end/test_leaving.py::"
         "test_sixty_clients_that_leave_at_random_points_leave_nothing_behind_and_change_no_reply"),
    ),
    Case(
        "RUN-02", "clients leave while their prompts are read, before any byte of a reply",
        "the reading stops, and nothing is left",
        (HTTP + "clients_that_leave_while_their_prompt_is_read_stop_its_reading",),
    ),
    Case(
        "RUN-06", "a client opens a stream and never reads", "others keep their pace, and it is dropped in the end",
        (HTTP + "a_client_that_reads_nothing_holds_up_nobody",
         "entrypoints/http/test_server.py::test_a_client_that_never_reads_is_dropped_and_others_keep_their_pace",
         "entrypoints/http/test_server.py::"
         "test_nothing_of_a_request_or_a_reply_spills_to_disk_and_bodies_have_a_bound_beyond_ours"),
    ),
    Case(
        "RUN-07", "a second server is started on a port in use, on the same address and on all",
        "it ends before it loads, naming the address; the first keeps its clients",
        ("end_to_end/test_serve_tiny.py::test_a_taken_port_is_refused_in_one_line",
         "entrypoints/http/test_server.py::"
         "test_a_port_in_use_is_refused_with_its_address_and_the_first_server_keeps_it"),
    ),
    Case(
        "RUN-09", "forty chats over every thread of one server on MLX, the record looked at and emptied in between",
        "all are answered, each as it is alone",
        (COMMANDS + "forty_chats_over_every_thread_are_answered_while_the_record_is_looked_at_and_emptied",),
        note=f"with {RECURRENT} and with resumed prompts once they are here",
    ),
    Case(
        "RUN-12", "a rank that never starts, one of another checkpoint, one that is killed",
        "a stated time to wait, a refusal, an error and an end", needs=RANKS,
    ),
    Case(
        "CTX-01", "a prompt is longer than the context, whole and streamed",
        "a 400 with both numbers in the words clients look for, and nothing is read",
        (STREAMS + "a_prompt_beyond_the_context_is_refused_with_both_numbers_before_the_stream_opens",),
    ),
    Case(
        "CTX-03", "a prompt fits the context and not the memory that is left",
        "it is refused with what to do, and smaller ones are served",
        ("entrypoints/http/test_memory_refusals.py::test_what_memory_does_not_hold_is_refused_with_what_it_does",),
    ),
    Case(
        "EXA-01", "prompts of three kinds with drafts and without", "the same reply, token for token",
        (REQUESTS + "three_prompts_of_every_kind_get_the_same_reply_with_drafts_and_without",
         "end_to_end/test_serve_tiny.py::test_streamed_whole_serial_and_among_others_a_reply_is_the_same",
         "end_to_end/test_serve_tiny.py::test_drafts_were_kept_and_refused_meanwhile"),
        note="with draft heads once they are here",
    ),
    Case(
        "EXA-04", "an end token stands inside a window whose further drafts are right too",
        "nothing behind it is sent or counted",
        (STREAMS + "nothing_behind_an_end_token_is_sent_or_counted_though_it_was_drafted_rightly",
         "application/test_exactness.py::test_an_end_anywhere_inside_a_fully_right_window_ends_the_reply_there"),
    ),
    Case(
        "EXA-06", "sixteen different requests at once, then each alone", "each reply is the one it gets alone",
        (HTTP + "sixteen_clients_at_once_each_get_the_reply_they_get_alone",),
    ),
    Case(
        "EXA-09", "a recurrent model whose drafts are often refused", "its state and reply are the serial ones",
        needs=RECURRENT,
    ),
    Case(
        "PC-01", "the same request three times", "the same reply each time, never an empty one",
        (HTTP + "the_same_request_three_times_gets_the_same_reply_streamed_and_whole",), needs=PROMPT_CACHE,
    ),
    Case(
        "PC-03", "an earlier turn is edited, the last one asked for again, then the first branch goes on",
        "each reply is that of a fresh server", needs=PROMPT_CACHE,
    ),
    Case(
        "PC-05", "a conversation at once, turn by turn, after a restart and beside others",
        "the same reply in all four", needs=PROMPT_CACHE,
    ),
    Case(
        "PC-08", "a long prefix is shared, streamed and whole",
        "the usage counts the whole prompt, and cached tokens grow", needs=PROMPT_CACHE,
    ),
    Case(
        "LD-01", "the index names a shard that is not there", "refused before the load, naming the file",
        (COMMANDS + "a_shard_that_the_index_names_and_nobody_downloaded_is_named", HUB + "[missing shard-serve]"),
    ),
    Case(
        "LD-03", "single modules are stored at other widths than the rest, under either spelling of their path",
        "each is read at its own width; a width that is not the stored one is refused by the module's name",
        (COMMANDS + "modules_of_other_widths_are_read_at_their_own_however_their_path_is_spelled",
         COMMANDS + "a_module_of_another_width_than_is_stated_is_refused_by_its_name"),
    ),
    Case(
        "LD-06", "three end tokens are listed, and the model ends with any of them",
        "each ends the reply, alone and in windows, and none is text",
        (STREAMS + "every_end_token_of_several_ends_a_reply_and_none_is_text",
         "application/test_loading.py::test_a_sound_checkpoint_is_described_with_end_tokens_of_both_files"),
    ),
    Case(
        "LD-08", "a shard is cut, empty, a web page or states a header beyond all; an index is cut",
        "refused with the file's name and sizes",
        (COMMANDS + "a_damaged_file_is_named_with_its_sizes_and_not_served",),
    ),
    Case(
        "CLI-01", "a pull is killed, cut and goes on; serve tries in between without a network",
        "half a model is never taken for a whole one, and the next pull ends whole",
        (DOWNLOADS + "[killed]", DOWNLOADS + "[cut]", DOWNLOADS + "[first_failure]"),
    ),
    Case(
        "CLI-03", "gated without a token and with one, missing, a missing revision, a bad token",
        "each is told in its own line, and the token is never shown",
        (DOWNLOADS + "[bad_token]", *(f"{HUB}[{what}-{command}]" for what in HUBS for command in ("pull", "serve"))),
    ),
    Case(
        "CLI-06", "a complete model is served while hub, proxy and release site never answer",
        "it serves, and the hub is not asked",
        (COMMANDS + "a_complete_model_is_served_though_neither_hub_nor_proxy_nor_releases_ever_answer",
         "application/test_release_check.py::test_a_start_does_not_wait_for_the_feed"),
    ),
    Case(
        "CLI-07", "two pulls at once, one after a kill, and paths with blanks, other letters, slashes and ~",
        "files are whole, no lock is left, and every form names the same model",
        (DOWNLOADS + "[two_at_once]", DOWNLOADS + "[killed]",
         COMMANDS + "a_folder_is_the_same_model_however_its_path_is_written",
         COMMANDS + "one_line_says_what_a_path_lacks_when_it_names_no_folder"),
        note="--snapshot-dir once snapshots are here",
    ),
    Case(
        "RCL-01", "a second server on a record in use; the first is killed; a third starts",
        "the second reads and may not empty it; the third writes",
        (COMMANDS + "a_record_in_use_is_read_and_after_a_kill_its_lock_is_free",
         RECORD + "a_second_and_a_read_only_server_copy_add_nothing_and_refuse_to_empty"),
    ),
    Case(
        "RCL-04", "replies with the record, without and read-only; a request twice; a low disk; a chunk that stays",
        "the same tokens, nothing added twice, adding pauses, and a failed DELETE names the chunk",
        (RECORD + "a_repeated_request_copies_its_reply_and_again_after_a_restart",
         RECORD + "a_second_and_a_read_only_server_copy_add_nothing_and_refuse_to_empty",
         OVER_STORE + "a_low_disk_pauses_adding_and_says_so_until_there_is_room",
         OVER_STORE + "a_chunk_that_stays_is_named_and_stops_adding_until_a_delete_removes_it"),
    ),
)  # fmt: skip
