import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * ConsumeGroup KIND BOOTSTRAP TOPIC GROUP SESSION_MS INSTANCE: one member of a group, which writes what it sees
 * as lines of JSON. SIGTERM ends it gracefully: it commits nothing more, leaves, and ends with 0.
 */
public final class ConsumeGroup implements ConsumerRebalanceListener {
    private static final PrintStream OUT = new PrintStream(System.out, true);

    private volatile boolean stopping = false;
    private volatile int exitCode = 1;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final CountDownLatch ended = new CountDownLatch(1);

    private ConsumeGroup(Map<String, Object> settings) {
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) {
        ConsumeGroup member = new ConsumeGroup(settings(arguments));
        Runtime.getRuntime().addShutdownHook(new Thread(member::stop));
        try {
            member.run(arguments[2]);
            member.exitCode = 0;
        } finally {
            member.ended.countDown();
        }
    }

    private static Map<String, Object> settings(String[] arguments) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "50");
        settings.put("max.poll.interval.ms", "20000");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.ms", "50");
        settings.put("check.crcs", "true");
        if (!arguments[5].isEmpty()) {
            settings.put("group.instance.id", arguments[5]);
        }
        switch (arguments[0]) {
            case "java-consumer" -> settings.put("group.protocol", "consumer");
            case "java-range" -> classic(settings, "RangeAssignor", arguments[4]);
            case "java-cooperative" -> classic(settings, "CooperativeStickyAssignor", arguments[4]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        return settings;
    }

    private static void classic(Map<String, Object> settings, String assignor, String sessionMs) {
        settings.put("group.protocol", "classic");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        settings.put("session.timeout.ms", sessionMs);
        settings.put("heartbeat.interval.ms", "300");
    }

    private void run(String topic) {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!stopping) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    tell("record", record.partition(), record.offset());
                    ends.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                if (!ends.isEmpty()) {
                    commit(ends);
                }
            }
        }
        tell("ended", -1, -1);
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> ends) {
        try {
            consumer.commitSync(ends, Duration.ofSeconds(20));
            ends.forEach((place, end) -> tell("committed", place.partition(), end.offset()));
        } catch (KafkaException refused) { // it was given to another meanwhile, who reads it again
            System.err.println("refused: " + refused);
            tell("refused", -1, -1);
        }
    }

    private void stop() {
        stopping = true;
        try {
            ended.await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().halt(exitCode);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        assigned.forEach(place -> tell("assigned", place.partition(), -1));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        revoked.forEach(place -> tell("revoked", place.partition(), -1));
    }

    /** Linux counts Java's nanoTime and Python's monotonic from the same moment. */
    private static void tell(String what, int partition, long offset) {
        OUT.printf(
                "{\"at\": %.9f, \"what\": \"%s\", \"partition\": %d, \"offset\": %d}%n",
                System.nanoTime() / 1e9, what, partition, offset);
    }
}
