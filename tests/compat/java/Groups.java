import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Two members of one group with Kafka's own client, by any of its assignors or by the broker's. */
public final class Groups {
    private static final int PARTITIONS = 4;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    private static final Map<String, Set<Integer>> owned = new HashMap<>();
    private static boolean ready = false;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], group = args[2], assignor = args[3];
        var left = new AtomicInteger(Integer.parseInt(args[4]));
        var pool = Executors.newFixedThreadPool(2);
        var lives = List.of("a", "b").stream().map(member -> pool.submit(() -> {
            read(member, topic, settings(bootstrap, group, assignor), left);
            return null;
        })).toList();
        pool.shutdown();
        for (var life : lives) {
            life.get();
        }
    }

    private static Map<String, Object> settings(String bootstrap, String group, String assignor) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest"));
        if (ASSIGNORS.containsKey(assignor)) {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(assignor));
            settings.put("heartbeat.interval.ms", 200);
        } else {
            settings.put("group.protocol", "consumer");
        }
        return settings;
    }

    private static void read(String member, String topic, Map<String, Object> settings, AtomicInteger left)
            throws Exception {
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(topic), new Listener(member));
            while (left.get() > 0) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    print(Map.of("member", member, "partition", record.partition(),
                        "offset", record.offset(), "value", record.value()));
                    left.decrementAndGet();
                }
            }
        } // commits what was read
    }

    private record Listener(String member) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            synchronized (owned) {
                var own = owned.computeIfAbsent(member, name -> new HashSet<>());
                partitions.forEach(partition -> own.add(partition.partition()));
                boolean shared = owned.size() == 2 && owned.values().stream().noneMatch(Set::isEmpty)
                    && owned.values().stream().mapToInt(Set::size).sum() == PARTITIONS;
                if (shared && !ready) {
                    ready = true;
                    print(Map.of("ready", true));
                }
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            synchronized (owned) {
                var own = owned.computeIfAbsent(member, name -> new HashSet<>());
                partitions.forEach(partition -> own.remove(partition.partition()));
            }
        }
    }

    private static synchronized void print(Map<String, Object> line) {
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
