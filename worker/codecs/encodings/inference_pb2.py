"""Generated from schemas/inference.proto by schemas/generate.py: do not edit, run `make proto`."""

# The serialized FileDescriptorProto of schemas/inference.proto.
DESCRIPTOR = (
    b'\n\x0finference.proto\x12\tinference"\x9d\x08\n\x11ModelInferRequest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmod'
    b'el_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInfe'
    b'rRequest.ParametersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Infer'
    b'InputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.InferRequestedOutputT'
    b'ensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputContents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04nam'
    b'e\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.in'
    b'ference.ModelInferRequest.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b'
    b'2\x1e.inference.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value'
    b'\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequestedOutputTensor\x12\x12\n\x04name\x18\x01 \x01('
    b'\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelInferRequest.InferRequestedOutputTensor.Par'
    b'ametersEntryR\nparameters\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference'
    b'.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inferen'
    b'ce.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmo'
    b'del_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\nparameters\x18\x04 \x03(\x0b2-.inference.ModelInf'
    b'erResponse.ParametersEntryR\nparameters\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.I'
    b'nferOutputTensorR\x07outputs\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutpu'
    b'tTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12_\n\nparamet'
    b'ers\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.ParametersEntryR\nparameters\x12:'
    b'\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01'
    b'(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01'
    b' \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"6\n\x0eInferenceError\x12\x14\n\x05erro'
    b'r\x18\x01 \x01(\tR\x05error\x12\x0e\n\x02id\x18\x02 \x01(\tR\x02id"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdouble_param\x18\x04 \x01(\x01'
    b'H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10parameter_choice"\xc3\x02\n\x13InferTensor'
    b'Contents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolContents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint6'
    b"4_contents\x18\x03 \x03(\x03R\rint64Contents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18"
    b'\x05 \x03(\x04R\x0euint64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03(\x01R\x0cfp64C'
    b'ontents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContentsb\x06proto3'
)
