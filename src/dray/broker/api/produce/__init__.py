"""Produce (0), versions 3 to 13: append record batches.

- One batch per partition, validated down to its last record (`batches`), at once or in a thread
  (`scheduling`), and stored as it came unless the topic stamps times or names a codec. A partition named
  twice in a request is refused, nothing of it is stored.
- acks -1 and 1 mean the same: the answer comes when the records are in the log. acks 0 gets no answer; if the
  answer would have been an error, the connection is closed. Other acks are refused.
- An unknown topic is not created here: clients ask for its metadata first, which creates it.
- A closed stream means that the topic was deleted: the answer is unknown topic (or id), and what was known of
  it is read again. The records are *not* moved to a new topic of that name: pipelined requests would
  overtake each other on the way there. The client tries again in order.
- A stream that another owner may have is handed over to it, and answered as it answers (`elsewhere`).
- With `routing.enforce_owner`, a partition of another broker is NOT_LEADER_OR_FOLLOWER.
- A transactional id is refused. The client's timeout is not applied: an append that is given up here may
  still happen, and the log ends its own attempts.

Versions:

- v0 to v2: advertised, because librdkafka before 2.8 drops compression when it does not see them, and refused
  as Kafka 4 refuses them: the connection is closed.
- v13: topics are addressed by id.

The requests of one connection reach the log in the order they came in. Most get there within their first
turn; one that has to wait for a thread, for another turn or the store closes a gate behind itself. If a batch
of an idempotent producer was refused on the way, the batches behind it are refused too (`refusals`), until
that batch comes again.
"""

from dray.broker.api.produce.handler import handle

__all__ = ["handle"]
