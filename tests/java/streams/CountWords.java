import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * CountWords BOOTSTRAP DIRECTORY: counts the keys of "words", and keeps the last value of each key of "users", both in
 * memory: so a start restores them from their changelogs, to the last record. A line of input asks for the stores; the
 * answers are how many records were restored, the counts and the users. It ends when the input does.
 */
public final class CountWords {
    private CountWords() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "count-words");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", 1);
        Map<String, String> changelog =
                Map.of("delete.retention.ms", "0", "min.cleanable.dirty.ratio", "0");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
                .groupByKey()
                .count(
                        Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.Long())
                                .withLoggingEnabled(changelog));
        builder.<String, String>table(
                "users",
                Materialized.<String, String>as(Stores.inMemoryKeyValueStore("users"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.String())
                        .withLoggingEnabled(changelog));
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setGlobalStateRestoreListener(new Restored(restored));
            streams.start();
            long deadline = System.nanoTime() + Duration.ofSeconds(120).toNanos();
            while (streams.state() != KafkaStreams.State.RUNNING) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("it does not come to run: " + streams.state());
                }
                Thread.sleep(20);
            }
            BufferedReader orders =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            while (orders.readLine() != null) {
                System.out.println(restored.get() + "\t" + all(streams, "counts") + "\t" + all(streams, "users"));
            }
        }
    }

    private static String all(KafkaStreams streams, String name) {
        ReadOnlyKeyValueStore<String, Object> store =
                streams.store(
                        StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.keyValueStore()));
        TreeMap<String, Object> found = new TreeMap<>();
        try (KeyValueIterator<String, Object> rows = store.all()) {
            while (rows.hasNext()) {
                KeyValue<String, Object> row = rows.next();
                found.put(row.key, row.value);
            }
        }
        StringBuilder text = new StringBuilder();
        found.forEach((key, value) -> text.append(key).append('=').append(value).append(' '));
        return text.toString().trim();
    }

    private static final class Restored implements StateRestoreListener {
        private final AtomicLong total;

        Restored(AtomicLong total) {
            this.total = total;
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
            total.addAndGet(count);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {}
    }
}
