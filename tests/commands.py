"""Management commands, run in this process."""

import io

from django.core.management import call_command


def run_command(*args: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command(*args, stdout=out, stderr=err)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()
