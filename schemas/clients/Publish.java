import com.google.protobuf.ByteString;
import inference.Inference.ModelInferRequest;
import inference.Inference.ModelInferRequest.InferInputTensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Publish {
    static final byte[] ROW = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN)
            .putFloat(0.1f).putFloat(0.2f).putFloat(0.3f).array();

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", "localhost:9092");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            for (var request : List.of(json(), rows(), binary(), protobuf(), badJson(), badProtobuf())) {
                producer.send(request).get();
            }
        }
    }

    static ProducerRecord<String, byte[]> json() {
        return request("json", "application/json", bytes("""
                {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0.1, 0.2, 0.3]}]}"""));
    }

    static ProducerRecord<String, byte[]> rows() {
        var request = request("rows", "application/octet-stream", ROW);
        request.headers().add("datatype", bytes("FP32")).add("rows", bytes("1"));
        return request;
    }

    static ProducerRecord<String, byte[]> binary() {
        byte[] head = bytes("""
                {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32",
                             "parameters": {"binary_data_size": 12}}]}""");
        byte[] value = ByteBuffer.allocate(head.length + ROW.length).put(head).put(ROW).array();
        var request = request("binary", "application/octet-stream", value);
        request.headers().add("Inference-Header-Content-Length", bytes("" + head.length));
        return request;
    }

    static ProducerRecord<String, byte[]> protobuf() {
        var x = InferInputTensor.newBuilder().setName("x").setDatatype("FP32").addShape(1).addShape(3);
        var message = ModelInferRequest.newBuilder().addInputs(x).addRawInputContents(ByteString.copyFrom(ROW)).build();
        return request("protobuf", "application/x-protobuf", message.toByteArray());
    }

    static ProducerRecord<String, byte[]> badJson() {
        return request("bad-json", "application/json", bytes("{\"inputs\": []}"));
    }

    static ProducerRecord<String, byte[]> badProtobuf() {
        var x = InferInputTensor.newBuilder().setName("x").setDatatype("FP32").addShape(1).addShape(3);
        var message = ModelInferRequest.newBuilder().addInputs(x).build();
        return request("bad-protobuf", "application/x-protobuf", message.toByteArray());
    }

    static ProducerRecord<String, byte[]> request(String id, String contentType, byte[] value) {
        var request = new ProducerRecord<>("requests", "user-7", value);
        request.headers().add("content-type", bytes(contentType)).add("request-id", bytes(id));
        return request;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
