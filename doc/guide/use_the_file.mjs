// node use_the_file.mjs iris.onnx
import { InferenceSession, Tensor } from "onnxruntime-node"; // in a page: onnxruntime-web

const session = await InferenceSession.create(process.argv[2]);
const rows = Float32Array.from([5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3]); // two rows of four columns
const { label, probabilities } = await session.run({ X: new Tensor("float32", rows, [2, 4]) });
console.log(label.data, probabilities.dims, probabilities.data);
