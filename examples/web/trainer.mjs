// Runs the files of estimator.export_training_step with any onnxruntime for JavaScript: web, node or react-native.
// Each output next_S of a step is fed to the input S of the next step.
const OPTIONS = { graphOptimizationLevel: "basic" }; // as in fit: further optimizations change the rounding
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
};
const pick = (feeds, session) => Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));

export class Trainer {
  // about: the content of step.json; at: a function that maps a file name to its URL, path or bytes
  static async open(ort, about, at, options = {}) {
    const t = Object.assign(new Trainer(), { ort, about });
    const open = async ([role, name]) => [role, await ort.InferenceSession.create(await at(name), { ...OPTIONS, ...options })];
    const sessions = [];
    // onnxruntime-web opens only one session at a time
    for (const file of Object.entries(about.files)) sessions.push(await open(file));
    t.sessions = Object.fromEntries(sessions);
    t.state = await t.sessions.init.run({});
    return t;
  }

  // Returns values as a tensor of the type of the input `name`. null is NaN, as JSON.stringify writes it.
  tensor(name, values, shape = [values.length]) {
    const { dtype } = this.about.before?.inputs[name] ?? this.about.step.inputs[name];
    const element = (v) => {
      const number = Number(v === "" || typeof v === "object" ? NaN : v); // an empty cell is no 0
      if (dtype.startsWith("float")) return number;
      if (!Number.isInteger(number)) throw new RangeError(`${name} takes integers, got ${v}`);
      const [stored] = ARRAYS[dtype].of(dtype.endsWith("int64") ? BigInt(v) : number);
      if (Number(stored) !== number) throw new RangeError(`${name} takes ${dtype}, got ${v}`);
      return stored;
    };
    return new this.ort.Tensor(dtype, ARRAYS[dtype].from(values, element), shape);
  }

  // Converts raw rows to the rows of the step; both map names to tensors. The frozen part is computed once for each row.
  async rows(raw) {
    const { before, step } = this.sessions;
    const all = before ? { ...raw, ...(await before.run(pick(raw, before))) } : raw;
    return Object.fromEntries(step.inputNames.filter((name) => name in all).map((name) => [name, all[name]]));
  }

  // Runs one step on rows of the step and returns their loss.
  async step(rows, rate) {
    const { learning_rate, loss } = this.about;
    const found = await this.sessions.step.run({ ...rows, ...this.state, [learning_rate]: this.tensor(learning_rate, [rate]) });
    for (const name in this.state) this.state[name] = found["next_" + name];
    return found[loss].data[0];
  }

  // Returns the outputs of the whole model for raw rows.
  predict(raw) {
    return this.sessions.predict.run(pick({ ...this.state, ...raw }, this.sessions.predict));
  }
}

// Returns the given rows of each tensor, in the given order.
export function take(ort, tensors, rows) {
  const part = ({ type, dims, data }) => {
    const width = data.length / dims[0];
    const taken = new data.constructor(rows.length * width);
    rows.forEach((row, i) => taken.set(data.subarray(row * width, (row + 1) * width), i * width));
    return new ort.Tensor(type, taken, [rows.length, ...dims.slice(1)]);
  };
  return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, part(tensor)]));
}
