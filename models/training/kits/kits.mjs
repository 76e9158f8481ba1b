// The kits by name: what draws them, from which files, in which shapes and themes.
import { Bootstrap, Tabler } from "./adapters/bootstrap.mjs";
import { Framework7 } from "./adapters/framework7.mjs";
import { Primer } from "./adapters/primer.mjs";
import { Retro } from "./adapters/retro.mjs";
import { Bulma } from "./adapters/bulma.mjs";
import { Pico } from "./adapters/pico.mjs";
import { Fomantic } from "./adapters/fomantic.mjs";
import { Ionic } from "./adapters/ionic.mjs";

const BOTH = ["light", "dark"], LIGHT = ["light"];
const DESKTOP = [[1, "desktop"]], MOBILE = [[1, "mobile"]], MIXED = [[2, "desktop"], [1, "mobile"]];

export const KITS = {
  bootstrap: { adapter: Bootstrap, icons: ["bootstrap"], shapes: MIXED, themes: BOTH, styles: ["bootstrap/dist/css/bootstrap.min.css"] },
  tabler: { adapter: Tabler, icons: ["tabler"], shapes: MIXED, themes: BOTH, styles: ["@tabler/core/dist/css/tabler.min.css"] },
  "framework7-ios": { adapter: Framework7, mode: "ios", icons: ["framework7"], shapes: MOBILE, themes: BOTH, styles: ["framework7/framework7-bundle.min.css"] },
  "framework7-md": { adapter: Framework7, mode: "md", icons: ["material", "material", "mdi"], shapes: MOBILE, themes: BOTH, styles: ["framework7/framework7-bundle.min.css"] },
  primer: { adapter: Primer, icons: ["octicons"], shapes: DESKTOP, themes: BOTH,
    styles: ["@primer/primitives/dist/css/primitives.css", "@primer/primitives/dist/css/functional/themes/light.css", "@primer/primitives/dist/css/functional/themes/dark.css", "@primer/css/dist/primer.css"] },
  "98css": { adapter: Retro, mode: "98", icons: ["mdi", "lucide"], shapes: [[1, "retro"]], themes: LIGHT, styles: ["98.css/dist/98.css"] },
  xp: { adapter: Retro, mode: "xp", icons: ["mdi", "lucide"], shapes: [[1, "retro"]], themes: LIGHT, styles: ["xp.css/dist/XP.css"] },
  bulma: { adapter: Bulma, icons: ["mdi", "lucide", "bootstrap"], shapes: MIXED, themes: BOTH, styles: ["bulma/css/bulma.min.css"] },
  pico: { adapter: Pico, icons: ["lucide"], shapes: MIXED, themes: BOTH, styles: ["@picocss/pico/css/pico.min.css"] },
  fomantic: { adapter: Fomantic, heldOut: true, icons: ["fontawesome"], shapes: DESKTOP, themes: BOTH, styles: ["fomantic-ui-css/semantic.min.css"] },
  "ionic-ios": { adapter: Ionic, heldOut: true, mode: "ios", icons: ["ionicons"], shapes: MOBILE, themes: BOTH, styles: ["@ionic/core/css/ionic.bundle.css", "@ionic/core/css/palettes/dark.class.css"], module: "@ionic/core/dist/ionic/ionic.esm.js" },
  "ionic-md": { adapter: Ionic, heldOut: true, mode: "md", icons: ["ionicons"], shapes: MOBILE, themes: BOTH, styles: ["@ionic/core/css/ionic.bundle.css", "@ionic/core/css/palettes/dark.class.css"], module: "@ionic/core/dist/ionic/ionic.esm.js" },
};

export function kitNames(list) {
  if (list === "training" || list === "held-out") {
    return Object.keys(KITS).filter((name) => !!KITS[name].heldOut === (list === "held-out"));
  }
  const names = list.split(",");
  const unknown = names.filter((name) => !KITS[name]);
  if (unknown.length) throw new Error(`no such kit: ${unknown.join(", ")}`);
  return names;
}
