import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with Kafka's own consumer and its defaults, all partitions assigned, no group.
 *
 * <p>ConsumerPerformance always joins a group; this measures the same client on brokers without.
 * Prints one line: messages, bytes, milliseconds from the first poll to the last message.
 */
public final class AssignedConsumer {
    public static void main(String[] args) {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long wanted = Long.parseLong(args[3]);

        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());

        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < partitions; p++) {
            all.add(new TopicPartition(topic, p));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long messages = 0;
            long bytes = 0;
            long began = System.nanoTime();
            long movedAt = began;
            while (messages < wanted) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    messages++;
                    bytes += record.value().length;
                    movedAt = System.nanoTime();
                }
                if (System.nanoTime() - movedAt > 60_000_000_000L) {
                    System.err.println("nothing arrived for a minute, after " + messages);
                    System.exit(1);
                }
            }
            System.out.println(messages + " " + bytes + " " + (movedAt - began) / 1_000_000);
        }
    }
}
