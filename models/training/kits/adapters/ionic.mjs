// Ionic's web components in their iOS and Material modes: a kit no model is trained on.
import { Kit } from "./base.mjs";

const COLOURS = ["primary", "secondary", "tertiary", "success", "warning", "danger", "dark"];

export class Ionic extends Kit {
  constructor(context) {
    super(context);
    this.mode = context.mode;
    this.iconSize = 24;
    this.main = this.rng.pick(COLOURS);
    this.inset = this.rng.chance(0.4);
    this.lines = this.rng.pick(["full", "inset", "none"]);
    this.fill = this.rng.pick(["solid", "solid", "outline"]);
    this.shape = this.rng.chance(0.25) ? 'shape="round"' : "";
    this.barColour = this.rng.chance(0.3) ? `color="${this.main}"` : "";
  }
  css() {
    const dark = this.look.theme === "dark";
    const own = this.look.accent ? `:root,.ion-palette-dark{--ion-color-primary:${this.look.accent}}` : "";
    return `:root{--k-bg:var(--ion-background-color,${dark ? "#000" : "#fff"});--k-fg:var(--ion-text-color,${dark ? "#fff" : "#000"});--k-line:rgba(128,128,128,.3);--k-surface:var(--ion-item-background,var(--ion-background-color,#fff));--k-accent:var(--ion-color-primary,#0054e9);--k-soft:rgba(128,128,128,.18)}
      body{position:static !important;font-family:var(--ion-font-family,inherit)} ion-header{flex:none} ion-tab-bar{flex:none} .k-main ion-card{margin:0} .k-main ion-list{width:100%} ion-button{margin:0} ion-item > svg[slot=start],ion-item > div[slot=start]{margin-inline-end:16px} ion-button > svg[slot=start]{margin-inline-end:6px} ion-segment{width:auto} .k-main ion-searchbar{padding:0} ion-title{text-align:left} .k-bar ion-input{min-height:40px}${own}`;
  }
  htmlAttributes() { return { class: `${this.mode} plt-desktop ${this.look.theme === "dark" ? "ion-palette-dark" : ""}` }; }
  navbar({ title = "", left = "", right = "" }) {
    return `<ion-header><ion-toolbar ${this.barColour}><ion-buttons slot="start">${left}</ion-buttons><ion-title>${title}</ion-title><ion-buttons slot="end">${right}</ion-buttons></ion-toolbar></ion-header>`;
  }
  tabbar(items) {
    return `<ion-tab-bar selected-tab="t0">${items.map((i, n) => `<ion-tab-button tab="t${n}" ${this.target("tab", i.label)}>${this.icon(i.icon)}${i.label ? `<ion-label>${this.named(i.label)}</ion-label>` : ""}</ion-tab-button>`).join("")}</ion-tab-bar>`;
  }
  button(label, { icon, variant, block } = {}) {
    const fill = { primary: this.fill, danger: "solid", link: "clear" }[variant] ?? this.rng.pick(["outline", "clear", "solid"]);
    const colour = variant === "primary" ? this.main : variant === "danger" ? "danger" : this.rng.pick(["primary", "medium", this.main]);
    const size = this.rng.pick(["", 'size="small"']);
    return `<ion-button fill="${fill}" color="${colour}" ${size} ${this.shape} ${block ? 'expand="block"' : ""} ${this.target("button", label)}>${icon ? this.icon(icon, { size: 18, extra: 'slot="start"' }) : ""}${this.named(label)}</ion-button>`;
  }
  iconButton(icon, { size } = {}) {
    return `<ion-button fill="${this.rng.pick(["clear", "clear", "outline"])}" color="${this.barColour ? "" : this.rng.pick(["primary", "medium"])}" ${this.target("button")}>${this.icon(icon, { size: size ?? 22, extra: 'slot="icon-only"' })}</ion-button>`;
  }
  field(spec) {
    const id = ++this.ids, placed = spec.placeholder === spec.label;
    const label = placed ? "" : `<div slot="label" data-for="${id}">${spec.label}</div>`;
    const fill = this.mode === "md" ? this.rng.pick(['fill="outline"', 'fill="solid"', ""]) : "";
    const tag = spec.lines ? "ion-textarea" : "ion-input";
    return `<${tag} data-inner="${id}|${spec.label}" ${fill} label-placement="stacked" type="${spec.type ?? "text"}" ${spec.lines ? `rows="${spec.lines}"` : ""} value="${spec.value ?? ""}" placeholder="${spec.placeholder ?? ""}">${label}</${tag}>`;
  }
  searchField(label) { return `<ion-searchbar data-inner="${++this.ids}|${label}" placeholder="${label}"></ion-searchbar>`; }
  select(label, value) {
    return `<ion-select value="a" interface="popover" label-placement="stacked" ${this.target("select", label)}><div slot="label"><span data-n>${label}</span></div><ion-select-option value="a">${value}</ion-select-option></ion-select>`;
  }
  control(kind, label, on, more = "") {
    const tag = { checkbox: "ion-checkbox", switch: "ion-toggle", radio: "ion-radio" }[kind];
    const one = `<${tag} ${on && kind !== "radio" ? 'checked="true"' : ""} value="a" label-placement="end" ${more} ${this.target(kind, label)}>${this.named(label)}</${tag}>`;
    return kind === "radio" ? `<ion-radio-group ${on ? 'value="a"' : ""}>${one}</ion-radio-group>` : one;
  }
  check(kind, label, on) { return this.control(kind, label, on); }
  switchControl(on) { return `<ion-toggle slot="end" ${on ? 'checked="true"' : ""}></ion-toggle>`; }
  slider(label, value) {
    const range = `<ion-range value="${value}" style="padding:0 8px" ${this.target("slider", label)}></ion-range>`;
    return `<div>${this.outerLabel(label)}${range}</div>`;
  }
  bareSlider(value) { return `<ion-range value="${value}"></ion-range>`; }
  tabs(items) {
    return `<ion-segment value="s0">${items.map((i, n) => `<ion-segment-button value="s${n}" ${this.target("tab", i.label)}><ion-label>${this.named(i.label)}</ion-label></ion-segment-button>`).join("")}</ion-segment>`;
  }
  list(rows) { return `<ion-list ${this.inset ? 'inset="true" style="margin:0"' : ""} lines="${this.lines}">${rows.join("")}</ion-list>`; }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    const start = media ? `<div slot="start">${media}</div>` : icon ? this.icon(icon, { extra: 'slot="start"' }) : "";
    const pressable = role === "row" && !end.includes("data-role") ? `button="true" ${this.rng.chance(0.5) ? 'detail="false"' : ""}` : "";
    return `<ion-item ${pressable} ${this.target(role, label)}>${start}<ion-label>${this.named(label)}${detail ? `<p>${detail}</p>` : ""}</ion-label>${role === "switch" ? this.switchControl(on) : ""}${end ? `<div slot="end">${end}</div>` : ""}</ion-item>`;
  }
  chip(label, { on, icon } = {}) {
    return `<ion-chip ${on ? `color="${this.main}"` : 'outline="true"'} style="margin:0" ${this.target("chip", label)}>${icon ? this.icon(icon, { size: 16 }) : ""}<ion-label>${this.named(label)}</ion-label></ion-chip>`;
  }
  badge(text) { return `<ion-badge color="${this.rng.pick(COLOURS)}">${text}</ion-badge>`; }
  card(body) { return `<ion-card><ion-card-content><div class="k-stack">${body}</div></ion-card-content></ion-card>`; }
  cardTarget(label, body) { return `<ion-card ${this.target("card", label)}><ion-card-content><div class="k-stack">${body}</div></ion-card-content></ion-card>`; }
  meter(share) { return `<ion-progress-bar value="${share / 100}"></ion-progress-bar>`; }
  menu(items) {
    return `<ion-list style="width:230px;border-radius:${this.mode === "ios" ? 12 : 4}px;box-shadow:0 4px 20px rgba(0,0,0,.3);overflow:hidden">${items.map((i) => `<ion-item button="true" detail="false" ${this.target("menu", i.label)}>${i.icon ? this.icon(i.icon, { size: 20, extra: 'slot="start"' }) : ""}<ion-label>${this.named(i.label)}</ion-label></ion-item>`).join("")}</ion-list>`;
  }
  sheet(items) { return `<div class="k-overlay k-low"><div style="width:100%">${this.menu(items).replace("width:230px", "width:100%")}</div></div>`; }
  heading(text) { return `<ion-text><h3 style="margin:4px 0;font-size:1.15em;font-weight:600">${text}</h3></ion-text>`; }
}
