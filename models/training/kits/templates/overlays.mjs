// Something over a page: a dialog, a menu, a sheet. What the page shows beneath a shade is not to be pressed.
import { Content } from "../content.mjs";
import { checks, fieldFor } from "./pieces.mjs";
import { eventForm, profile, settings } from "./forms.mjs";
import { mail, people, searchPage } from "./lists.mjs";
import { dashboard, files, table } from "./work.mjs";
import { shop } from "./leisure.mjs";

const PAGES = [eventForm, profile, settings, mail, people, searchPage, dashboard, files, table, shop];

export function confirm(ui) {
  const { rng, say } = ui;
  const buttons = rng.pick([["Cancel", "Delete"], ["No", "Yes"], ["Cancel", "OK"], ["Later", "Update"], ["Deny", "Allow"], ["Decline", "Accept"], ["Cancel", "Discard changes", "Save"], ["Not now", "Install"], ["Cancel", "Confirm"]]);
  const labels = buttons.map((l) => say.want("actions", l));
  const title = rng.chance(0.5) ? say.want("headings", "Confirm delete", "Something went wrong") : say.sentence(2, 5);
  const body = (rng.chance(0.4) ? say.labels("fields", rng.int(1, 2)).map((l) => fieldFor(ui, l)).join("") : "") + (rng.chance(0.5) ? checks(ui, rng.int(1, 4)) : "")
    + (rng.chance(0.3) ? ui.list(say.labels("navigation", rng.int(2, 4)).map((label) => ui.row({ label, icon: say.iconFor(label) }))) : "")
    + (rng.chance(0.4) ? ui.line(ui.link(say.want("actions", "Learn more", "Show details", "Try again")) + (rng.chance(0.4) ? ui.iconButton(say.icon("help", "info", "copy", "link")) : "")) : "");
  const actions = labels.map((l, i) => ui.button(l, { variant: i === labels.length - 1 ? (rng.chance(0.4) ? "danger" : "primary") : "plain" })).join("");
  const overlay = ui.dialog({ title, text: say.sentence(6, 18), body, actions });
  // The page beneath may say anything again: it is out of reach.
  ui.say = new Content(rng);
  const page = rng.pick(PAGES)(ui);
  ui.say = say;
  return { ...page, float: "", overlay };
}

export function menuOpen(ui) {
  const { rng, say, look } = ui;
  const list = say.labels("actions", rng.int(4, 8), 18).map((label) => ({ label, icon: null }));
  if (rng.chance(0.6)) for (const item of list) item.icon = say.iconFor(item.label);
  if (look.mobile && rng.chance(0.5)) {
    const overlay = ui.sheet(list);
    ui.say = new Content(rng);
    const page = rng.pick(PAGES)(ui);
    ui.say = say;
    return { ...page, float: "", overlay };
  }
  const menu = ui.menu(list);
  const page = rng.pick(PAGES)(ui);
  const place = look.mobile ? `right:${rng.int(4, 14)}px;top:${rng.int(44, 60)}px` : `${rng.pick(["left", "right"])}:${rng.int(10, Math.floor(look.width * 0.5))}px;top:${rng.int(48, Math.floor(look.height * 0.35))}px`;
  return { ...page, float: `<div class="k-float" style="${place}">${menu}</div>` };
}
