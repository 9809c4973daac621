# One request in each encoding, and two bad ones. Needs kcat, and protoc of protobuf-compiler; Debian has both.
# From standard input each line is a request; a file is one request, newlines and all.
publish() {
  kcat -P -b localhost:9092 -X partitioner=murmur2_random -X enable.idempotence=true -t requests -k user-7 "$@"
}

echo '{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0.1, 0.2, 0.3]}]}' |
  publish -H content-type=application/json -H request-id=json

printf '\315\314\314\075\315\314\114\076\232\231\231\076' > row.bin  # 0.1, 0.2, 0.3
publish -H content-type=application/octet-stream -H datatype=FP32 -H rows=1 -H request-id=rows row.bin

head='{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]}'
{ printf %s "$head"; cat row.bin; } > binary.bin
publish -H content-type=application/octet-stream -H Inference-Header-Content-Length=${#head} \
  -H request-id=binary binary.bin

protoc --encode=inference.ModelInferRequest inference.proto > protobuf.bin << 'END'
inputs { name: "x" datatype: "FP32" shape: [1, 3] contents { fp32_contents: [0.1, 0.2, 0.3] } }
END
publish -H content-type=application/x-protobuf -H request-id=protobuf protobuf.bin

echo '{"inputs": []}' | publish -H content-type=application/json -H request-id=bad-json
echo 'inputs { name: "x" datatype: "FP32" shape: [1, 3] }' |
  protoc --encode=inference.ModelInferRequest inference.proto > bad.bin
publish -H content-type=application/x-protobuf -H request-id=bad-protobuf bad.bin
