// Canonical icon names, drawn by the set each kit uses.
import fs from "node:fs";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
export const ICONS = JSON.parse(fs.readFileSync(here("../icons.json"), "utf8"));

const SVG = {
  bootstrap: (n) => `bootstrap-icons/icons/${n}.svg`,
  tabler: (n) => `@tabler/icons/icons/outline/${n}.svg`,
  framework7: (n) => `framework7-icons/svg/${n}.svg`,
  ionicons: (n) => `ionicons/dist/svg/${n}.svg`,
  fontawesome: (n) => `@fortawesome/fontawesome-free/svgs/solid/${n}.svg`,
  octicons: (n) => `@primer/octicons/build/svg/${n}-16.svg`,
  lucide: (n) => `lucide-static/icons/${n}.svg`,
};
/** Where a set has no drawing, a set of the same look that may appear in the same kits. */
const FALLBACK = { octicons: "lucide", framework7: "material", fontawesome: "ionicons" };
export const TRAINING_SETS = ["bootstrap", "tabler", "framework7", "material", "octicons", "lucide", "mdi"];

export const FONT_FACES = {
  mdi: ["tapline-mdi", "@mdi/font/fonts/materialdesignicons-webfont.woff2"],
  material: ["tapline-material", "material-symbols/material-symbols-outlined.woff2"],
};

let mdiCodes = null;
function mdiCode(name) {
  if (!mdiCodes) {
    const css = fs.readFileSync(here("node_modules/@mdi/font/css/materialdesignicons.css"), "utf8");
    mdiCodes = new Map([...css.matchAll(/\.mdi-([a-z0-9-]+)::before\s*{\s*content:\s*"\\([0-9A-F]+)"/g)].map((m) => [m[1], m[2]]));
  }
  return mdiCodes.get(name);
}

const cache = new Map();
function drawing(set, canonical) {
  const key = `${set} ${canonical}`;
  if (!cache.has(key)) cache.set(key, load(set, canonical));
  return cache.get(key);
}

function load(set, canonical) {
  const name = ICONS[canonical]?.[set];
  if (!name) return FALLBACK[set] ? drawing(FALLBACK[set], canonical) : null;
  if (set === "mdi") return { font: "mdi", text: `&#x${mdiCode(name)};` };
  if (set === "material") return { font: "material", text: name };
  const path = here(`node_modules/${SVG[set](name)}`);
  if (!fs.existsSync(path)) return FALLBACK[set] ? drawing(FALLBACK[set], canonical) : null;
  const text = fs.readFileSync(path, "utf8")
    .replace(/<!--[\s\S]*?-->/g, "")
    // Tabler's invisible frame would hide how large the drawing really is.
    .replace(/<path stroke="none"[^>]*\/>/g, "");
  const root = text.match(/<svg([^>]*)>/)[1];
  const keep = [...root.matchAll(/\b(viewBox|stroke-width|stroke-linecap|stroke-linejoin|stroke)="([^"]*)"/g)].map((m) => m[0]);
  const fill = /fill="none"/.test(root) ? "none" : "currentColor";
  return { attributes: `${keep.join(" ")} fill="${fill}"`, inner: text.replace(/^[\s\S]*?<svg[^>]*>/, "").replace(/<\/svg>\s*$/, "") };
}

export function iconMarkup(set, canonical, { size = 20, cls = "", extra = "" } = {}) {
  const d = drawing(set, canonical) ?? drawing("lucide", canonical);
  const style = `width:${size}px;height:${size}px;min-width:${size}px`;
  if (d.font) {
    return `<i class="k-icon k-icon-${d.font} ${cls}" ${extra} data-icon="${canonical}" style="${style};font-size:${size}px">${d.text}</i>`;
  }
  return `<svg class="k-icon ${cls}" ${extra} data-icon="${canonical}" ${d.attributes} style="${style}">${d.inner}</svg>`;
}
