// Screens to fill in or to set.
import { bottomTabs, buttonLine, checks, chipLine, columns, fieldFor, fieldGrid, iconLine, items, rowEnds, sideNav, topBar } from "./pieces.mjs";

export function login(ui) {
  const { rng, say, look } = ui;
  const join = rng.chance(0.35);
  const main = join ? say.want("actions", "Sign up", "Create account", "Join", "Get started") : say.want("actions", "Sign in", "Log in", "Continue");
  const fields = join ? ["First name", "Last name", "Email", "Password", "Confirm password", "Phone number", "Company"] : [rng.pick(["Email", "Username", "Phone number"]), "Password"];
  const shown = join ? rng.sample(fields, rng.int(3, 6)) : fields;
  const parts = [
    ...(rng.chance(0.5) ? [ui.line(ui.picture(56, 56), rng.chance(0.5) ? "k-center" : "")] : []),
    ui.title(say.want("headings", "Welcome", "Welcome back", "My account")),
    ...(rng.chance(0.6) ? [ui.muted(say.sentence(4, 9))] : []),
    ...shown.map((l) => fieldFor(ui, say.want("fields", l))),
    checks(ui, rng.int(1, 2)),
    ui.button(main, { variant: "primary", block: rng.chance(0.7) }),
    ...(join ? [] : [ui.line(ui.link(say.want("actions", "Forgot password", "Reset password")), rng.pick(["", "k-center", "k-end"]))]),
  ];
  if (rng.chance(0.6)) parts.push(ui.grid(rng.int(1, 3), say.labels("actions", rng.int(2, 3), 9).map((l) => ui.button(l, { icon: rng.chance(0.5) ? say.iconFor(l) : null, block: true }))));
  if (rng.chance(0.4)) parts.push(iconLine(ui, rng.int(2, 5)));
  parts.push(ui.line(`<span class="k-muted">${say.sentence(2, 4)}</span> ${ui.link(join ? say.want("actions", "Sign in", "Log in") : say.want("actions", "Sign up", "Create account"))}`));
  if (rng.chance(0.5)) parts.push(ui.line(say.labels("navigation", rng.int(2, 4), 10).map((l) => ui.link(l)).join(""), "k-center k-small"));
  const form = ui.stack(parts.join(""));
  const boxed = look.narrow ? form : `<div style="width:min(${rng.int(340, 460)}px,100%);margin:${rng.int(0, 40)}px ${rng.pick(["auto", "auto", "0"])}">${rng.chance(0.6) ? ui.card(parts.join("")) : form}</div>`;
  return { top: rng.chance(0.4) ? topBar(ui, say.word(), { back: true, icons: rng.int(0, 2) }) : "", main: boxed };
}

function settingsGroup(ui, count) {
  const { rng, say } = ui;
  const media = rng.chance(0.6), labels = say.labels("settings", count);
  const kind = rng.weighted([[3, "mixed"], [3, "row"], [2, "switch"]]);
  return ui.list(labels.map((label) => {
    const role = kind === "mixed" ? rng.pick(["row", "switch"]) : kind;
    return ui.row({ label, role, icon: media ? say.iconFor(label) : null, on: rng.chance(0.5), detail: rng.chance(0.3) ? say.sentence(2, 5) : "",
      end: role === "row" && rng.chance(0.4) ? `<span class="k-muted">${say.sentence(1)}</span>` : "" });
  }));
}

export function settings(ui) {
  const { rng, say, look } = ui;
  const groups = rng.times(look.mobile ? rng.int(3, 5) : rng.int(3, 6), () => {
    const group = settingsGroup(ui, rng.int(2, 6));
    return (rng.chance(0.4) ? ui.muted(say.sentence(1, 2)) : "") + group;
  });
  const extras = [
    () => ui.select(say.want("settings", "Language", "Region", "Theme"), say.sentence(1)),
    () => ui.tabs(items(ui, "navigation", 3, { icons: false, longest: 8 })),
    () => checks(ui, rng.int(2, 4)),
    () => buttonLine(ui, rng.int(1, 3)),
  ];
  const slider = rng.chance(0.45) ? ui.slider(say.want("settings", "Brightness", "Volume", "Font size", "Display"), rng.int(5, 95)) : "";
  const blocks = [...groups, ...rng.sample(extras, rng.int(1, 3)).map((make) => make())];
  const search = rng.chance(0.35) ? ui.searchField(say.want("fields", "Search")) : "";
  return { top: topBar(ui, say.want("navigation", "Settings", "Profile"), { back: true }), side: sideNav(ui), main: search + slider + columns(ui, rng.chance(0.25) ? blocks : rng.shuffle(blocks), 2), bottom: bottomTabs(ui, 0.4) };
}

export function eventForm(ui) {
  const { rng, say, look } = ui;
  const first = rng.int(0, 6), days = rng.int(28, 31), today = rng.int(1, days);
  const week = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
  const cell = (text, style = "") => `<div class="k-day" style="${style}">${text}</div>`;
  const cells = [...week.map((d) => cell(d, "opacity:.6")), ...rng.times(first, () => cell("")), ...rng.times(days, (i) => cell(i + 1, i + 1 === today ? "background:var(--k-accent);color:#fff;border-radius:6px" : ""))];
  const month = ui.card(ui.line(`${ui.iconButton(say.icon("back"))}<strong>${say.date()}</strong>${ui.iconButton(say.icon("forward"))}`, "k-spread k-nowrap") + `<div class="k-grid" style="gap:0;grid-template-columns:repeat(7,1fr)">${cells.join("")}</div>`);
  const views = ui.tabs(["Today", "Week", "Month", "Year"].slice(0, rng.int(3, 4)).map((l, i) => ({ label: say.want("navigation", l), on: i === 1 })));
  const form = ui.stack([
    fieldGrid(ui, [say.want("fields", "Title", "Subject"), say.want("fields", "Start date"), say.want("fields", "End date"), say.want("fields", "Description", "Notes"), ...(rng.chance(0.5) ? [say.want("fields", "Time zone", "Address")] : [])]),
    checks(ui, rng.int(2, 3)), rng.chance(0.5) ? ui.slider(say.want("settings", "Volume"), rng.int(10, 90)) : "",
    chipLine(ui, "people", rng.int(2, 5)), buttonLine(ui, rng.int(2, 3)),
  ].join(""));
  const agenda = ui.list(say.labels("navigation", rng.int(3, 6)).map((label) => ui.row({ label, detail: `${say.time()} - ${say.time()}`, icon: rng.chance(0.3) ? say.iconFor(label) : null })));
  const parts = rng.shuffle([month, form, ...(rng.chance(0.6) || !look.mobile ? [agenda] : [])]);
  return { top: topBar(ui, say.want("navigation", "Calendar", "Events"), {}), side: sideNav(ui, 0.4), main: (rng.chance(0.7) ? views : "") + columns(ui, parts), bottom: bottomTabs(ui, 0.5) };
}

export function profile(ui) {
  const { rng, say, look } = ui;
  const who = say.label("people"), centre = rng.chance(0.5);
  const head = `<div class="${centre ? "k-stack k-center" : "k-line k-nowrap"}">${ui.avatar(who, rng.int(56, 96))}<div><p class="k-h">${who}</p><div class="k-muted">${say.email()}</div></div></div>`;
  const facts = ui.line(rng.times(3, () => `<div style="text-align:center"><strong>${say.number()}</strong><div class="k-muted k-small">${say.word()}</div></div>`).join(""), centre ? "k-center" : "");
  const actions = ui.line([say.want("actions", "Follow", "Add friend", "Invite"), say.want("actions", "Message", "Call"), ...(rng.chance(0.5) ? [say.want("actions", "Share", "Edit", "Change photo")] : [])].map((l, i) => ui.button(l, { variant: i ? "plain" : "primary", icon: rng.chance(0.4) ? say.iconFor(l) : null })).join(""), centre ? "k-center" : "");
  const tabs = ui.tabs(items(ui, "navigation", rng.int(3, 4), { icons: rng.chance(0.3), longest: 9 }));
  const count = rng.int(3, 7), ends = rowEnds(ui, count);
  const rows = ui.list(say.labels("navigation", count).map((label, i) => ui.row({ label, icon: say.iconFor(label), end: ends[i], detail: rng.chance(0.3) ? say.sentence(2, 4) : "" })));
  const form = ui.stack(fieldGrid(ui, say.labels("fields", rng.int(3, 6))) + buttonLine(ui, 2));
  const photos = ui.grid(look.narrow ? 3 : 4, rng.times(look.narrow ? 6 : 8, () => ui.picture("100%", rng.int(60, 100))));
  const blocks = [rows, ...(rng.chance(0.6) ? [form] : []), ...(rng.chance(0.4) ? [photos] : []), ...(rng.chance(0.4) ? [iconLine(ui, rng.int(3, 6))] : [])];
  return { top: topBar(ui, say.want("navigation", "Profile", "Friends"), { back: true }), side: sideNav(ui, 0.4), main: head + (rng.chance(0.7) ? facts : "") + actions + (rng.chance(0.7) ? tabs : "") + columns(ui, rng.shuffle(blocks), 2), bottom: bottomTabs(ui) };
}
