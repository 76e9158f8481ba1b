// Fomantic UI, a kit no model is trained on.
import { Kit, classes } from "./base.mjs";

const COLOURS = ["primary", "teal", "blue", "green", "orange", "violet", "red", "black", "positive"];

export class Fomantic extends Kit {
  constructor(context) {
    super(context);
    this.main = this.rng.pick(COLOURS);
    this.size = this.rng.pick(["", "", "small", "mini", "large"]);
    this.dark = this.look.theme === "dark" ? "inverted" : "";
    this.style = this.rng.pick(["", "", "basic", "circular"]);
    this.tabStyle = this.rng.pick(["tabular", "pointing", "secondary pointing", "secondary"]);
    this.barDark = this.rng.chance(0.4) ? "inverted" : this.dark;
  }
  css() {
    const dark = !!this.dark;
    return `:root{--k-bg:${dark ? "#1b1c1d" : "#fff"};--k-fg:${dark ? "#e6e6e6" : "rgba(0,0,0,.87)"};--k-line:${dark ? "#444" : "#dcdde0"};--k-surface:${dark ? "#242526" : "#fff"};--k-accent:${this.look.accent ?? "#2185d0"};--k-soft:${dark ? "#333" : "#eee"}}
      body{font-size:14px} .k-screen .ui.menu,.k-screen .ui.segment,.k-screen .ui.table,.k-screen .ui.header,.k-screen .ui.form .field,.k-screen .ui.list,.k-screen .ui.progress{margin:0} .k-screen .ui.card{width:100%;margin:0} .ui.button{margin:0} .ui.input{width:100%} .ui.menu.k-top{flex:none;border-radius:0} .ui.list > .item{display:flex !important;align-items:center;gap:12px}`;
  }
  button(label, { icon, variant, block } = {}) {
    const kind = { primary: this.main, danger: "negative", link: "basic" }[variant] ?? this.rng.pick(["", "", "basic", "secondary"]);
    const shape = classes("ui", this.dark, this.size, kind, variant === "primary" && this.style, block && "fluid", "button");
    return `<button type="button" class="${shape}" ${this.target("button", label)}>${this.iconBefore(icon, 14)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size, bare } = {}) {
    return bare ? super.iconButton(icon, { size }) : `<button type="button" class="${classes("ui", this.dark, this.rng.pick(["", "basic", "circular"]), "icon button")}" ${this.target("button")}>${this.icon(icon, { size: size ?? 16 })}</button>`;
  }
  field(spec) {
    const input = this.input(spec);
    if (spec.placeholder === spec.label) return `<div class="ui ${this.dark} fluid input">${input}</div>`;
    return `<div class="ui ${this.dark} form"><div class="field">${this.outerLabel(spec.label)}${input}</div></div>`;
  }
  searchField(label) {
    const input = this.input({ label, placeholder: label });
    return `<div class="ui ${this.dark} fluid icon input">${input}</div>`;
  }
  select(label, value) {
    const marks = this.target("select", label), id = this.lastId;
    return `<div class="ui ${this.dark} form"><div class="field"><label data-for="${id}">${label}</label><div class="ui selection fluid dropdown" ${marks}><div class="text">${value}</div><svg style="position:absolute;right:12px;top:14px" width="10" height="6"><path d="M0 0h10l-5 6z" fill="currentColor"/></svg></div></div></div>`;
  }
  check(kind, label, on) {
    const cls = { checkbox: "", radio: "radio", switch: "toggle" }[kind];
    return `<div class="ui ${this.dark} ${cls} checkbox" style="width:fit-content" ${this.target(kind, label)}><input type="${kind === "radio" ? "radio" : "checkbox"}" ${on ? "checked" : ""}><label>${this.named(label)}</label></div>`;
  }
  switchControl(on) { return `<div class="ui ${this.dark} toggle checkbox"><input type="checkbox" ${on ? "checked" : ""}><label></label></div>`; }
  tabs(items) {
    return `<div class="ui ${this.dark} ${this.tabStyle} menu">${items.map((i) => `<a class="${i.on ? "active" : ""} item" ${this.target("tab", i.label)}>${i.icon ? `${this.icon(i.icon, { size: 15 })}&nbsp;` : ""}${this.named(i.label)}</a>`).join("")}</div>`;
  }
  list(rows) { return `<div class="ui ${this.dark} segment" style="padding:4px 12px"><div class="ui ${this.dark} relaxed divided list">${rows.join("")}</div></div>`; }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    return `<div class="item" ${this.target(role, label)}>${media}${icon ? this.icon(icon) : ""}<div class="content k-grow"><div class="header">${this.named(label)}</div>${detail ? `<div class="description k-clip">${detail}</div>` : ""}</div>${role === "switch" ? this.switchControl(on) : ""}${end}</div>`;
  }
  chip(label, { on, icon } = {}) { return `<a class="ui ${on ? this.main : this.rng.pick(["", "basic"])} label" ${this.target("chip", label)}>${this.iconBefore(icon, 12)}${this.named(label)}</a>`; }
  badge(text) { return `<div class="ui ${this.rng.pick(["", "red", "teal", "green"])} ${this.rng.pick(["", "tiny"])} label">${text}</div>`; }
  card(body) { return `<div class="ui ${this.dark} segment"><div class="k-stack">${body}</div></div>`; }
  cardTarget(label, body) { return `<div class="ui ${this.dark} card" ${this.target("card", label)}><div class="content"><div class="k-stack">${body}</div></div></div>`; }
  table(columns, rows) { return super.table(columns, rows).replace("k-table", `ui ${this.dark} ${this.rng.pick(["", "celled", "striped", "very basic"])} compact table`); }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    const colour = this.barDark ? "color:#eee" : "";
    return `<div class="ui ${this.barDark} menu k-top" style="align-items:center;padding:4px 14px;gap:10px;${colour}">${left}<strong style="font-size:1.2em;white-space:nowrap">${title}</strong><div class="k-grow">${middle}</div><div class="k-line k-tight k-nowrap">${right}</div></div>`;
  }
  sidebar(items, head = "") {
    return `<aside class="k-side">${head}<div class="ui ${this.dark} vertical ${this.rng.pick(["", "secondary", "pointing"])} fluid menu">${items.map((i) => `<a class="${i.on ? "active" : ""} item" style="display:flex;gap:10px" ${this.target("link", i.label)}>${i.icon ? this.icon(i.icon, { size: 15 }) : ""}${this.named(i.label)}</a>`).join("")}</div></aside>`;
  }
  menu(items) {
    return `<div class="ui ${this.dark} vertical menu" style="box-shadow:0 4px 14px rgba(0,0,0,.3)">${items.map((i) => `<a class="item" style="display:flex;gap:10px" ${this.target("menu", i.label)}>${i.icon ? this.icon(i.icon, { size: 14 }) : ""}${this.named(i.label)}</a>`).join("")}</div>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay" style="--k-shade:rgba(0,0,0,.75)"><div class="ui ${this.dark} segments" style="width:min(480px,90vw)"><div class="ui ${this.dark} segment"><h3 class="ui ${this.dark} header">${title}</h3></div><div class="ui ${this.dark} segment"><div class="k-stack">${text ? `<p>${text}</p>` : ""}${body}</div></div><div class="ui ${this.dark} secondary segment k-line k-end">${actions}</div></div></div>`;
  }
  heading(text) { return `<h3 class="ui ${this.dark} header">${text}</h3>`; }
  title(text) { return `<h2 class="ui ${this.dark} header">${text}</h2>`; }
}
