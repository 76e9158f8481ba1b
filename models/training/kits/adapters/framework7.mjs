// Framework7 in its iOS and Material themes: its own markup, without its scripts.
import { colorThemeCSSProperties } from "framework7/shared/utils.js";
import { Kit, classes } from "./base.mjs";

const rules = (selector, values) => `${selector}{${Object.entries(values).map(([name, value]) => `${name}:${value}`).join(";")}}`;
/** The kit's script makes its colours from one; this is that part of it. */
function colourRules(hex) {
  const { ios, md, light, dark } = colorThemeCSSProperties(hex);
  return rules(".ios", ios) + rules(".md", md) + rules(":root", light) + rules(".dark", dark);
}
const hexOf = (h, s, l) => {
  const part = (n) => {
    const k = (n + h / 30) % 12, a = s * Math.min(l, 1 - l);
    return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)))).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
};

export class Framework7 extends Kit {
  constructor(context) {
    super(context);
    this.mode = context.mode;
    this.iconSize = 24;
    this.inset = this.rng.chance(0.5);
    this.strong = this.rng.chance(0.85);
    this.shape = this.rng.pick(["", "", "button-round"]);
    this.fill = this.rng.pick(["button-fill", "button-fill", "button-tonal", "button-outline"]);
    this.outline = this.rng.chance(0.3);
  }
  css() {
    const own = colourRules(this.look.accent ? hexOf(this.look.hue, 0.75, 0.42) : "#007aff");
    const surface = this.mode === "md" ? "var(--f7-md-surface-1)" : this.look.theme === "dark" ? "#1c1c1d" : "#fff";
    return `:root{--k-bg:var(--f7-page-bg-color);--k-fg:var(--f7-text-color);--k-line:rgba(128,128,128,.3);--k-surface:${surface};--k-accent:var(--f7-theme-color);--k-soft:rgba(128,128,128,.18)}
      body{font-size:var(--f7-font-size);font-family:var(--f7-font-family);line-height:1.4}
      .k-main .list{margin:0 calc(-1 * var(--k-pad))} .k-main .list.inset{margin:0} .k-main .card{margin:0;min-width:0} .k-overlay .list,.k-card .list,.card .list,.k-grow .list,.k-grid .list{margin:0}
      .navbar{flex:none} .toolbar{position:relative !important;flex:none;bottom:auto !important} .button{width:auto} .k-main .searchbar{position:relative !important;inset:auto !important;margin:0;flex:none;width:auto}
      .list ul{list-style:none} .k-row2{display:flex;align-items:center;gap:10px}${own}`;
  }
  htmlAttributes() { return { class: `${this.mode} device-pixel-ratio-2 ${this.look.theme === "dark" ? "dark" : ""}` }; }

  navbar({ title = "", left = "", right = "" }) {
    return `<div class="navbar"><div class="navbar-bg"></div><div class="navbar-inner">${left ? `<div class="left">${left}</div>` : "<div></div>"}<div class="title">${title}</div>${right ? `<div class="right">${right}</div>` : "<div></div>"}</div></div>`;
  }
  tabbar(items) {
    const links = items.map((i) => `<a class="tab-link ${i.on ? "tab-link-active" : ""}" ${this.target("tab", i.label)}>${this.icon(i.icon)}${i.label ? `<span class="tabbar-label">${this.named(i.label)}</span>` : ""}</a>`);
    return `<div class="toolbar tabbar tabbar-icons toolbar-bottom"><div class="toolbar-inner"><div class="toolbar-pane" style="width:100%;display:flex">${links.join("")}</div></div></div>`;
  }
  button(label, { icon, variant, block } = {}) {
    const kind = { primary: this.fill, danger: "button-fill color-red", link: "" }[variant] ?? this.rng.pick(["button-tonal", "button-outline", "", "button-tonal"]);
    const size = block ? this.rng.pick(["button-large", ""]) : this.rng.pick(["", "button-small"]);
    return `<a class="${classes("button", kind, size, this.shape)}" style="${block ? "width:100%" : ""}" ${this.target("button", label)}>${icon ? this.icon(icon, { size: 18 }) : ""}<span style="${icon ? "margin-left:6px" : ""}">${this.named(label)}</span></a>`;
  }
  iconButton(icon, { size, bare } = {}) {
    if (bare) return `<a class="link icon-only" style="min-width:40px;min-height:40px;display:inline-flex;align-items:center;justify-content:center" ${this.target("button")}>${this.icon(icon, { size })}</a>`;
    return `<a class="button ${this.rng.pick(["button-tonal", ""])}" style="padding:0 10px" ${this.target("button")}>${this.icon(icon, { size: size ?? 22 })}</a>`;
  }
  rows(items, more = "") {
    return `<div class="${classes("list list-dividers", this.strong && "list-strong", this.inset && "inset", this.outline && "list-outline", more)}"><ul>${items.join("")}</ul></div>`;
  }
  list(rows) { return this.rows(rows); }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    const content = `${icon || media ? `<div class="item-media">${media || this.icon(icon)}</div>` : ""}<div class="item-inner"><div class="item-title">${this.named(label)}${detail ? `<div class="item-footer k-clip">${detail}</div>` : ""}</div><div class="item-after">${role === "switch" ? this.switchControl(on) : end}</div></div>`;
    return role === "row" && !end.includes("data-role") ? `<li><a class="item-link item-content" ${this.target(role, label)}>${content}</a></li>` : `<li><div class="item-content" ${this.target(role, label)}>${content}</div></li>`;
  }
  switchControl(on) { return `<label class="toggle"><input type="checkbox" ${on ? "checked" : ""}><span class="toggle-icon"></span></label>`; }
  field(spec) {
    const placed = spec.placeholder === spec.label, input = this.input(spec);
    const label = placed ? "" : `<div class="item-title item-label">${this.outerLabel(spec.label)}</div>`;
    return this.rows([`<li class="item-content item-input ${this.outline ? "item-input-outline" : ""}"><div class="item-inner">${label}<div class="item-input-wrap">${input}</div></div></li>`], "no-hairlines");
  }
  searchField(label) {
    const input = this.input({ label, type: "search", placeholder: label });
    return `<form class="searchbar"><div class="searchbar-inner"><div class="searchbar-input-wrap">${input}<i class="searchbar-icon"></i></div></div></form>`;
  }
  select(label, value) {
    const select = `<select ${this.target("select", label)}><option>${value}</option></select>`;
    return this.rows([`<li class="item-content item-input"><div class="item-inner"><div class="item-title item-label">${this.outerLabel(label)}</div><div class="item-input-wrap input-dropdown-wrap">${select}</div></div></li>`]);
  }
  check(kind, label, on) {
    if (kind === "switch") return this.rows([this.row({ label, role: "switch", on })]);
    return `<label class="k-check" ${this.target(kind, label)}><span class="${kind}"><input type="${kind}" ${on ? "checked" : ""}><i class="icon-${kind}"></i></span>${this.named(label)}</label>`;
  }
  range(value, attributes = "") {
    return `<div class="range-slider range-slider-horizontal" style="width:100%" ${attributes}><div class="range-bar"><div class="range-bar-active" style="width:${value}%"></div></div><div class="range-knob-wrap" style="left:${value}%"><div class="range-knob"></div></div></div>`;
  }
  slider(label, value) {
    const slider = this.range(value, this.target("slider", label));
    return `<div>${this.outerLabel(label)}${slider}</div>`;
  }
  bareSlider(value) { return this.range(value); }
  tabs(items) {
    const strong = this.rng.chance(0.7);
    return `<div class="segmented ${strong ? "segmented-strong" : ""}">${items.map((i) => `<button class="button ${i.on ? "button-active" : ""}" ${this.target("tab", i.label)}>${this.named(i.label)}</button>`).join("")}${strong ? '<span class="segmented-highlight" style="width:' + 100 / items.length + '%"></span>' : ""}</div>`;
  }
  chip(label, { on, icon } = {}) {
    return `<div class="chip ${on ? "color-theme" : ""} ${this.outline ? "chip-outline" : ""}" ${this.target("chip", label)}>${icon ? `<div class="chip-media">${this.icon(icon, { size: 16 })}</div>` : ""}<div class="chip-label">${this.named(label)}</div></div>`;
  }
  badge(text) { return `<span class="badge ${this.rng.pick(["", "color-red", "color-green", "color-blue"])}">${text}</span>`; }
  card(body) { return `<div class="card ${this.outline ? "card-outline" : "card-raised"}"><div class="card-content card-content-padding k-stack">${body}</div></div>`; }
  cardTarget(label, body) { return `<div class="card ${this.outline ? "card-outline" : "card-raised"}" ${this.target("card", label)}><div class="card-content card-content-padding k-stack">${body}</div></div>`; }
  table(columns, rows) { return `<div class="data-table">${super.table(columns, rows)}</div>`; }
  heading(text) { return `<div class="block-title" style="margin:4px 0">${text}</div>`; }
  meter(share) { return `<div class="progressbar"><span style="transform:translate3d(${share - 100}%,0,0)"></span></div>`; }
  dialog({ title, text, body = "", actions }) {
    const shell = this.mode === "ios" ? "border-radius:16px" : "border-radius:28px";
    return `<div class="k-overlay"><div class="k-dialog k-stack" style="${shell}"><div class="k-h" style="${this.mode === "ios" ? "text-align:center" : ""}">${title}</div>${text ? `<div class="k-muted">${text}</div>` : ""}${body}<div class="k-line k-end">${actions}</div></div></div>`;
  }
  menu(items) {
    return `<div class="popover modal-in" style="position:relative;display:block;opacity:1;transform:none;margin:0;width:220px;background:var(--k-surface)"><div class="popover-inner"><div class="list"><ul>${items.map((i) => `<li><a class="item-link item-content list-button" ${this.target("menu", i.label)}>${i.icon ? `<div class="item-media">${this.icon(i.icon)}</div>` : ""}<div class="item-inner"><div class="item-title">${this.named(i.label)}</div></div></a></li>`).join("")}</ul></div></div></div>`;
  }
  sheet(items) {
    const buttons = items.map((i) => `<div class="actions-button" ${this.target("menu", i.label)}>${i.icon ? `<div class="actions-button-media">${this.icon(i.icon)}</div>` : ""}<div class="actions-button-text">${this.named(i.label)}</div></div>`);
    return `<div class="k-overlay k-low"><div class="actions-modal modal-in" style="position:relative;display:block;transform:none;width:100%;padding:8px 0;background:var(--k-surface);border-radius:16px 16px 0 0"><div class="actions-group">${buttons.join("")}</div></div></div>`;
  }
}
