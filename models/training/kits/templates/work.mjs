// Screens of work: tables, dashboards, files, documents.
import { bottomTabs, buttonLine, checks, chipLine, columns, iconLine, items, rowEnds, sideNav, topBar } from "./pieces.mjs";

function dataTable(ui, count) {
  const { rng, say, look } = ui;
  const headers = say.labels("columns", look.narrow ? 2 : rng.int(3, 6));
  const linked = rng.chance(0.6), ends = rowEnds(ui, count), some = ends.some(Boolean) && !look.narrow;
  const names = say.labels(rng.pick(["people", "products"]), count);
  const heads = rng.chance(0.4) ? headers.map((h) => ui.link(h)) : headers;
  const rows = names.map((name, i) => [linked ? ui.link(name) : name, ...headers.slice(1).map((h) => (rng.chance(0.15) ? ui.badge(say.word()) : say.datum(h))), ...(some ? [ends[i]] : [])]);
  return ui.table(some ? [...heads, ""] : heads, rows);
}

export function table(ui) {
  const { rng, say, look } = ui;
  const tools = ui.line(buttonLine(ui, look.mobile ? 2 : rng.int(2, 4), { longest: 11 }) + (rng.chance(0.6) ? iconLine(ui, rng.int(2, look.mobile ? 3 : 5), "filter", "sort", "refresh", "print") : ""), "k-spread");
  const search = rng.chance(0.5) ? `<div style="max-width:320px">${ui.searchField(say.want("fields", "Search"))}</div>` : "";
  const tabs = rng.chance(0.5) ? ui.tabs(items(ui, "navigation", rng.int(3, look.mobile ? 3 : 6), { icons: rng.chance(0.3), longest: 10 })) : "";
  const pages = ui.line([say.want("actions", "Previous"), say.want("actions", "Next")].map((l) => ui.button(l)).join("") + `<span class="k-muted">1 / ${rng.int(2, 40)}</span>`);
  const grid = dataTable(ui, rng.int(5, 11));
  return { top: topBar(ui, say.want("navigation", "Orders", "Customers", "Invoices", "Products", "Users", "Payments")), side: sideNav(ui, 0.7), main: ui.title(say.label("headings")) + tabs + tools + search + (rng.chance(0.5) ? ui.card(grid) : grid) + pages, bottom: bottomTabs(ui) };
}

export function dashboard(ui) {
  const { rng, say, look } = ui;
  const facts = ui.grid(look.narrow ? 2 : Math.min(4, Math.floor(look.width / 230)), rng.times(4, () => ui.card(`<div class="k-muted k-small">${say.sentence(1, 2)}</div><p class="k-big">${say.price()}</p>${rng.chance(0.5) ? ui.meter(rng.int(10, 95)) : ""}`)));
  const bars = rng.times(rng.int(7, 14), () => `<div style="flex:1;height:${rng.int(12, 100)}%;background:var(--k-accent);opacity:${rng.real(0.5, 1).toFixed(2)}"></div>`).join("");
  const chart = ui.card(ui.line(ui.heading(say.label("headings")) + ui.line(say.labels("navigation", 2, 8).map((l) => ui.link(l)).join("")), "k-spread") + `<div style="display:flex;align-items:flex-end;gap:5px;height:${rng.int(90, 170)}px">${bars}</div>`);
  const count = rng.int(3, 6), ends = rowEnds(ui, count);
  const recent = ui.card(ui.line(ui.heading(say.label("headings")) + ui.link(say.want("actions", "View all", "See more")), "k-spread") + ui.list(say.labels("people", count).map((label, i) => ui.row({ label, detail: say.sentence(2, 6), media: rng.chance(0.5) ? ui.avatar(label, 30) : "", end: ends[i] }))));
  const grid = ui.card(dataTable(ui, rng.int(3, 6)));
  const goals = ui.card(ui.heading(say.label("headings")) + rng.times(3, () => `<div class="k-small">${say.sentence(1, 3)}</div>${ui.meter(rng.int(5, 98))}`).join("") + buttonLine(ui, rng.int(1, 2)));
  const quick = ui.grid(rng.int(2, 4), items(ui, "actions", rng.int(4, 6), { longest: 9 }).map((i) => ui.cardTarget(i.label, `${ui.icon(i.icon, { size: 26 })}${ui.named(i.label)}`)));
  const blocks = rng.shuffle([chart, recent, goals, ...(look.narrow ? [] : [grid]), ...(rng.chance(0.6) ? [quick] : [])]);
  return { top: topBar(ui, say.want("navigation", "Dashboard", "Overview", "Analytics", "Reports")), side: sideNav(ui, 0.85), main: (rng.chance(0.6) ? ui.line(ui.title(say.want("headings", "Welcome", "Welcome back")) + buttonLine(ui, rng.int(1, 2)), "k-spread") : "") + (rng.chance(0.8) ? facts : "") + columns(ui, blocks), bottom: bottomTabs(ui) };
}

export function files(ui) {
  const { rng, say, look } = ui;
  const places = items(ui, "navigation", rng.int(5, 8), { longest: 10 });
  const path = ui.line(iconLine(ui, rng.int(2, 5), "back", "forward", "up", "refresh", "grid") + (rng.chance(0.5) ? ui.searchField(say.want("fields", "Search")) : ""));
  const labels = say.labels("navigation", rng.int(5, 9));
  const asCards = rng.chance(0.4);
  const list = asCards
    ? ui.grid(look.narrow ? 3 : Math.max(3, Math.min(6, Math.floor(look.width / 190))), labels.map((label) => ui.cardTarget(label, `<div class="k-stack k-center">${ui.icon(say.iconFor(label), { size: 34 })}${ui.named(label)}</div>`)))
    : ui.list(labels.map((label) => ui.row({ label, icon: say.iconFor(label), detail: rng.chance(0.3) ? say.date() : "", end: `<span class="k-muted k-small">${say.size()}</span>` })));
  const foot = ui.stack([
    look.mobile ? "" : ui.grid(2, [ui.field({ label: say.want("fields", "File name"), value: say.word() }), ui.select(say.want("columns", "Type"), say.sentence(1, 2))]),
    rng.chance(0.4) ? checks(ui, rng.int(1, 2)) : "",
    ui.line([say.want("actions", "Open", "Save"), say.want("actions", "Cancel"), ...(rng.chance(0.5) ? [say.want("actions", "New folder")] : [])].map((l, i) => ui.button(l, { variant: i ? "plain" : "primary" })).join(""), "k-end"),
  ].join(""));
  return { top: topBar(ui, say.want("headings", "Open file", "Save as", "Storage")), side: look.width < 560 ? "" : ui.sidebar(places), main: path + list + foot, bottom: bottomTabs(ui), menus: true };
}

export function editor(ui) {
  const { rng, say, look } = ui;
  const menus = look.mobile ? "" : ui.line(say.labels("menus", rng.int(4, 8)).map((l) => ui.link(l)).join(""), "k-small");
  const tools = iconLine(ui, rng.int(6, look.mobile ? 7 : 15), "save", "undo", "cut", "copy", "paste", "print", "link", "image", "attach", "search");
  const tabs = rng.chance(0.5) ? ui.tabs(items(ui, "navigation", rng.int(2, look.narrow ? 3 : 5), { icons: false, longest: 9 })) : "";
  const page = ui.card(ui.title(say.sentence(2, 4)) + rng.times(rng.int(3, 6), () => `<div>${say.sentence(12, 45)}</div>`).join(""));
  const comments = ui.stack(ui.heading(say.label("headings")) + ui.list(say.labels("people", rng.int(2, 4)).map((label) => ui.row({ label, media: ui.avatar(label, 28), detail: say.sentence(4, 8) }))) + ui.field({ label: say.want("fields", "Message", "Notes"), lines: 2 }) + buttonLine(ui, 2, { longest: 10 }));
  const options = ui.stack(checks(ui, rng.int(2, 4)) + (rng.chance(0.6) ? ui.select(say.want("settings", "Font size", "Language", "Theme"), say.number()) : "") + (rng.chance(0.4) ? ui.slider(say.want("settings", "Brightness", "Display"), rng.int(5, 95)) : ""));
  const side = rng.shuffle([comments, options]).slice(0, rng.int(1, 2)).join("");
  return { top: topBar(ui, say.want("navigation", "Documents", "Notes", "Projects")), side: sideNav(ui, 0.3), menus: true,
    main: menus + tools + tabs + (look.narrow ? page + side : `<div class="k-grid" style="grid-template-columns:minmax(0,2fr) minmax(0,1fr)">${page}${ui.stack(side)}</div>`), bottom: bottomTabs(ui, 0.3) };
}
