"""Log lines: readable by default, one JSON object a line with LOG_JSON=1. Secrets never reach a log call."""

from typing import Any

import structlog


def logging_config(*, level: str, as_json: bool) -> dict[str, Any]:
    """The dictConfig of every process of the platform."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    # Tracebacks are plain: the pretty form prints local variables, passwords among them.
    plain = structlog.dev.plain_traceback
    renderer: Any = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)
    if as_json:
        renderer = structlog.processors.JSONRenderer()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, stamp],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *([structlog.processors.format_exc_info] if as_json else []),
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"django.server": {"handlers": ["stderr"], "propagate": False}},
    }
