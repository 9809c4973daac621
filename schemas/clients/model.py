import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = numpy_helper.from_array(np.array([[1, 0], [2, 0.5], [0, 0.5]], "f4"), "weights")
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
graph = helper.make_graph([helper.make_node("MatMul", ["x", "weights"], ["y"])], "scale", [x], [y], [weights])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "scale.onnx")
