import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** FetchLines BOOTSTRAP TOPIC PARTITION OFFSET COUNT [RACK]: records to stdout. */
public final class FetchLines {
    private FetchLines() {}

    public static void main(String[] arguments) {
        TopicPartition assigned = new TopicPartition(arguments[1], Integer.parseInt(arguments[2]));
        int left = Integer.parseInt(arguments[4]);
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        String rack = arguments.length > 5 ? arguments[5] : "";
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "enable.auto.commit", "false",
                        "check.crcs", "true",
                        "client.rack", rack);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(assigned));
            consumer.seek(assigned, Long.parseLong(arguments[3]));
            while (left > 0) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(left + " records did not come");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (left-- > 0) {
                        System.out.println(Lines.of(record));
                    }
                }
            }
        }
    }
}
