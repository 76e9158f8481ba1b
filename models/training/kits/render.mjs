// Screens of real interface kits, each a function of its seed, with what is on them.
//
//     node render.mjs --kits training|held-out|NAME,NAME --first-seed N --count M --out DIR
//                     [--format png|jpeg] [--scale low|real] [--template NAME]
import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { compose } from "./compose.mjs";
import { KITS, kitNames } from "./kits.mjs";
import { TEMPLATES } from "./templates/index.mjs";
import { openBrowser, Stage } from "./browser.mjs";

const { values: options } = parseArgs({ options: {
  kits: { type: "string", default: "training" }, "first-seed": { type: "string", default: "0" }, count: { type: "string", default: "10" },
  out: { type: "string" }, format: { type: "string", default: "png" }, scale: { type: "string", default: "low" }, template: { type: "string" } } });
if (!options.out) throw new Error("--out is needed");
const wrong = [["format", ["png", "jpeg"]], ["scale", ["low", "real"]]].find(([name, allowed]) => !allowed.includes(options[name]));
if (wrong) throw new Error(`--${wrong[0]} is one of ${wrong[1].join(", ")}`);
if (options.template && !TEMPLATES[options.template]) throw new Error(`--template is one of ${Object.keys(TEMPLATES).join(", ")}`);

const pixels = (scale, size) => {
  const round = (v) => Math.round(v * scale * 10) / 10;
  return (box) => [Math.max(0, round(box[0])), Math.max(0, round(box[1])), Math.min(size[0], round(box[2])), Math.min(size[1], round(box[3]))];
};

function pictureSize(picture) {
  if (picture[0] === 0x89) return [picture.readUInt32BE(16), picture.readUInt32BE(20)];
  for (let at = 2; at < picture.length;) {
    const marker = picture[at + 1];
    if (marker >= 0xc0 && marker <= 0xc3) return [picture.readUInt16BE(at + 7), picture.readUInt16BE(at + 5)];
    at += 2 + picture.readUInt16BE(at + 2);
  }
  throw new Error("a picture without a size");
}

function truth(seed, screen, image, { found, picture }) {
  const size = pictureSize(picture), px = pixels(screen.look.scale, size);
  return { image, width: size[0], height: size[1], source: "chromium", kit: screen.kitName, template: screen.template, theme: screen.look.theme, seed,
    elements: found.elements.map((e) => ({ ...e, box: px(e.box), core: px(e.core) })),
    words: found.words.map(([text, x1, y1, x2, y2, of]) => [text, ...px([x1, y1, x2, y2]), of]),
    icons: found.icons.map(([name, x1, y1, x2, y2, of]) => [name, ...px([x1, y1, x2, y2]), of]) };
}

/** After this many screens a kit's page is made anew, lest what its components leave behind adds up. */
const PAGE_LIFE = 400;
const PATIENCE_MS = 60000;

const inTime = (work) => {
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error("took too long")), PATIENCE_MS); });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
};

async function drop(stages, name) {
  const stage = stages[name];
  delete stages[name];
  await inTime(stage?.page.close() ?? Promise.resolve()).catch(() => {});
}

const names = kitNames(options.kits), first = Number(options["first-seed"]), count = Number(options.count);
fs.mkdirSync(path.join(options.out, "images"), { recursive: true });
const screens = fs.openSync(path.join(options.out, "screens.jsonl"), "a");
const spent = {}, stages = {};
let browser = await openBrowser(), failures = 0;
for (let seed = first; seed < first + count; seed++) {
  const kitName = names[seed % names.length];
  try {
    if (!browser.isConnected()) {
      browser = await openBrowser();
      for (const name of Object.keys(stages)) delete stages[name];
    }
    if (stages[kitName]?.shown >= PAGE_LIFE) await drop(stages, kitName);
    stages[kitName] ??= await inTime(Stage.open(browser, KITS[kitName]));
    const started = performance.now(), screen = compose(seed, kitName, { scale: options.scale, template: options.template });
    const shot = await inTime(stages[kitName].show(screen, options.format));
    const image = `images/${kitName}-${seed}.${options.format === "png" ? "png" : "jpg"}`;
    const line = truth(seed, screen, image, shot);
    if (line.elements.length < 2) throw new Error(`only ${line.elements.length} targets (${screen.template})`);
    fs.writeFileSync(path.join(options.out, image), shot.picture);
    fs.writeSync(screens, `${JSON.stringify(line)}\n`);
    const sum = (spent[kitName] ??= [0, 0]);
    sum[0]++; sum[1] += performance.now() - started;
  } catch (error) {
    failures++;
    process.stderr.write(`seed ${seed} (${kitName}) skipped: ${error.stack?.split("\n").slice(0, 3).join(" ") ?? error}\n`);
    // A page that failed may be in any state: the next screen gets a new one.
    await drop(stages, kitName);
  }
  if ((seed - first + 1) % 50 === 0) process.stderr.write(`${seed - first + 1} of ${count} screens, ${failures} skipped\n`);
}
await browser.close();
for (const [name, [done, ms]] of Object.entries(spent)) process.stderr.write(`${name}: ${done} screens, ${(1000 * done / ms).toFixed(1)} a second\n`);
