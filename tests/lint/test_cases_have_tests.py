"""Each case of the handed files and each guarantee has tests that assert it, by name; one that goes away fails here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.schedules.cases import read_cases

ROOT = Path(__file__).resolve().parents[2]
POLICY, POLICIES, RACES = "schedules/test_policy_cases.py", "flow/test_fire_policies.py", "flow/test_fire_races.py"
FAULTS = "flow/test_release_faults.py"
FIRE, KEEPER, RECONCILE, RELEASE = (f"flow/test_{name}.py" for name in ("fire", "keeper", "reconcile", "release"))
HTTP, REDIRECTS, RULES = (f"executors/test_http_{name}.py" for name in ("cases", "redirects", "rules"))
DAG, RUNS, DAG_API = "workflows/test_cases.py", "workflows/test_cases_runs.py", "api/test_workflows.py"
TENANCY, DELETION = "tenants/test_public_cases.py", "tenants/test_deletion.py"
TESTS: dict[str, dict[str, tuple[str, ...]]] = {
    "dispatcher.jsonl": {
        "B02": (
            f"{POLICY}::test_b02_pausing_leaves_no_debt",
            f"{POLICIES}::test_however_it_is_paused_it_goes_on_alike",
        ),
        "B04": (
            f"{POLICY}::test_b04_a_night_down",
            f"{POLICIES}::test_a_bounded_catch_up_keeps_the_newest_and_lists_the_rest",
        ),
        "B05": (f"{POLICY}::test_b05_a_laptop_sleeps", f"{POLICIES}::test_a_timeline_fires_what_the_case_says"),
        **dict.fromkeys(
            ("B06", "B09", "B10", "B15", "B16"),
            (f"{POLICY}::test_timelines", f"{POLICIES}::test_a_timeline_fires_what_the_case_says"),
        ),
        "B08": (f"{POLICY}::test_b08_saving_one_schedule_fires_no_other",),
        "B12": ("flow/test_expiry.py::test_b12_what_waited_for_too_long_in_the_queue_is_dropped_and_can_be_seen",),
        "B13": (
            f"{POLICY}::test_b13_a_shorter_interval_counts_from_the_edit",
            f"{POLICIES}::test_an_edit_counts_from_now",
        ),
        "B17": (f"{POLICY}::test_b17_b18_instants_are_not_read_again_in_another_zone",),
        "B18": (f"{POLICY}::test_b17_b18_instants_are_not_read_again_in_another_zone",),
        "B20": (f"{KEEPER}::test_an_error_while_acquiring_serves_nothing",),
        "B21": (f"{KEEPER}::test_a_lease_shorter_than_three_renewals_is_refused",),
        "B23": (f"{KEEPER}::test_ids_are_unique_per_start",),
        "B25": (f"{POLICY}::test_b25_a_slot_between_two_passes_is_found_by_the_next_one",),
        "B27": (
            f"{POLICY}::test_b27_a_cursor_ahead_of_the_clock_is_found_and_made_anew",
            "flow/test_clock.py::test_a_clock_fix_silences_nobody",
        ),
        "B28": (f"{KEEPER}::test_a_wrong_clock_owns_nothing",),
        "B29": ("flow/test_fire_faults.py::test_nothing_is_fired_by_a_clock_that_can_not_be_right",),
        "B30": ("flow/test_settle.py::test_a_workers_wrong_clock_moves_neither_the_end_nor_the_retry",),
        "B31": (f"{RACES}::test_saving_twenty_times_at_once_leaves_one_pending_slot",),
        "B32": (f"{RACES}::test_delete_and_make_again_starts_anew",),
        "B33": (f"{FIRE}::test_a_payload_edit_is_used_by_the_next_run_and_not_by_the_queued_one",),
        "B35": (f"{POLICY}::test_b35_jitter_stays_before_the_next_run",),
        "B39": (
            f"{POLICY}::test_b39_a_busy_second_is_no_misfire",
            f"{POLICIES}::test_a_run_within_its_grace_is_not_missed",
        ),
        "B40": (f"{FIRE}::test_two_one_shots_for_the_same_instant_both_run",),
        "B42": (
            f"{POLICY}::test_b42_a_skipped_overlap_moves_on",
            f"{POLICIES}::test_overlap_skip_moves_on_and_says_why",
        ),
        "B43": (f"{POLICY}::test_b43_queued_runs_count_as_alive", f"{POLICIES}::test_overlap_counts_what_waits_too"),
        "B44": (f"{POLICY}::test_b44_contradictory_policies_are_refused",),
        "B46": (f"{POLICY}::test_b46_resuming_makes_no_extra_run", f"{POLICIES}::test_pausing_builds_up_no_debt"),
    },
    "worker.jsonl": {
        "C02": ("flow/test_runtime.py::test_two_workers_with_the_same_message_run_it_once",),
        "C03": (f"{RECONCILE}::test_the_runs_of_a_dead_worker_are_lost_and_tried_again",),
        "C05": ("flow/test_runtime_life.py::test_a_dead_workers_runs_are_tried_again_by_another",),
        "C06": ("executors/test_python_executor.py::test_memory_errors_leave_the_pool_usable_c06",),
        "C09": (f"{FAULTS}::test_a_delayed_backlog_is_not_sent_early",),
        "C10": (f"{FAULTS}::test_a_cancelled_run_in_the_queue_is_not_started",),
        "C11": (f"{FIRE}::test_a_cancelled_delayed_execution_holds_nothing_and_never_begins",),
        "C12": (f"{FAULTS}::test_a_delayed_backlog_is_not_sent_early",),
        "C14": (f"{RELEASE}::test_high_priority_goes_first",),
        "C15": ("api/test_jobs.py::test_no_priority_out_of_range_becomes_the_highest_c15",),
        "C17": ("executors/test_conformance.py::test_time_out_ends_the_work_and_frees_its_slot",),
        "C19": ("api/test_lease_ends.py::test_a_lease_that_runs_out_is_an_attempt",),
        "C20": (
            "flow/test_broker_keys.py::test_keys_do_not_pile_up_c20",
            "flow/test_broker_keys.py::test_keys_do_not_pile_up_as_given_c20",
        ),
        "C22": ("kernel/test_backoff.py::test_the_case_of_the_overflow",),
        "C23": ("flow/test_runtime_life.py::test_the_lease_is_the_last_thing_to_stop",),
        "C25": (
            f"{RECONCILE}::test_two_reconcilers_at_once_end_each_attempt_once",
            "flow/test_settle.py::test_two_clean_ups_of_one_crash_are_one",
        ),
        "C26": (f"{RECONCILE}::test_a_lease_that_could_not_be_renewed_because_the_database_was_away_says_nothing",),
        "C27": (f"{RECONCILE}::test_the_runs_of_a_dead_worker_are_lost_and_tried_again",),
        "C28": (f"{RECONCILE}::test_a_job_that_kills_its_worker_each_time_is_dead_after_its_attempts",),
    },
    "http.jsonl": {
        **dict.fromkeys(("E02", "E04", "E08"), (f"{RULES}::test_urls_of_public_cases",)),
        **dict.fromkeys(
            ("E05", "E06"), ("executors/test_http_executor.py::test_a_name_with_an_inside_address_is_blocked",)
        ),
        "E09": (f"{REDIRECTS}::test_credentials_of_public_case_e09",),
        "E11": (f"{HTTP}::test_a_bad_server_costs_one_slot_for_the_time_out_e11",),
        "E12": (f"{HTTP}::test_giant_answers_e12",),
        "E14": (
            f"{HTTP}::test_headers_are_refused_at_save_and_at_send_e14",
            f"{RULES}::test_headers_of_public_case_e14",
        ),
        "E16": ("api/test_public_http_cases.py::test_run_now_works_twice_and_once_per_request_key_e16",),
        "E17": (f"{HTTP}::test_a_time_out_after_the_request_was_sent_is_a_maybe_e17",),
        "E19": ("secrets/test_nowhere.py::test_a_secret_is_nowhere_e19",),
        "E21": (
            "api/test_public_http_cases.py::test_what_a_client_says_of_its_address_resets_no_limit_e21",
            "api/test_rate_limits.py::test_what_the_caller_writes_opens_nothing_and_blames_nobody",
        ),
        "E22": ("api/test_public_http_cases.py::test_no_answer_without_a_key_e22",),
        "E23": (f"{REDIRECTS}::test_chains_of_public_case_e23",),
    },
    "workflow.jsonl": {
        "F02": (
            f"{DAG}::test_f02_two_good_edits_that_make_a_cycle_together",
            f"{DAG_API}::test_of_edits_that_would_close_a_loop_one_wins",
        ),
        "F03": (
            f"{DAG}::test_f03_loops_between_workflows",
            "workflows/test_services.py::test_workflows_do_not_start_themselves",
        ),
        "F05": (
            f"{DAG}::test_f05_a_diamond",
            "workflows/test_engine.py::test_a_diamond_runs_each_step_once_and_ends",
            "workflows/test_workflow_processes.py::test_a_chain_and_a_diamond_run_while_a_worker_dies",
        ),
        "F06": (f"{DAG}::test_f06_a_join_after_a_branch",),
        "F08": (f"{DAG}::test_f08_clean_up_runs_and_what_follows_it",),
        "F10": (
            f"{RUNS}::test_f10_stopped_is_stopped",
            "workflows/test_races.py::test_a_cancel_and_the_end_that_would_start_more",
        ),
        "F12": (f"{RUNS}::test_f12_what_a_person_forces_runs",),
        "F13": (f"{RUNS}::test_f13_what_has_started_keeps_what_it_used",),
        "F14": ("workflows/test_services.py::test_what_a_workflow_names_can_not_go",),
        "F15": (
            f"{DAG_API}::test_a_workflow_from_its_making_to_its_end",
            "workflows/test_services.py::test_an_inline_job_keeps_its_row_until_it_differs",
        ),
        "F17": (
            "workflows/test_special_steps.py"
            "::test_a_step_waits_for_itself_in_the_run_before_and_a_retry_there_needs_no_place",
        ),
        "F19": (
            f"{DAG}::test_f19_a_retry_is_not_seen_by_the_join",
            "workflows/test_engine_against_reference.py::test_a_run_ends_as_the_reference_says",
        ),
        "F20": (
            f"{DAG}::test_f20_a_failed_sub_workflow_fails_its_run_once",
            "workflows/test_special_steps.py::test_two_inner_failures_tell_once",
        ),
    },
    "tenancy.jsonl": {
        "D02": (
            f"{TENANCY}::test_whatever_brings_the_message_the_run_is_its_tenants_d02",
            f"{TENANCY}::test_a_message_of_nobodys_run_starts_nothing_d02",
        ),
        **dict.fromkeys(
            ("D03", "D22"), (f"{FIRE}::test_schedules_of_the_same_name_in_two_tenants_both_fire_in_their_own_schema",)
        ),
        "D04": ("flow/test_messages.py::test_a_message_that_can_not_be_read_starts_nothing",),
        "D07": ("tenants/test_door.py::test_threads_never_read_or_write_another_tenants_rows",),
        "D09": ("tenants/test_provisioning.py::test_a_change_of_a_plan_is_seen_by_all_its_tenants",),
        "D10": (f"{TENANCY}::test_one_person_has_a_role_of_its_own_in_each_tenant_d10",),
        "D11": (f"{TENANCY}::test_ids_of_content_types_are_the_same_everywhere_d11",),
        "D12": (
            f"{DELETION}::test_deleted_is_deleted",
            f"{DELETION}::test_there_is_no_other_way",
            "console/test_shared_pages.py::test_a_tenant_is_marked_for_deletion_and_kept",
            "console/test_shared_pages.py::test_all_tenants_at_once_are_not_deleted",
        ),
        "D14": (
            f"{DELETION}::test_a_killed_process_costs_nothing_and_asking_again_resumes",
            f"{DELETION}::test_one_that_can_not_be_deleted_says_why_and_holds_up_nobody",
        ),
        "D15": ("tenants/test_migrate.py::test_stopped_half_way_it_goes_on_with_the_rest",),
        "D17": ("tenants/test_provisioning.py::test_a_template_without_tables_makes_no_tenant",),
        "D18": (f"{TENANCY}::test_no_model_keeps_files_d18",),
        "D21": (
            f"{TENANCY}::test_a_valid_signature_without_a_tenant_is_nobodys_d21",
            f"{TENANCY}::test_no_tenant_is_not_every_tenant_d21",
        ),
        "D23": (
            f"{RELEASE}::test_a_suspended_tenants_work_waits",
            f"{RELEASE}::test_tenants_are_not_read_for_each_run",
        ),
        "D24": (
            f"{TENANCY}::test_what_is_made_on_a_tenants_host_is_that_tenants_d24",
            f"{TENANCY}::test_the_operators_pages_of_a_schedule_are_for_staff_d24",
        ),
    },
}


GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
ROWS = [line.strip(" |").rsplit(" | ", 1) for line in GUARANTEES.splitlines() if line.startswith("| ")][1:]


@cache
def names(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))


@pytest.mark.parametrize("file", TESTS)
def test_each_case_has_a_test_that_exists(file: str) -> None:
    cases = {each["id"] for each in read_cases(file)}
    assert cases == TESTS[file].keys()
    for number, tests in TESTS[file].items():
        for node in tests:
            path, _, name = node.partition("::")
            assert name in names(path), f"{number}: {node} is not there"


@pytest.mark.parametrize("proof", [proof for _, proof in ROWS], ids=[promise[2:42] for promise, _ in ROWS])
def test_each_guarantee_names_tests_that_exist(proof: str) -> None:
    named = re.findall(r"`([^`]*(?:/|\.py)[^`]*)`", proof)
    assert [one for one in named if one.startswith("tests/")], "nothing proves it"
    for one in named:
        path, _, test = one.partition("::")
        assert (ROOT / path).is_file(), f"{one} is no file: name it from the top, and no folder"
        assert not test or test in names(path.removeprefix("tests/")), f"{one} is not there"
