// node page.mjs FOLDER CHROMIUM OUT: opens the page of make_page.py, trains, and writes what it found to the folder OUT.
import fs from "node:fs";
import path from "node:path";
import { chromium } from "playwright-core";
import { serve } from "./serve.mjs";

const [folder, executablePath, out] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(await serve(folder));
  await page.waitForFunction("window.page", null, { timeout: 60000 });
  const download = async (button, name) => {
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
    await file.saveAs(path.join(out, name));
  };
  const before = await page.evaluate("window.page.accuracy ?? window.page");
  await page.click("#train");
  await page.waitForFunction("page.losses.length === 60 && !document.getElementById('train').disabled");
  const { losses, accuracy } = await page.evaluate("({losses: page.losses, accuracy: page.accuracy})");
  await download("#state", "state.onnx");
  await download("#model", "trained.onnx");
  await page.screenshot({ path: path.join(out, "page.png") });
  // draw a 1, say so, train on
  const pad = await page.locator("#pad").boundingBox();
  await page.mouse.move(pad.x + 112, pad.y + 30);
  await page.mouse.down();
  await page.mouse.move(pad.x + 112, pad.y + 190, { steps: 8 });
  await page.mouse.up();
  await page.click("#labels button:nth-child(2)");
  const rows = await page.evaluate("page.rows()");
  await page.click("#train");
  await page.waitForFunction("page.losses.length === 120");
  const status = await page.textContent("#status");
  fs.writeFileSync(path.join(out, "found.json"), JSON.stringify({ before, losses, accuracy, rows, status, errors }));
} finally {
  await browser.close();
}
process.exit(0);
