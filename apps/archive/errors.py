"""What may be wrong with an archive."""

from kernel.errors import Conflict, ShardbeatError


class ArchiveOff(Conflict):
    """ARCHIVE_URL is not set."""

    code = "archive_off"

    def __init__(self) -> None:
        super().__init__("There is no archive: ARCHIVE_URL is not set.")


class ArchiveUnreachable(ShardbeatError):
    """The store of the files does not answer, or refuses; later it may."""

    code = "archive_unreachable"
    status = 503


class ArchiveDamaged(ShardbeatError):
    """A file is missing, or is not what was written."""

    code = "archive_damaged"
    status = 500
