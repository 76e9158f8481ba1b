// Buying and listening.
import { bottomTabs, buttonLine, checks, chipLine, fieldGrid, iconLine, items, rowEnds, sideNav, topBar } from "./pieces.mjs";

export function shop(ui) {
  const { rng, say, look } = ui;
  const across = look.narrow ? 2 : Math.max(2, Math.min(5, Math.floor(look.width / rng.int(190, 260))));
  const count = across * rng.int(2, 3), height = rng.int(60, 120);
  const buy = say.repeats ? say.want("actions", "Add to cart", "Buy now", "Add") : null, heart = say.repeats && rng.chance(0.3) ? say.icon("heart", "bookmark") : null;
  const cards = say.labels("products", count).map((label) => ui.cardTarget(label, ui.picture("100%", height) + `<div>${ui.named(label)}</div><div class="k-line k-spread"><span class="k-muted">${say.price()}</span>${heart ? ui.iconButton(heart, { bare: true }) : ""}</div>${buy ? ui.button(buy, { variant: "primary" }) : ""}`));
  const banner = `<div class="k-line k-spread">${ui.title(say.sentence(2, 3))}${ui.button(say.want("actions", "Buy now", "Learn more", "View all"), { variant: "primary" })}</div>`;
  const filters = rng.chance(0.6) ? chipLine(ui, "navigation", rng.int(3, 6)) : ui.tabs(items(ui, "navigation", 3, { icons: false, longest: 9 }));
  const sort = ui.line(`${ui.select(say.want("columns", "Price", "Rating"), say.sentence(1))}${iconLine(ui, rng.int(1, 3), "filter", "grid", "sort")}`);
  return { top: topBar(ui, say.want("navigation", "Shop", "Products", "Home")), side: sideNav(ui, 0.4), main: (rng.chance(0.5) ? ui.searchField(say.want("fields", "Search")) : "") + (rng.chance(0.5) ? banner : "") + filters + (rng.chance(0.4) ? sort : "") + ui.grid(across, cards), bottom: bottomTabs(ui, 0.8) };
}

export function cart(ui) {
  const { rng, say, look } = ui;
  const count = rng.int(2, 5), ends = rowEnds(ui, count);
  const goods = ui.list(say.labels("products", count).map((label, i) => ui.row({ label, media: ui.picture(44, 44), detail: `${rng.int(1, 4)} x ${say.price()}`, end: ends[i] })));
  const address = ui.stack(ui.heading(say.want("headings", "Shipping address", "Billing details", "Personal details")) + fieldGrid(ui, rng.sample(["First name", "Last name", "Address", "City", "Country", "Postal code", "Phone number", "Email"], rng.int(4, 7)).map((l) => say.want("fields", l))));
  const pay = ui.stack(ui.heading(say.want("headings", "Payment method")) + ui.stack(["Credit card", "Bank transfer", "Cash"].map((l, i) => ui.check("radio", say.want("checks", l), i === 0)).join("")) + fieldGrid(ui, [say.want("fields", "Card number"), say.want("fields", "Expiry date"), say.want("fields", "Security code")]));
  const sums = rng.times(3, () => `<div class="k-line k-spread"><span>${say.word()}</span><span>${say.price()}</span></div>`).join("");
  const code = say.want("fields", "Coupon code");
  const coupon = `<div class="k-line k-nowrap"><div class="k-grow">${ui.field({ label: code, placeholder: code })}</div>${ui.button(say.want("actions", "Apply"))}</div>`;
  const total = ui.card(ui.heading(say.want("headings", "Order summary")) + sums + (rng.chance(0.6) ? coupon : "") + checks(ui, rng.int(1, 3)) + ui.button(say.want("actions", "Checkout", "Place order", "Pay now"), { variant: "primary", block: true, icon: rng.chance(0.3) ? say.iconFor("Payments") : null }) + (rng.chance(0.6) ? ui.line(ui.link(say.want("actions", "Continue shopping")), "k-center") : ""));
  const left = rng.shuffle([goods, ...(rng.chance(0.7) ? [address] : []), ...(rng.chance(0.7) ? [pay] : [])]);
  const main = look.narrow ? rng.shuffle([...left.slice(0, 2), total]).join("") : `<div class="k-grid" style="grid-template-columns:minmax(0,2fr) minmax(0,1fr)">${ui.stack(left.join(""))}${total}</div>`;
  return { top: topBar(ui, say.want("headings", "Your cart"), { back: true }), side: sideNav(ui, 0.15), main: ui.title(say.sentence(1, 2)) + main, bottom: bottomTabs(ui, 0.4) };
}

export function player(ui) {
  const { rng, say, look } = ui;
  const video = rng.chance(0.4), size = look.narrow ? rng.int(140, 260) : rng.int(140, 220);
  const art = `<div class="k-line ${rng.chance(0.7) ? "k-center" : ""}">${ui.picture(video ? Math.min(look.width - 40, size * 1.7) : size, size)}</div>`;
  const title = `<div class="${rng.chance(0.5) ? "k-center" : ""}"><p class="k-h">${say.sentence(1, 3)}</p><div class="k-muted">${say.sentence(2, 3)}</div></div>`;
  const time = ui.line(`<span class="k-small">${say.time()}</span><div class="k-grow">${ui.bareSlider(rng.int(3, 97))}</div><span class="k-small">${say.time()}</span>`, "k-nowrap");
  const big = (name, size) => ui.iconButton(say.icon(name), { size, bare: true });
  const names = ["previous", rng.pick(["play", "pause"]), "next"];
  if (rng.chance(0.6)) { names.unshift("shuffle"); names.push("repeat"); }
  const controls = ui.line(names.map((n) => big(n, n === "play" || n === "pause" ? 34 : 24)).join(""), "k-center");
  const extras = ui.line(rng.times(rng.int(2, 5), (i) => ui.iconButton(say.icon(["heart", "volume", "expand", "share", "more"][i]), { bare: true })).join(""), rng.pick(["k-spread", "k-center", ""]));
  const volume = rng.chance(0.5) ? ui.slider(say.want("settings", "Volume"), rng.int(10, 90)) : "";
  const count = rng.int(3, 8), ends = rowEnds(ui, count);
  const queue = ui.stack(ui.heading(say.want("headings", "Now playing", "Recent activity")) + ui.list(say.labels("navigation", count, 12).map((label, i) => ui.row({ label, media: ui.picture(36, 36), detail: say.sentence(1, 3), end: ends[i] }))));
  const deck = ui.stack(art + title + time + controls + (rng.chance(0.8) ? extras : "") + volume);
  const actions = rng.chance(0.5) ? buttonLine(ui, rng.int(2, 3), { longest: 10 }) : "";
  const tabs = rng.chance(0.4) ? ui.tabs(items(ui, "navigation", 3, { icons: false, longest: 9 })) : "";
  return { top: topBar(ui, say.want("navigation", "Music", "Videos", "Podcasts", "Movies", "Radio"), { back: true }), side: sideNav(ui, 0.5), main: tabs + (look.narrow ? deck + actions + queue : ui.grid(2, rng.shuffle([ui.stack(deck + actions), queue]))), bottom: bottomTabs(ui) };
}
