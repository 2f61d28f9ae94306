import java.io.FileInputStream;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** SecureTour FILE...: with the properties of each file, produces, reads in a group, and describes; a line each. */
public final class SecureTour {
    private static final int RECORDS = 10;

    private SecureTour() {}

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties given = new Properties();
            try (FileInputStream input = new FileInputStream(file)) {
                given.load(input);
            }
            String name = Path.of(file).getFileName().toString();
            System.out.println(name + " " + tour(given, "java-" + name));
        }
    }

    private static String tour(Properties given, String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, new byte[] {(byte) number})).get();
            }
        }
        int seen = 0;
        Properties reading = new Properties();
        reading.putAll(given);
        reading.put("group.id", topic);
        reading.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (seen < RECORDS && System.nanoTime() < end) {
                seen += consumer.poll(Duration.ofMillis(500)).count();
            }
        }
        try (Admin admin = Admin.create(given)) {
            int brokers = admin.describeCluster().nodes().get().size();
            int partitions =
                    admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            return seen + " " + brokers + " " + partitions;
        }
    }
}
