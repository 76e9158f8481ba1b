// Parts that several templates share.

/** Makes {label, icon?, on} for a row of tabs or links. */
export function items(ui, group, count, { icons = true, longest = 14, on = 0 } = {}) {
  return ui.say.labels(group, count, longest).map((label, i) => ({ label, icon: icons ? ui.say.iconFor(label) : null, on: i === on }));
}

export function topBar(ui, title, { back = false, icons = null } = {}) {
  const { rng, say, look } = ui;
  const left = look.mobile ? (rng.chance(0.8) ? ui.iconButton(back ? say.icon("back", "close") : say.icon("menu", "menu", "back"), { bare: true }) : "") : "";
  const count = icons ?? (look.mobile ? rng.int(0, 3) : rng.int(1, 4));
  const right = rng.times(count, () => ui.iconButton(say.icon(...(rng.chance(0.6) ? ["search", "bell", "more", "user", "settings", "cart", "help"] : [])), { bare: true })).join("");
  let middle = "";
  if (!look.mobile && !look.narrow) {
    const links = rng.chance(0.6) ? say.labels("navigation", rng.int(2, look.width > 1100 ? 6 : 3), 10).map((l) => ui.link(l)).join("") : "";
    const search = rng.chance(0.3) ? `<div style="width:180px">${ui.searchField(say.want("fields", "Search"))}</div>` : "";
    middle = ui.line(links + search, "k-nowrap");
  }
  const action = !look.mobile && rng.chance(0.4) ? ui.button(say.label("actions", 12), { variant: "primary" }) : "";
  return ui.navbar({ title, left, right: right + action, middle });
}

export function bottomTabs(ui, chance = 0.6) {
  const { rng, look } = ui;
  if (!look.mobile || !rng.chance(chance)) return "";
  const list = items(ui, "navigation", rng.int(3, 5), { longest: 10 });
  if (rng.chance(0.15)) for (const item of list) { item.label = ""; item.icon = ui.say.icon(); }
  return ui.tabbar(list);
}

export function sideNav(ui, chance = 0.6) {
  const { rng, look } = ui;
  if (look.mobile || look.width < 700 || !rng.chance(chance)) return "";
  return ui.sidebar(items(ui, rng.chance(0.8) ? "navigation" : "settings", rng.int(5, 11), { icons: rng.chance(0.7), longest: 16 }));
}

export function buttonLine(ui, count, { group = "actions", more = "", longest = 16 } = {}) {
  const { rng, say } = ui;
  const first = rng.int(0, count - 1);
  return ui.line(rng.times(count, (i) => {
    const label = say.label(group, longest);
    return ui.button(label, { variant: i === first ? "primary" : rng.chance(0.12) ? "danger" : "plain", icon: rng.chance(0.35) ? say.iconFor(label) : null });
  }).join(""), more);
}

export function iconLine(ui, count, ...wanted) {
  return ui.toolbar(ui.rng.times(count, (i) => ui.iconButton(ui.say.icon(...(wanted[i] ? [wanted[i]] : [])))).join(""));
}

export function chipLine(ui, group, count) {
  const { rng, say } = ui;
  return ui.line(say.labels(group, count, 12).map((label, i) => ui.chip(label, { on: i === 0 && rng.chance(0.6), icon: rng.chance(0.15) ? say.iconFor(label) : null })).join(""));
}

/** A value that suits the label: something to look past. */
export function valueFor(ui, label) {
  const { rng, say } = ui, l = label.toLowerCase();
  if (l.includes("date") || l === "birthday") return say.date();
  if (l.includes("email")) return say.email();
  if (/number|code|quantity/.test(l)) return String(rng.int(100, 99999));
  if (l.includes("amount")) return say.price();
  return say.sentence(1, 2);
}

export function fieldFor(ui, label) {
  const { rng } = ui, low = label.toLowerCase();
  const secret = low.includes("password");
  const inner = rng.chance(0.3);
  if (inner) return ui.field({ label, placeholder: label });
  if (["message", "description", "notes"].includes(low) && rng.chance(0.7)) return ui.field({ label, lines: rng.int(2, 4), value: rng.chance(0.5) ? ui.say.sentence(4, 12) : "" });
  if (["country", "state", "currency", "time zone", "gender"].includes(low)) return ui.select(label, ui.say.sentence(1));
  return ui.field({ label, type: secret ? "password" : "text", value: rng.chance(0.45) ? (secret ? "secretword" : valueFor(ui, label)) : "" });
}

export function fieldGrid(ui, labels) {
  const wide = ui.look.mobile && !ui.look.tablet ? (ui.rng.chance(0.15) ? 2 : 1) : ui.rng.int(1, 3);
  return ui.grid(wide, labels.map((l) => fieldFor(ui, l)));
}

export function checks(ui, count, group = "checks") {
  const { rng, say } = ui;
  const kind = rng.pick(["checkbox", "checkbox", "radio", "switch"]);
  const on = rng.int(0, count - 1);
  const list = say.labels(group, count).map((label, i) => ui.check(kind, label, kind === "radio" ? i === on : rng.chance(0.5)));
  return rng.chance(0.5) ? ui.line(list.join("")) : ui.stack(list.join(""));
}

/** What stands at the end of a row: nothing, a fact, or buttons; the same in every row only where a screen may repeat itself. */
export function rowEnds(ui, count) {
  const { rng, say } = ui;
  const style = rng.weighted([[3, "none"], [3, "fact"], [2, "badge"], [say.repeats ? 8 : 0, "button"], [say.repeats ? 5 : 0, "icon"]]);
  const action = style === "button" ? say.label("actions", 8) : null, icon = style === "icon" ? say.icon("more", "trash", "edit", "star", "heart") : null;
  return rng.times(count, () => ({
    none: () => "",
    fact: () => `<span class="k-muted k-small">${rng.pick([say.time(), say.date(), say.number()])}</span>`,
    badge: () => (rng.chance(0.5) ? ui.badge(say.number()) : ""),
    button: () => ui.button(action, { variant: "plain" }),
    icon: () => ui.iconButton(icon, { bare: true }),
  })[style]());
}

/** Several columns where there is room, one below the other where not. */
export function columns(ui, blocks, most = 3) {
  const { look, rng } = ui;
  if (look.narrow) return blocks.join("");
  const count = Math.min(most, Math.max(1, Math.floor(look.width / rng.int(260, 420))));
  const stacks = rng.times(count, () => []);
  blocks.forEach((block, i) => stacks[i % count].push(block));
  return ui.grid(count, stacks.map((s) => ui.stack(s.join(""))));
}
