import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * RenewSessions FILE TOPIC SECONDS: produces and reads in a group for so long, with the properties of the file. One
 * line: records sent, failed and read; then of the producer and of the consumer how often they authenticated again,
 * how often that failed, and how many connections were closed on them.
 */
public final class RenewSessions {
    private RenewSessions() {}

    public static void main(String[] arguments) throws Exception {
        Properties given = new Properties();
        try (FileInputStream input = new FileInputStream(arguments[0])) {
            given.load(input);
        }
        String topic = arguments[1];
        given.put("retries", "0");
        given.put("enable.idempotence", "false");
        given.put("group.id", topic);
        given.put("auto.offset.reset", "earliest");
        long end = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[2])).toNanos();
        AtomicLong failed = new AtomicLong();
        long sent = 0;
        long seen = 0;
        try (KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
                KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (System.nanoTime() < end) {
                for (int number = 0; number < 20; number++, sent++) {
                    producer.send(new ProducerRecord<>(topic, new byte[1000]), (metadata, error) -> {
                        if (error != null) {
                            failed.incrementAndGet();
                            error.printStackTrace();
                        }
                    });
                }
                seen += consumer.poll(Duration.ofMillis(50)).count();
            }
            producer.flush();
            long patience = System.nanoTime() + Duration.ofMinutes(1).toNanos();
            while (seen < sent - failed.get() && System.nanoTime() < patience) {
                seen += consumer.poll(Duration.ofMillis(500)).count();
            }
            System.out.println(sent + " " + failed.get() + " " + seen + " " + told(producer.metrics()) + " "
                    + told(consumer.metrics()));
        }
    }

    private static String told(Map<MetricName, ? extends Metric> metrics) {
        return total(metrics, "successful-reauthentication-total") + " "
                + total(metrics, "failed-reauthentication-total") + " " + total(metrics, "connection-close-total");
    }

    private static long total(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
                .filter(each -> each.getKey().name().equals(name) && !each.getKey().tags().containsKey("node-id"))
                .mapToLong(each -> ((Number) each.getValue().metricValue()).longValue())
                .sum();
    }
}
