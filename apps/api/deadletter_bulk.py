"""Many dead letters by filter: replayed, or closed without a run."""

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.bulk_wishes import bulk
from apps.api.deadletter_lists import TAG
from apps.api.documents_operations import wish_input
from apps.api.endpoint import retry_safe
from apps.api.wishes import WishEndpoint
from apps.operations.filters import LETTER_NAMES
from apps.operations.kinds.letters import PARAMS

DeadLettersReplayWishInput = wish_input("DeadLettersReplayWishInput", LETTER_NAMES, "job", PARAMS)
DeadLettersWishInput = wish_input("DeadLettersWishInput", LETTER_NAMES, "job")


class DeadLettersBulkReplay(WishEndpoint):
    """Running many dead executions again."""

    actions = {"POST": "deadletter.replay"}
    action, target = "replay", "dead_letters"

    @bulk("dead_letters_bulk_replay", "Replay open dead letters by filter", body=DeadLettersReplayWishInput, tag=TAG)
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class DeadLettersBulkResolve(WishEndpoint):
    """Closing many dead letters."""

    actions = {"POST": "deadletter.resolve"}
    action, target = "resolve", "dead_letters"

    @bulk(
        "dead_letters_bulk_resolve", "Close open dead letters by filter without a run", body=DeadLettersWishInput,
        tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()
