// Runs the files of estimator.export_training_step with any onnxruntime for JavaScript: web, node, react-native.
// The only rule: what the step gives as next_S is fed to S in the next run.
const OPTIONS = { graphOptimizationLevel: "basic" }; // as fit does: every further optimization is another rounding
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
};
const pick = (feeds, session) => Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));

export class Trainer {
  // about: the content of step.json; at: from the name of a file to its URL, its path or its bytes
  static async open(ort, about, at, options = {}) {
    const t = Object.assign(new Trainer(), { ort, about });
    const open = async ([role, name]) => [role, await ort.InferenceSession.create(await at(name), { ...OPTIONS, ...options })];
    const sessions = [];
    for (const file of Object.entries(about.files)) sessions.push(await open(file)); // one after the other, for web
    t.sessions = Object.fromEntries(sessions);
    t.state = await t.sessions.init.run({});
    return t;
  }

  // Numbers as a tensor of the type that the input `name` has.
  tensor(name, values, shape = [values.length]) {
    const { dtype } = this.about.before?.inputs[name] ?? this.about.step.inputs[name];
    return new this.ort.Tensor(dtype, ARRAYS[dtype].from(values, dtype.endsWith("int64") ? BigInt : undefined), shape);
  }

  // Rows as they come, tensors by name -> rows of the step. What training does not change is computed once a row.
  async rows(raw) {
    const { before, step } = this.sessions;
    const all = before ? { ...raw, ...(await before.run(pick(raw, before))) } : raw;
    return Object.fromEntries(step.inputNames.filter((name) => name in all).map((name) => [name, all[name]]));
  }

  // One step on rows of the step; returns their loss.
  async step(rows, rate) {
    const { learning_rate, loss } = this.about;
    const found = await this.sessions.step.run({ ...rows, ...this.state, [learning_rate]: this.tensor(learning_rate, [rate]) });
    for (const name in this.state) this.state[name] = found["next_" + name];
    return found[loss].data[0];
  }

  // The outputs of the whole model for rows as they come.
  predict(raw) {
    return this.sessions.predict.run(pick({ ...this.state, ...raw }, this.sessions.predict));
  }
}

// Some rows of tensors by name, in this order.
export function take(ort, tensors, rows) {
  const part = ({ type, dims, data }) => {
    const width = data.length / dims[0];
    const taken = new data.constructor(rows.length * width);
    rows.forEach((row, i) => taken.set(data.subarray(row * width, (row + 1) * width), i * width));
    return new ort.Tensor(type, taken, [rows.length, ...dims.slice(1)]);
  };
  return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, part(tensor)]));
}
