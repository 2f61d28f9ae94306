"""The same requests to Apache Kafka and to Dray, the same answers expected.

A case is a function that talks to a broker through a `Session`, which writes down every answer without what
must differ (times, ids, texts). Kafka's notes are kept under `tests/fixtures` (`referee` and `golden`), so
that the comparison also runs where there is no Java.
"""
