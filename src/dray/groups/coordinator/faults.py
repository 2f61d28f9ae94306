"""Why a request to a group got no answer from it, each with the code that sends the client the right way."""

from __future__ import annotations

from dray.protocol import ErrorCode


class GroupUnavailable(Exception):
    """Answer the request with this error code; the text is for logs and for APIs that carry one."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class NotCoordinator(GroupUnavailable):
    """Another broker looks after the group, or may by now: the client asks who, and goes there."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, message)


class Unreachable(GroupUnavailable):
    """The metadata store did not do it. Nothing has happened that the group knows of: try again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)


class TooLarge(GroupUnavailable):
    """The group has outgrown what one value of the store may hold. Kafka answers the same way."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
