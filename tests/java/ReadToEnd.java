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

/** ReadToEnd BOOTSTRAP TOPIC START,START...: offsets read until the position is the end, with few bytes and many. */
public final class ReadToEnd {
    private ReadToEnd() {}

    public static void main(String[] arguments) {
        TopicPartition assigned = new TopicPartition(arguments[1], 0);
        for (int most : new int[] {1, 1 << 20}) {
            Map<String, Object> settings =
                    Map.of(
                            "bootstrap.servers", arguments[0],
                            "enable.auto.commit", "false",
                            "check.crcs", "true",
                            "auto.offset.reset", "none",
                            "max.partition.fetch.bytes", most);
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.assign(List.of(assigned));
                long end = consumer.endOffsets(List.of(assigned)).get(assigned);
                for (String start : arguments[2].split(",")) {
                    System.out.println(most + " " + start + ": " + read(consumer, assigned, start, end));
                }
            }
        }
    }

    private static List<Long> read(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition assigned, String start, long end) {
        List<Long> found = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        // Of an earlier epoch than the topic's: the consumer asks where that epoch ended before it reads.
        consumer.seek(assigned, new OffsetAndMetadata(Long.parseLong(start), Optional.of(3), ""));
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
