// One browser, and a stage per kit: a page with the kit loaded once, on which every screen is set in turn.
import fs from "node:fs";
import { chromium } from "playwright-core";
import { FONT_FACES } from "./icons.mjs";
import { collect } from "./collect.mjs";

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--allow-file-access-from-files", "--hide-scrollbars", "--force-color-profile=srgb"];
const here = (path) => new URL(path, import.meta.url);
const inModules = (path) => here(`node_modules/${path}`).href;

export async function openBrowser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true, args: ARGS });
}

export class Stage {
  static async open(browser, kit) {
    const stage = new Stage();
    stage.shown = 0;
    stage.page = await browser.newPage();
    stage.page.on("pageerror", (e) => { stage.lastError = e.message; });
    await stage.page.goto(here("blank.html").href);
    const faces = Object.values(FONT_FACES).map(([family, file]) => `@font-face{font-family:${family};src:url("${inModules(file)}");font-display:block}`).join("\n");
    const layout = fs.readFileSync(here("layout.css"), "utf8");
    await stage.page.evaluate(async ({ styles, module, mode, css }) => {
      if (module) {
        window.Ionic = { config: { mode, animated: false, rippleEffect: false } };
        document.documentElement.setAttribute("mode", mode);
        document.documentElement.classList.add(mode);
      }
      await Promise.all(styles.map((href) => new Promise((done, fail) => {
        const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: done, onerror: () => fail(new Error(`cannot load ${href}`)) });
        document.head.append(link);
      })));
      document.head.append(Object.assign(document.createElement("style"), { textContent: css }), Object.assign(document.createElement("style"), { id: "seed" }));
      if (module) await import(module);
      // A face that arrives late would make the first screens differ from the same screens later on.
      await Promise.all([...document.fonts].map((face) => face.load().catch(() => {})));
    }, { styles: kit.styles.map(inModules), module: kit.module && inModules(kit.module), mode: kit.mode, css: faces + layout });
    // The collector is compiled once per page.
    await stage.page.evaluate(`window.taplineCollect = ${collect.toString()}`);
    stage.devtools = await stage.page.context().newCDPSession(stage.page);
    return stage;
  }

  /** Sets the screen, waits until it stands still, and returns what is on it and its picture. */
  async show(screen, format) {
    // The first time, images that the kit's style sheets bring are still being decoded.
    if (!this.shown) await this.set(screen, format);
    this.shown++;
    return this.set(screen, format);
  }

  async set({ look, html, css, htmlAttributes, bodyClass }, format) {
    await this.devtools.send("Emulation.setDeviceMetricsOverride", { width: look.width, height: look.height, deviceScaleFactor: look.scale, mobile: false });
    const found = await this.page.evaluate(async ({ html, css, htmlAttributes, bodyClass }) => {
      const root = document.documentElement;
      for (const [name, value] of Object.entries(htmlAttributes)) root.setAttribute(name, value);
      document.getElementById("seed").textContent = css;
      document.body.className = bodyClass;
      document.body.innerHTML = html;
      const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
      const custom = [...document.body.querySelectorAll("*")].filter((n) => n.localName.startsWith("ion-"));
      if (custom.length) {
        for (let i = 0; i < 120 && custom.some((n) => !n.classList.contains("hydrated")); i++) await frame();
        await frame(); await frame();
      }
      // A component that makes its own input carries the marks until the input is there.
      for (const node of document.querySelectorAll("[data-inner]")) {
        const input = node.querySelector("input, textarea"), [id, name] = node.dataset.inner.split("|");
        if (!input) continue;
        for (const [key, value] of Object.entries({ "data-role": "field", "data-id": id, "data-name": name })) input.setAttribute(key, value);
        if (input.placeholder === name) input.setAttribute("data-n", "");
      }
      document.body.getBoundingClientRect();
      await document.fonts.ready;
      await frame();
      return window.taplineCollect();
    }, { html, css, htmlAttributes, bodyClass });
    const shot = await this.devtools.send("Page.captureScreenshot", format === "png" ? { format, optimizeForSpeed: true } : { format, quality: 92 });
    return { found, picture: Buffer.from(shot.data, "base64") };
  }
}
