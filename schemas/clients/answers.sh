# The value of each answer, by the id of its request.
answer() {
  kcat -C -b localhost:9092 -t answers -e -q -f '-p %p -o %o ,%h,\n' | grep ",request-id=$1," | head -n 1 |
    cut -d , -f 1 | xargs -r kcat -C -b localhost:9092 -t answers -c 1 -q -f '%s'
}

answer json; echo
answer rows | od -A n -t f4
answer binary | tail -c 8 | od -A n -t f4  # behind the JSON head
answer protobuf | protoc --decode=inference.ModelInferResponse inference.proto
answer bad-json; echo
answer bad-protobuf | protoc --decode=inference.InferenceError inference.proto
