import com.fasterxml.jackson.databind.ObjectMapper;
import inference.Inference.InferenceError;
import inference.Inference.ModelInferResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;

public class Answers {
    static final String PROTOBUF = "application/x-protobuf", OCTETS = "application/octet-stream";
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", "localhost:9092", "group.id", "readers", "auto.offset.reset", "earliest",
                "isolation.level", "read_committed");
        var highest = new HashMap<String, Long>();  // keep it where you keep the results
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("answers"));
            while (true) {
                for (var answer : consumer.poll(Duration.ofSeconds(1))) {
                    String source = header(answer, "source");
                    int slash = source.lastIndexOf('/');
                    String seen = answer.partition() + " " + source.substring(0, slash);
                    long offset = Long.parseLong(source.substring(slash + 1));
                    if (offset > highest.getOrDefault(seen, -1L)) {
                        highest.put(seen, offset);
                        String id = header(answer, "request-id");
                        System.out.println((id == null ? source : id) + " " + text(answer));
                    }
                }
            }
        }
    }

    static String text(ConsumerRecord<String, byte[]> answer) throws Exception {
        boolean isOk = header(answer, "status").equals("ok");
        return isOk ? output(answer) : header(answer, "error-code") + ": " + error(answer);
    }

    static String output(ConsumerRecord<String, byte[]> answer) throws Exception {
        var numbers = new StringJoiner(" ");
        switch (header(answer, "content-type")) {
            case PROTOBUF -> {
                var raw = ModelInferResponse.parseFrom(answer.value()).getRawOutputContents(0);
                addFloats(numbers, raw.asReadOnlyByteBuffer());
            }
            case OCTETS -> {
                String head = header(answer, "Inference-Header-Content-Length");
                int start = head == null ? 0 : Integer.parseInt(head);  // before it, JSON that names the tensors
                addFloats(numbers, ByteBuffer.wrap(answer.value()).position(start));
            }
            default -> JSON.readTree(answer.value()).at("/outputs/0/data").forEach(n -> numbers.add(n.asText()));
        }
        return numbers.toString();
    }

    static void addFloats(StringJoiner numbers, ByteBuffer raw) {
        var floats = raw.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        while (floats.hasRemaining()) {
            numbers.add("" + floats.get());
        }
    }

    static String error(ConsumerRecord<String, byte[]> answer) throws Exception {
        if (header(answer, "content-type").equals(PROTOBUF)) {
            return InferenceError.parseFrom(answer.value()).getError();
        }
        return JSON.readTree(answer.value()).get("error").asText();
    }

    static String header(ConsumerRecord<String, byte[]> answer, String name) {
        var header = answer.headers().lastHeader(name);
        return header == null ? null : new String(header.value(), StandardCharsets.UTF_8);
    }
}
