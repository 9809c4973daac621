import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.CorrelationKey;
import org.springframework.kafka.requestreply.KafkaReplyTimeoutException;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.requestreply.RequestReplyFuture;
import org.springframework.kafka.support.KafkaHeaders;

/**
 * One life of Spring's ReplyingKafkaTemplate, set up as its reference has it for instances that share a reply topic: a
 * group for each instance, `sharedReplyTopic`, and nothing sent before the partitions are assigned.
 *
 * Arguments: bootstrap, requests, answers, folder of rows.f32 and expected.f32, submits, rate, timeout and grace in
 * seconds. Prints its books as one line of JSON.
 */
public class Asker {
    static final int WIDTH = 16, OUTPUTS = 4;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], requests = args[1], answers = args[2];
        float[] rows = floats(Path.of(args[3], "rows.f32")), expected = floats(Path.of(args[3], "expected.f32"));
        int submits = Integer.parseInt(args[4]);
        double rate = Double.parseDouble(args[5]), timeout = Double.parseDouble(args[6]);
        double grace = Double.parseDouble(args[7]);

        Map<String, Object> producer = Map.of("bootstrap.servers", bootstrap);
        Map<String, Object> consumer = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        consumer.put("group.id", "spring-" + UUID.randomUUID());
        consumer.put("auto.offset.reset", "latest");
        consumer.put("isolation.level", "read_committed");
        ContainerProperties properties = new ContainerProperties(answers);
        var container = new KafkaMessageListenerContainer<byte[], byte[]>(
                new DefaultKafkaConsumerFactory<>(consumer, new ByteArrayDeserializer(), new ByteArrayDeserializer()),
                properties);
        Books books = new Books();
        Template template = new Template(
                new DefaultKafkaProducerFactory<>(producer, new ByteArraySerializer(), new ByteArraySerializer()),
                container, books);
        template.setSharedReplyTopic(true);
        template.setDefaultReplyTimeout(Duration.ofMillis((long) (timeout * 1000)));
        template.afterPropertiesSet();
        template.start();
        template.waitForAssignment(Duration.ofSeconds(60));

        List<RequestReplyFuture<byte[], byte[], byte[]>> futures = new ArrayList<>();
        List<Integer> numbers = new ArrayList<>();
        long began = System.nanoTime();
        for (int at = 0; at < submits; at++) {
            long due = began + (long) (at / rate * 1e9);
            while (System.nanoTime() < due) {
                TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
            }
            int number = at % (rows.length / WIDTH);
            var record = new ProducerRecord<>(requests, ("" + number % 997).getBytes(StandardCharsets.UTF_8),
                    bytes(rows, number));
            record.headers().add("content-type", "application/octet-stream".getBytes(StandardCharsets.UTF_8));
            try {
                var future = template.sendAndReceive(record);
                futures.add(future);
                numbers.add(number);
            } catch (RuntimeException error) {
                books.add("not_sent");
            }
        }
        long giveUp = System.nanoTime() + (long) ((timeout + grace) * 1e9);
        for (int at = 0; at < futures.size(); at++) {
            judge(futures.get(at), giveUp - System.nanoTime(), expected, numbers.get(at), books);
        }
        TimeUnit.SECONDS.sleep(1); // for answers that come again
        template.destroy();
        books.add("submits", submits);
        System.out.println(books.json());
        System.exit(0);
    }

    static void judge(RequestReplyFuture<byte[], byte[], byte[]> future, long patience, float[] expected, int number,
            Books books) throws InterruptedException {
        try {
            ConsumerRecord<byte[], byte[]> answer = future.get(Math.max(0, patience), TimeUnit.NANOSECONDS);
            Header status = answer.headers().lastHeader("status");
            if (!new String(status.value(), StandardCharsets.UTF_8).equals("ok")) {
                books.add("errors");
            } else {
                books.add(isRight(answer.value(), expected, number) ? "right" : "wrong");
            }
        } catch (TimeoutException error) {
            books.add("never_ended");
        } catch (ExecutionException error) {
            books.add(error.getCause() instanceof KafkaReplyTimeoutException ? "timeouts" : "errors");
        }
    }

    static boolean isRight(byte[] value, float[] expected, int number) {
        FloatBuffer found = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        boolean right = found.remaining() == OUTPUTS;
        for (int at = 0; right && at < OUTPUTS; at++) {
            float wanted = expected[number * OUTPUTS + at];
            right = Math.abs(found.get(at) - wanted) <= 1e-5 + 1e-4 * Math.abs(wanted);
        }
        return right;
    }

    static float[] floats(Path path) throws Exception {
        FloatBuffer held = ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        float[] found = new float[held.remaining()];
        held.get(found);
        return found;
    }

    static byte[] bytes(float[] rows, int number) {
        ByteBuffer row = ByteBuffer.allocate(WIDTH * 4).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at < WIDTH; at++) {
            row.putFloat(rows[number * WIDTH + at]);
        }
        return row.array();
    }

    /** The template, and what it passes over: answers to its own requests that had ended. */
    static class Template extends ReplyingKafkaTemplate<byte[], byte[], byte[]> {
        private final Set<String> mine = ConcurrentHashMap.newKeySet(), timedOut = ConcurrentHashMap.newKeySet();
        private final Set<String> answered = ConcurrentHashMap.newKeySet();
        private final Books books;

        Template(DefaultKafkaProducerFactory<byte[], byte[]> producers,
                KafkaMessageListenerContainer<byte[], byte[]> container, Books books) {
            super(producers, container);
            this.books = books;
            setCorrelationIdStrategy(record -> {
                UUID id = UUID.randomUUID();
                mine.add(id.toString());
                return new CorrelationKey(
                        ByteBuffer.allocate(16).putLong(id.getMostSignificantBits())
                                .putLong(id.getLeastSignificantBits()).array());
            });
        }

        @Override
        protected boolean handleTimeout(Object id, RequestReplyFuture<byte[], byte[], byte[]> future) {
            timedOut.add(text(((CorrelationKey) id).getCorrelationId()));
            return super.handleTimeout(id, future);
        }

        @Override
        public void onMessage(List<ConsumerRecord<byte[], byte[]>> records) {
            for (var record : records) {
                Header header = record.headers().lastHeader(KafkaHeaders.CORRELATION_ID);
                String id = header == null ? "" : text(header.value());
                if (mine.contains(id) && !answered.add(id)) {
                    books.add("repeats");
                } else if (timedOut.contains(id)) {
                    books.add("late");
                }
            }
            super.onMessage(records);
        }

        private static String text(byte[] id) {
            ByteBuffer held = ByteBuffer.wrap(id);
            return new UUID(held.getLong(), held.getLong()).toString();
        }
    }

    static class Books {
        private final Map<String, AtomicInteger> counts = new TreeMap<>();

        void add(String name) {
            add(name, 1);
        }

        synchronized void add(String name, int more) {
            counts.computeIfAbsent(name, key -> new AtomicInteger()).addAndGet(more);
        }

        synchronized String json() {
            List<String> parts = new ArrayList<>();
            counts.forEach((name, count) -> parts.add("\"" + name + "\":" + count));
            return "{" + String.join(",", parts) + "}";
        }
    }
}
