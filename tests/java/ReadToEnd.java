import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** ReadToEnd BOOTSTRAP TOPIC BYTES EPOCH START...: offsets read until the position is the end, a line for each. */
public final class ReadToEnd {
    private ReadToEnd() {}

    public static void main(String[] arguments) {
        TopicPartition assigned = new TopicPartition(arguments[1], 0);
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "enable.auto.commit", "false",
                        "check.crcs", "true",
                        "auto.offset.reset", "none",
                        "fetch.max.bytes", arguments[2],
                        "max.partition.fetch.bytes", arguments[2]);
        int epoch = Integer.parseInt(arguments[3]);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(assigned));
            long end = consumer.endOffsets(List.of(assigned)).get(assigned);
            for (int place = 4; place < arguments.length; place++) {
                StringBuilder line = new StringBuilder(arguments[place]);
                for (long offset : read(consumer, assigned, arguments[place], epoch, end)) {
                    line.append(' ').append(offset);
                }
                System.out.println(line);
            }
        }
    }

    private static List<Long> read(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition assigned, String start, int epoch, long end) {
        List<Long> found = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        // Of an earlier epoch than the topic's: the consumer asks where that epoch ended before it reads.
        consumer.seek(assigned, new OffsetAndMetadata(Long.parseLong(start), Optional.of(epoch), ""));
        while (consumer.position(assigned) < end) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the position stays at " + consumer.position(assigned));
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                found.add(record.offset());
            }
        }
        return found;
    }
}
