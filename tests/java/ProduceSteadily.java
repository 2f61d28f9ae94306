import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * ProduceSteadily BOOTSTRAP TOPIC PARTITIONS NAME PAUSE_MS: numbered records until stdin ends, a line for each answer:
 * its number, partition and offset, or its number and the error.
 */
public final class ProduceSteadily {
    private ProduceSteadily() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "acks", "all", "enable.idempotence", "true", "linger.ms", "1");
        int partitions = Integer.parseInt(arguments[2]);
        String name = arguments[3];
        long pause = Long.parseLong(arguments[4]);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long number = 0; System.in.available() == 0; number++) {
                long sent = number;
                String value = name + " " + sent;
                producer.send(
                        new ProducerRecord<>(arguments[1], (int) (sent % partitions), name, value),
                        (metadata, error) -> System.out.println(
                                error == null
                                        ? sent + " " + metadata.partition() + " " + metadata.offset()
                                        : sent + " " + error));
                Thread.sleep(pause);
            }
        }
        System.out.println(".");
    }
}
