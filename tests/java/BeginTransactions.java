import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringSerializer;

/** BeginTransactions BOOTSTRAP ID: what a producer with that transactional id is told, in one line. */
public final class BeginTransactions {
    public static void main(String[] arguments) {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", arguments[0],
                "transactional.id", arguments[1],
                "max.block.ms", "60000"));
        StringSerializer serializer = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, serializer, serializer)) {
            producer.initTransactions();
            System.out.println("begun");
        } catch (RuntimeException error) {
            System.out.println(error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }
}
