"""A value for every setting that is not its default, and in which forms the rooms may hold it.

Numbers, sizes and durations are made from the model, each its own. What is left is named here: a setting of
another kind that is new fails the tests until it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.base.config.kinds import Duration, Either, Kind, Size, Whole
from dray.daemons.config.schema import FieldOfModel, fields

TEXTS: Final = {
    "broker.listen": "127.0.0.2:0",
    "broker.http": "127.0.0.3:0",
    "broker.advertised": "kafka.sample:19099",
    "broker.listeners": "{INTERNAL: {address: '127.0.0.4:0', zone: sample-listener-zone}}",
    "broker.advertised_listeners": "{INTERNAL: internal.sample:19098}",
    "broker.zone": "sample-zone",
    "routing.zones": "{sample-zone: 10.77.0.0/16}",
    "broker.rack": "sample-rack",
    "metadata.path": "/sample/metadata.sqlite",
    "objects.url": "s3://sample-bucket/sample-prefix",
    "objects.options": "{region: sample-region}",
    "objects.secrets": "{access_key_id: sample-key}",
    "objects.secrets_directory": str(
        Path(__file__).parent
    ),  # which has no file with the name of a credential
    "topics.defaults": "{retention.ms: 987654321}",
    "compaction.http": "127.0.0.5:0",
    "iceberg.exclude_topics": "sample-*,other-*",
    "iceberg.uri": "sqlite:////sample/catalog.sqlite",
    "iceberg.namespace": "sample.namespace",
    "iceberg.warehouse": "sample-warehouse",
    "iceberg.options": "{sample-option: sample-text}",
    "iceberg.secrets": "{token: sample-token}",
    "spark.master": "local[7]",
    "spark.conf": "{spark.sample: sample-property}",
    "logging.format": "console",
    "logging.level": "error",
}
"""As the environment gives them."""

HELD_AS: Final[dict[str, tuple[str, ...]]] = {
    "routing.zones": ("10.77.0.0/16",),
    "broker.listen": ("127.0.0.2",),
    "broker.http": ("127.0.0.3",),
    "broker.advertised": ("kafka.sample",),
    "broker.listeners": ("127.0.0.4",),
    "broker.advertised_listeners": ("internal.sample",),
    "compaction.http": ("127.0.0.5",),
    "objects.options": ("sample-region",),
    "objects.secrets": ("sample-key",),
    "topics.defaults": ("987654321",),
    "iceberg.exclude_topics": ("sample-*",),
    "iceberg.options": ("sample-text",),
    "iceberg.secrets": ("sample-token",),
    "spark.conf": ("sample-property",),
    "metadata.oxia.secrets": ("sample-oxia-token",),
    "metadata.etcd.secrets": ("sample-password",),
    "metadata.oxia.addresses": ("sample-1:1", "sample-1:1,sample-2:2"),
    "metadata.etcd.endpoints": ("sample-1:1", "sample-1:1,sample-2:2"),
}

FITTING: Final = {
    # They must fit together.
    "cluster.domains": 7,  # there are rooms for each, and their numbers are not to be taken for samples
    "limits.buffer_bytes": 801 << 20,
    "limits.answer_bytes": 802 << 20,
    "limits.frame_bytes": 403 << 20,
    "groups.consumer_session_timeout": 71.109,
}
ALSO_HELD_AS: Final[dict[str, tuple[float, ...]]] = {}


@dataclass(frozen=True, slots=True)
class Sample:
    text: str
    """As an environment variable gives it."""
    forms: frozenset[str | int | float] = field(default_factory=frozenset)


def _inner(kind: Kind) -> Kind:
    return kind.kind if isinstance(kind, Either) else kind


def _number(known: FieldOfModel, kind: Whole | Size | Duration, nth: int) -> Sample:
    if known.key in FITTING:
        value: float = FITTING[known.key]
    elif isinstance(kind, Duration):
        value = round(min(max(kind.minimum, 0.001) * 1.7 + nth * 0.137, kind.maximum), 3)
    elif isinstance(kind, Size):
        value = min(kind.minimum + (1 << 20) + 1000 * nth + 1, kind.maximum - nth)
    else:
        far = kind.minimum + 4001 + nth
        value = far if far <= kind.maximum else 43 if kind.maximum == 100 else kind.maximum - 11
    also = ALSO_HELD_AS.get(known.key, ())
    if isinstance(kind, Duration):
        in_ms = round(value * 1000)
        return Sample(f"{in_ms}ms", frozenset({round(in_ms / 1000, 6), in_ms, *also}))
    return Sample(str(value), frozenset({value, *also}))


def samples() -> dict[str, Sample]:
    """Of every number, size and duration, and of the texts above."""
    found = {}
    for nth, known in enumerate(fields()):
        kind = _inner(known.kind)
        if isinstance(kind, Whole | Size | Duration):
            found[known.key] = _number(known, kind, nth)
        elif known.key in TEXTS:
            text = TEXTS[known.key]
            found[known.key] = Sample(text, frozenset(HELD_AS.get(known.key, (text,))))
    return found
