// node node.mjs FOLDER ROWS.json [onnxruntime-node | onnxruntime-web]
// Trains with the files of estimator.export_training_step in FOLDER. ROWS.json contains
// {"inputs": {"X": {"values": [...], "shape": [n, k]}, "y": ...}, "batch_size", "epochs", "learning_rate"}.
// Writes the state to FOLDER/state.onnx, the model to FOLDER/trained.onnx and the losses to FOLDER/losses.json.
import fs from "node:fs";
import path from "node:path";
import { stateFile, trainedModel } from "./save.mjs";
import { Trainer, take } from "./trainer.mjs";

const [folder, given, flavour = "onnxruntime-node"] = process.argv.slice(2);
const found = await import(flavour);
const ort = found.InferenceSession ? found : found.default;
if (flavour === "onnxruntime-web") ort.env.wasm.numThreads = 1;
const at = (name) => path.join(folder, name);
const read = (name) => new Uint8Array(fs.readFileSync(at(name)));
const { inputs, batch_size, epochs, learning_rate } = JSON.parse(fs.readFileSync(given));

const about = JSON.parse(fs.readFileSync(at("step.json")));
const trainer = await Trainer.open(ort, about, read, flavour === "onnxruntime-node" ? { intraOpNumThreads: 1 } : {});
const raw = Object.entries(inputs).map(([name, { values, shape }]) => [name, trainer.tensor(name, values, shape)]);
const rows = await trainer.rows(Object.fromEntries(raw));
const n = rows[about.label].dims[0];
const losses = [], times = [];
for (let epoch = 0; epoch < epochs; epoch++) {
  for (let start = 0; start < n; start += batch_size) {
    const length = Math.min(batch_size, n - start);
    const batch = take(ort, rows, Array.from({ length }, (_, i) => start + i));
    const begin = performance.now();
    losses.push(await trainer.step(batch, learning_rate));
    times.push(performance.now() - begin);
  }
}
fs.writeFileSync(at("state.onnx"), stateFile(trainer.state));
fs.writeFileSync(at("trained.onnx"), trainedModel(trainer, read(about.files.predict)));
fs.writeFileSync(at("losses.json"), JSON.stringify(losses));
times.sort((a, b) => a - b);
console.log(`${flavour}: ${losses.length} steps, median ${times[times.length >> 1].toFixed(3)} ms, loss ${losses[0]} -> ${losses.at(-1)}`);
process.exit(0); // the threads of onnxruntime would keep the process alive
