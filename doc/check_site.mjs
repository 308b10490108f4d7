// node check_site.mjs FOLDER CHROMIUM: opens every page of the documentation, on a screen and on a telephone, and asks the search.
// Printed, and the exit status is 1: a page wider than the telephone, code that is clipped on the screen, a picture that is not
// shown, an error of a script or of the network, a term whose first result is another page. NODE_PATH finds playwright-core.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { serve } from "../tests/web/serve.mjs";

const { chromium } = createRequire(process.cwd() + "/")("playwright-core");
const [folder, executablePath] = process.argv.slice(2);

const SCREEN = { width: 1400, height: 900 };
const TELEPHONE = { width: 400, height: 800 };

// What readers look for, and the page that answers.
const TERMS = {
  freeze: "guide/new_head",
  deploy: "guide/use_the_file",
  InferenceSession: "guide/use_the_file",
  overfitting: "guide/stopping",
  memory: "guide/rows",
  browser: "browser",
  cluster: "guide/cluster",
  GPU: "guide/devices",
  changelog: "changes",
  faq: "faq",
  "missing values": "quickstart",
  sparse: "guide/bring_a_model",
  dropout: "limits",
  "learning rate": "guide/solvers",
  quantile: "guide/choose_a_loss",
  l1: "guide/penalties",
  checkpoint: "guide/keep",
  pipeline: "guide/bring_a_model",
  javascript: "guide/use_the_file",
  LoRA: "guide/new_head",
  embedding: "guide/inspect",
  onnxcustom: "from_onnxcustom",
  float32: "limits",
  "early stopping": "guide/stopping",
  cite: "development",
  install: "quickstart",
  "grid search": "guide/search",
  BERT: "guide/inputs_and_outputs",
  "custom loss": "guide/extend",
  troubleshooting: "errors",
  PyTorch: "faq",
  "class_weight": "guide/choose_a_loss",
  LightGBM: "guide/bring_a_model",
  "save model": "guide/keep",
  export: "guide/use_the_file",
  "text classification": "guide/bring_a_model",
  quantization: "guide/bring_a_model",
  NaN: "quickstart",
  date: "quickstart",
  "loss curve": "guide/stopping",
  "feature importance": "guide/inspect",
  parallel: "guide/search",
  "sample weights": "guide/choose_a_loss",
  "error messages": "errors",
  random_state: "faq",
  "progress bar": "guide/stopping",
  "stop training": "guide/stopping",
  "convergence warning": "guide/stopping",
  "l2 regularization": "guide/penalties",
  "weight decay": "guide/penalties",
  Ridge: "guide/penalties",
  "imbalanced data": "guide/choose_a_loss",
  outliers: "guide/choose_a_loss",
  huber: "guide/choose_a_loss",
  visualize: "guide/inspect",
  matplotlib: "guide/inspect",
  notebook: "guide/inspect",
  Jupyter: "guide/inspect",
  docker: "guide/use_the_file",
  Android: "guide/use_the_file",
  "time series": "guide/inputs_and_outputs",
  tokenizer: "guide/inputs_and_outputs",
  categorical: "quickstart",
  "string columns": "quickstart",
  "NaN loss": "faq",
  "warm start": "guide/keep",
  pickle: "guide/keep",
  "transfer learning": "guide/new_head",
  "batch size": "guide/solvers",
  "gradient clipping": "guide/solvers",
  threads: "guide/devices",
  "mixed precision": "guide/devices",
  hyperparameters: "guide/search",
  Keras: "guide/bring_a_model",
  XGBoost: "guide/bring_a_model",
  license: "development",
  contribute: "contributing",
  "large dataset": "guide/rows",
  "federated learning": "browser",
  "missing data": "quickstart",
  tensorflow: "guide/bring_a_model",
  "fine tuning": "guide/bring_a_model",
  huggingface: "guide/inputs_and_outputs",
  regression: "guide/choose_a_loss",
  classification: "guide/choose_a_loss",
  "label encoding": "guide/choose_a_loss",
  "load model": "guide/keep",
  "online learning": "guide/keep",
  "incremental learning": "guide/keep",
  "export to onnx": "guide/use_the_file",
  "inference speed": "guide/use_the_file",
  version: "changes",
  "scikit-learn pipeline": "guide/bring_a_model",
  "supported estimators": "estimators",
  "random forest": "estimators",
  SVM: "estimators",
  opset: "operators",
  "operator not supported": "operators",
  int8: "guide/bring_a_model",
  "neural network": "guide/bring_a_model",
  multiclass: "guide/choose_a_loss",
  "logistic regression": "guide/choose_a_loss",
  "multiple inputs": "guide/inputs_and_outputs",
  "image segmentation": "guide/inputs_and_outputs",
  LSTM: "guide/inputs_and_outputs",
  warm_start: "guide/keep",
  "resume training": "guide/keep",
  "cross validation": "guide/search",
  lbfgs: "guide/solvers",
  "learning rate schedule": "guide/solvers",
  callbacks: "guide/stopping",
  "average weights": "guide/penalties",
  "quick start": "quickstart",
  polars: "quickstart",
  CUDA: "guide/devices",
  "multi-class": "guide/choose_a_loss",
  "validation set": "guide/stopping",
  seed: "faq",
  deterministic: "faq",
  regularization: "guide/penalties",
  lasso: "guide/penalties",
  "elastic net": "guide/penalties",
  parquet: "guide/rows",
  zarr: "guide/rows",
  csv: "guide/rows",
  spark: "guide/cluster",
  distributed: "guide/cluster",
  "out of memory": "faq",
  slow: "faq",
  predict_proba: "faq",
  labels: "guide/choose_a_loss",
  float64: "limits",
  WebAssembly: "browser",
  interrupt: "faq",
  momentum: "guide/solvers",
  optimizer: "guide/solvers",
  history: "guide/stopping",
  tensorboard: "guide/stopping",
  image: "guide/inputs_and_outputs",
  NLP: "guide/inputs_and_outputs",
  fp16: "guide/devices",
  dtype: "guide/devices",
  "2 GB": "limits",
  "external data": "limits",
  security: "guide/keep",
  upgrade: "changes",
  prune: "guide/penalties",
  KNN: "estimators",
  "decision tree": "estimators",
  stacking: "estimators",
  ensemble: "guide/bring_a_model",
  "convert model": "guide/bring_a_model",
  autograd: "operators",
  backpropagation: "operators",
  "opset version": "operators",
  java: "guide/use_the_file",
  "feature scaling": "faq",
  bug: "contributing",
  pip: "quickstart",
  Windows: "quickstart",
  FastAPI: "guide/use_the_file",
  MLflow: "guide/use_the_file",
  "edge device": "guide/use_the_file",
  TensorRT: "guide/use_the_file",
  Optuna: "guide/search",
  "hyperparameter tuning": "guide/search",
  "random search": "guide/search",
  scoring: "guide/search",
  metrics: "guide/search",
  "explain predictions": "guide/inspect",
  summary: "guide/inspect",
  graph: "guide/inspect",
  coef_: "guide/inspect",
  "column transformer": "guide/bring_a_model",
  "pytorch to onnx": "guide/bring_a_model",
  torchvision: "guide/bring_a_model",
  convert: "guide/bring_a_model",
  "gradient descent": "guide/solvers",
  nesterov: "guide/solvers",
  "cosine annealing": "guide/solvers",
  "learning rate scheduler": "guide/solvers",
  "mini-batch": "guide/solvers",
  early_stopping: "guide/stopping",
  patience: "guide/stopping",
  epochs: "guide/stopping",
  "learning curve": "guide/stopping",
  "feature selection": "guide/penalties",
  unfreeze: "guide/new_head",
  PEFT: "guide/new_head",
  "few-shot learning": "guide/new_head",
  HDF5: "guide/rows",
  memmap: "guide/rows",
  DataLoader: "guide/rows",
  "multi-GPU": "guide/devices",
  ROCm: "guide/devices",
  multiprocessing: "guide/devices",
  "count data": "guide/choose_a_loss",
  comparison: "features",
  alternatives: "features",
  skorch: "features",
  "isolation forest": "estimators",
  clustering: "estimators",
  PCA: "estimators",
  to_sklearn: "guide/keep",
  joblib: "guide/keep",
};

function pages(at) {
  return fs.readdirSync(at, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(at, entry.name);
    if (entry.isDirectory()) return ["_static", "_sources"].includes(entry.name) ? [] : pages(name);
    return entry.name.endsWith(".html") ? [name] : [];
  });
}

const clipped = () =>
  [...document.querySelectorAll("article pre")]
    .filter((code) => code.offsetParent && code.scrollWidth > code.clientWidth + 1)
    .map((code) => code.textContent.split("\n").reduce((a, b) => (a.length > b.length ? a : b)).trim());
const unseen = () => [...document.images].filter((image) => !image.complete || image.naturalWidth === 0).map((image) => image.src);

const root = await serve(folder);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const problems = [];
const found = pages(folder);
try {
  const context = await browser.newContext({ viewport: SCREEN });
  const page = await context.newPage();
  let name = "";
  page.on("pageerror", (error) => problems.push(`${name}: ${error}`));
  page.on("requestfailed", (request) => {
    const { errorText } = request.failure(); // aborted: the next page was opened
    if (errorText !== "net::ERR_ABORTED") problems.push(`${name}: ${request.url()}: ${errorText}`);
  });
  page.on("response", (response) => response.status() >= 400 && problems.push(`${name}: ${response.url()} is not there`));
  for (const file of found) {
    name = path.relative(folder, file);
    await page.setViewportSize(SCREEN);
    await page.goto(root + name, { waitUntil: "load" });
    await page.evaluate(() => document.querySelectorAll("img[loading=lazy]").forEach((image) => (image.loading = "eager")));
    for (const line of await page.evaluate(clipped)) problems.push(`${name}: clipped: ${line}`);
    for (const image of await page.evaluate(unseen)) problems.push(`${name}: not shown: ${image}`);
    await page.setViewportSize(TELEPHONE);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > TELEPHONE.width) problems.push(`${name}: ${width} pixels wide on a telephone`);
  }
  await page.setViewportSize(SCREEN);
  name = "operators.html";
  await page.goto(root + name);
  await page.locator("input.filter").first().fill("LSTM");
  const left = await page.locator("table").first().locator("tbody tr:visible").allTextContents();
  if (left.length === 0 || left.some((row) => !row.includes("LSTM"))) problems.push(`${name}: the filter for LSTM leaves ${left.length} rows`);
  for (const [term, expected] of Object.entries(TERMS)) {
    name = `search for ${term}`;
    await page.goto(`${root}search.html?q=${encodeURIComponent(term)}`);
    await page.waitForSelector("#search-results ul.search li a", { timeout: 10000 }).catch(() => {});
    const first = await page.evaluate(() => document.querySelector("#search-results ul.search li a")?.href ?? "nothing");
    if (!first.startsWith(`${root}${expected}.html`)) problems.push(`${name}: ${first.replace(root, "")}, not ${expected}`);
  }
} finally {
  await browser.close();
}
for (const problem of problems) console.log(problem);
console.log(`${found.length} pages, ${Object.keys(TERMS).length} terms, ${problems.length} problems`);
process.exit(problems.length ? 1 : 0);
