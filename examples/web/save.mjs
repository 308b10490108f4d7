// Writes tensors as initializers of an ONNX model, in protobuf. A protobuf parser merges concatenated messages: appended to
// the bytes of predict.onnx, the initializers become the weights of that model.
const TYPES = { float32: 1, int32: 6, float64: 11 };

// Returns the content of state.onnx, for estimator.load_training_state.
export function stateFile(state, names = Object.keys(state)) {
  return message(7, concat(names.map((name) => message(5, tensor(name, state[name])))));
}

// Returns the trained ONNX model, given the bytes of predict.onnx.
export function trainedModel(trainer, predict) {
  const weights = trainer.sessions.predict.inputNames.filter((name) => name in trainer.state);
  return concat([predict, stateFile(trainer.state, weights)]);
}

const tensor = (name, { type, dims, data }) => concat([
  ...dims.map((d) => integer(1, d)),
  integer(2, TYPES[type]),
  message(8, new TextEncoder().encode(name)),
  message(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
]);
const integer = (field, n) => Uint8Array.from([...varint(field * 8), ...varint(n)]);
const message = (field, content) => concat([Uint8Array.from([...varint(field * 8 + 2), ...varint(content.length)]), content]);
const varint = (n) => (n < 128 ? [n] : [(n % 128) + 128, ...varint(Math.floor(n / 128))]);

function concat(parts) {
  const whole = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  parts.reduce((n, part) => (whole.set(part, n), n + part.length), 0);
  return whole;
}
