// From a seed to a screen's markup: everything that is left to chance is decided here.
import { Random } from "./random.mjs";
import { Content } from "./content.mjs";
import { TRAINING_SETS } from "./icons.mjs";
import { chooseLook } from "./look.mjs";
import { KITS } from "./kits.mjs";
import { TEMPLATES } from "./templates/index.mjs";

/** The screen of a seed, as text: the look, the markup and its name. */
export function compose(seed, kitName, { scale = "low", template: wanted } = {}) {
  const kit = KITS[kitName], rng = new Random(seed);
  const look = chooseLook(rng, rng.weighted(kit.shapes), scale, kit.themes);
  const borrow = !kit.heldOut && rng.chance(0.2);
  const iconSet = borrow ? rng.pick(TRAINING_SETS) : rng.pick(kit.icons);
  const ui = new kit.adapter({ rng, say: new Content(rng), look, iconSet, mode: kit.mode });
  const template = wanted ?? rng.pick(Object.keys(TEMPLATES));
  const html = ui.frame(TEMPLATES[template](ui));
  const shared = `:root{--k-gap:${look.gap}px;--k-pad:${look.pad}px;--k-radius:${look.radius}px;--k-rowpad:${look.rowPad}px}`;
  const face = look.face ? `body, body *:not(.k-icon){font-family:"${look.face}", sans-serif}` : "";
  return { kitName, template, look, html, css: shared + ui.css() + face, htmlAttributes: ui.htmlAttributes(), bodyClass: ui.bodyClass() };
}
