"""How many dead letters are replayed at once: what the page of a selection and the verb of a cause both ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.operations.pacing import NAMES, RATE_MAX, RATE_MIN, WHOLE_MAX, Pace
from kernel.errors import Faults


class ReplayFields(forms.Form):
    """How fast it goes, and as what; empty is no limit."""

    canary = forms.IntegerField(
        min_value=1, max_value=WHOLE_MAX, required=False, help_text="So many first; the others when these succeeded."
    )
    rate_per_s = forms.FloatField(min_value=RATE_MIN, max_value=RATE_MAX, required=False, help_text="A second at most.")
    max_in_flight = forms.IntegerField(min_value=1, max_value=WHOLE_MAX, required=False, help_text="Runs at once.")
    stop_after_failures = forms.IntegerField(min_value=1, max_value=WHOLE_MAX, required=False)
    new_key = forms.BooleanField(required=False, help_text="As new executions, with run keys of their own.")


def pace_given(given: Mapping[str, Any]) -> Pace:
    """Of the fields that were filled in. InvalidInput."""
    faults = Faults()
    pace = Pace().changed({name: given[name] for name in NAMES if given.get(name) is not None}, faults)
    faults.raise_if_any()
    return pace
