// node webgpu.mjs FOLDER CHROMIUM OUT: trains on the page index.html of FOLDER; the state goes to OUT.
import fs from "node:fs";
import { chromium } from "playwright-core";
import { serve } from "./serve.mjs";

const [folder, executablePath, out] = process.argv.slice(2);
const software = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan", "--ignore-gpu-blocklist"];
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", ...software] });
const page = await browser.newPage();
await page.goto(await serve(folder));
await page.waitForFunction("window.found", null, { timeout: 120000 });
const { state, error } = await page.evaluate("window.found");
await browser.close();
if (error) console.error(error);
else fs.writeFileSync(out, Uint8Array.from(state));
process.exit(error ? 1 : 0);
