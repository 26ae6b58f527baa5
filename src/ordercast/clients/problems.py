"""Errors of JetStream, as clients know them."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """An error of JetStream."""

    code: int
    err_code: int
    description: str


BAD_REQUEST = Problem(400, 10003, "bad request")
INVALID_JSON = Problem(400, 10025, "invalid JSON")
NO_STREAM = Problem(404, 10059, "stream not found")
NO_CONSUMER = Problem(404, 10014, "consumer not found")
NO_MESSAGE = Problem(404, 10037, "no message found")
OTHER_STREAM = Problem(400, 10060, "expected stream does not match")
NAME_TAKEN = Problem(400, 10013, "consumer name already in use")
UNAVAILABLE = Problem(503, 10008, "JetStream system temporarily unavailable")
TOO_MANY = Problem(400, 10026, "maximum consumers limit reached")
TOO_MANY_REPLICAS = Problem(400, 10126, "consumer config replica count exceeds parent stream")
WILDCARDS = Problem(400, 10079, "consumer deliver subject has wildcards")
PUSH_WAITING = Problem(400, 10080, "consumer in push mode can not set max waiting")
SHORT_HEARTBEAT = Problem(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
PULL_HEARTBEAT = Problem(400, 10088, "consumer idle heartbeat requires a push based consumer")
PULL_FLOW_CONTROL = Problem(400, 10089, "consumer flow control requires a push based consumer")
NO_HEARTBEAT = Problem(400, 10108, "consumer with flow control also needs heartbeats")
START = Problem(400, 10094, "consumer delivery policy is deliver")
STREAM_IN_USE = Problem(400, 10058, "stream name already in use with a different configuration")
TOO_MANY_STREAMS = Problem(400, 10027, "maximum number of streams reached")
WRONG_LAST = Problem(400, 10071, "wrong last sequence")
TOO_LARGE = Problem(400, 10054, "message size exceeds maximum allowed")
FULL = Problem(503, 10077, "maximum bytes exceeded")
NO_DELETING = Problem(500, 10057, "message delete not permitted")
NO_TTL = Problem(400, 10166, "per-message TTL is disabled")
WRONG_TTL = Problem(400, 10165, "invalid per-message TTL")
NO_ROLLUP = Problem(500, 10111, "rollup not permitted")


def unsupported(what: str) -> Problem:
    """JetStream has it, and this stream does not."""
    return BAD_REQUEST._replace(description=f"{what} is not supported")
