"""The Celery app, the batch task and the executors. Importing the package makes `platform/` a source root too."""

import sys
from pathlib import Path

_PLATFORM = str(Path(__file__).resolve().parent.parent / "platform")
if _PLATFORM not in sys.path:  # `celery -A workers.app` starts here, with nothing but the repository's root
    sys.path.insert(1, _PLATFORM)
