"""The metrics of compaction by key: what of compacted topics is clean, dirty and in no file yet."""

from __future__ import annotations

from dray.compaction.summary import CycleSummary
from dray.log.clean_shares import CleanShares
from dray.telemetry import ProcessMetrics


class ByKeyMetrics:
    """`topics`: how many topics, the dirtiest ones, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, topics: int) -> None:
        self._topics = topics
        make = metrics.instruments
        self._removed = make.counter(
            "dray_compaction_by_key_removed_records", "Records that compaction by key left out of files"
        )
        self._records = make.gauges(
            "dray_compaction_by_key_records", "Records of compacted topics, by what they are", "part"
        )
        self._bytes = make.gauges(
            "dray_compaction_by_key_bytes", "Bytes of compacted topics, by what they are", "part"
        )
        self._last = make.gauge(
            "dray_compaction_by_key_last_timestamp_seconds",
            "When a partition last became clean, as Unix time; 0 if none has",
        )
        self._dirty = make.gauges(
            "dray_compaction_topic_dirty_bytes",
            "Of the dirtiest topics: bytes of files not compacted by key",
            "topic",
        )
        self._ratio = make.gauges(
            "dray_compaction_topic_dirty_ratio", "Of the same: their share of the bytes of files", "topic"
        )
        self._show_parts(CleanShares())

    def show(self, summary: CycleSummary) -> None:
        self._removed.value += summary.removed_by_key
        by_topic = summary.clean_shares
        self._show_parts(sum(by_topic.values(), CleanShares()))
        worst = sorted(by_topic, key=lambda topic: (-by_topic[topic].dirty.size, topic))[: self._topics]
        for family in (self._dirty, self._ratio):
            family.keep_only((topic,) for topic in worst)
        for topic in worst:
            self._dirty.labels(topic).value = by_topic[topic].dirty.size
            self._ratio.labels(topic).value = by_topic[topic].dirty_ratio

    def _show_parts(self, shares: CleanShares) -> None:
        for part, share in (("clean", shares.clean), ("dirty", shares.dirty), ("waiting", shares.waiting)):
            self._records.labels(part).value = share.records
            self._bytes.labels(part).value = share.size
        self._last.value = (shares.cleaned_ms or 0) / 1000
