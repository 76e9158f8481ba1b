// Bulma.
import { Kit, classes } from "./base.mjs";

const COLOURS = ["is-primary", "is-link", "is-info", "is-success", "is-warning", "is-danger", "is-dark"];

export class Bulma extends Kit {
  constructor(context) {
    super(context);
    this.main = this.rng.pick(COLOURS);
    this.size = this.rng.pick(["", "", "is-small", "is-medium"]);
    this.style = this.rng.pick(["", "", "is-light", "is-outlined", "is-rounded"]);
    this.tabStyle = this.rng.pick(["", "is-boxed", "is-toggle", "is-fullwidth"]);
    this.barColour = this.rng.chance(0.4) ? this.main : "";
  }
  css() {
    const { accent, hue } = this.look;
    const own = accent ? `:root,[data-theme]{--bulma-primary-h:${hue}deg;--bulma-link-h:${hue}deg}` : "";
    return `:root{--k-bg:var(--bulma-scheme-main);--k-fg:var(--bulma-text);--k-line:var(--bulma-border);--k-surface:var(--bulma-scheme-main);--k-accent:var(--bulma-link);--k-soft:var(--bulma-background)}
      .k-main .box,.k-main .card,.k-main .tabs,.k-main .panel,.k-main .table{margin:0} .box{padding:14px} .tag:not(body){vertical-align:middle}
      .k-main .title{margin:0} .navbar{flex:none}${own}`;
  }
  htmlAttributes() { return { "data-theme": this.look.theme }; }
  button(label, { icon, variant, block } = {}) {
    const kind = { primary: classes(this.main, this.style), danger: "is-danger", link: "is-ghost" }[variant] ?? this.rng.pick(["", "", "is-light", "is-text", "is-link is-outlined"]);
    return `<button type="button" class="${classes("button", kind, this.size, block && "is-fullwidth")}" ${this.target("button", label)}>${icon ? `<span class="icon">${this.icon(icon, { size: 16 })}</span>` : ""}${this.named(label)}</button>`;
  }
  iconButton(icon, { size, bare } = {}) {
    return bare
      ? `<button type="button" class="k-plain" ${this.target("button")}>${this.icon(icon, { size })}</button>`
      : `<button type="button" class="button ${this.rng.pick(["", "", "is-light", "is-small"])}" ${this.target("button")}><span class="icon">${this.icon(icon, { size })}</span></button>`;
  }
  inputClass() { return classes("input", this.rng.pick(["", "", "is-rounded"]), this.size); }
  labelClass() { return "label mb-1"; }
  input(spec) { return spec.lines ? super.input({ ...spec, cls: "textarea" }) : super.input(spec); }
  searchField(label) {
    const input = this.input({ label, placeholder: label, cls: "input" });
    return `<div class="control has-icons-left">${input}<span class="icon is-left">${this.icon("search", { size: 16 })}</span></div>`;
  }
  select(label, value) {
    const select = `<select ${this.target("select", label)}><option>${value}</option></select>`;
    return `<div class="field">${this.outerLabel(label, "label mb-1")}<div class="select">${select}</div></div>`;
  }
  check(kind, label, on) {
    if (kind === "switch") return `<div class="k-check" ${this.target(kind, label)}>${this.switchControl(on)}${this.named(label)}</div>`;
    return `<label class="${kind}" style="width:fit-content" ${this.target(kind, label)}><input type="${kind}" ${on ? "checked" : ""}> ${this.named(label)}</label>`;
  }
  switchControl(on) {
    return `<span style="display:inline-block;flex:none;width:38px;height:22px;border-radius:11px;background:${on ? "var(--k-accent)" : "var(--k-line)"};position:relative"><span style="position:absolute;top:2px;${on ? "right" : "left"}:2px;width:18px;height:18px;border-radius:9px;background:#fff"></span></span>`;
  }
  tabs(items) {
    return `<div class="tabs ${this.tabStyle} ${this.size}"><ul>${items.map((i) => `<li class="${i.on ? "is-active" : ""}"><a ${this.target("tab", i.label)}>${i.icon ? `<span class="icon is-small">${this.icon(i.icon, { size: 16 })}</span>` : ""}${this.named(i.label)}</a></li>`).join("")}</ul></div>`;
  }
  list(rows) { return this.look.flush ? super.list(rows) : `<nav class="panel" style="background:var(--k-surface)">${rows.join("")}</nav>`; }
  row(spec) { return this.look.flush ? super.row(spec) : super.row(spec).replace('class="k-row"', 'class="panel-block k-row"'); }
  chip(label, { on, icon } = {}) {
    return `<span class="tag ${on ? this.main : this.rng.pick(["", "is-light"])} is-medium ${this.style === "is-rounded" ? "is-rounded" : ""}" ${this.target("chip", label)}>${this.iconBefore(icon, 14)}${this.named(label)}</span>`;
  }
  badge(text) { return `<span class="tag ${this.rng.pick(["", ...COLOURS])} is-light">${text}</span>`; }
  card(body) { return `<div class="box"><div class="k-stack">${body}</div></div>`; }
  cardTarget(label, body) { return `<div class="card" ${this.target("card", label)}><div class="card-content p-3"><div class="k-stack">${body}</div></div></div>`; }
  tableClass() { return classes("table is-fullwidth", this.style && "is-striped", this.size === "is-small" && "is-narrow"); }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    return `<nav class="navbar ${this.barColour} has-shadow" style="display:flex;align-items:center;gap:8px;padding:4px 12px;min-height:52px">${left}<span class="title is-5 mb-0 k-clip" style="color:inherit">${title}</span><div class="k-grow">${middle}</div><div class="k-line k-tight k-nowrap">${right}</div></nav>`;
  }
  sidebar(items, head = "") {
    return `<aside class="menu k-side">${head}<p class="menu-label">${this.say.word()}</p><ul class="menu-list">${items.map((i) => `<li><a class="${i.on ? "is-active" : ""}" ${this.target("link", i.label)}>${i.icon ? `<span class="icon">${this.icon(i.icon, { size: 16 })}</span> ` : ""}${this.named(i.label)}</a></li>`).join("")}</ul></aside>`;
  }
  menu(items) {
    return `<div class="dropdown is-active"><div class="dropdown-menu" style="position:static;display:block;padding:0;min-width:190px"><div class="dropdown-content">${items.map((i) => `<a class="dropdown-item" ${this.target("menu", i.label)}>${i.icon ? `<span class="icon">${this.icon(i.icon, { size: 16 })}</span> ` : ""}${this.named(i.label)}</a>`).join("")}</div></div></div>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay modal is-active"><div class="modal-card" style="width:min(460px,90vw);margin:0"><header class="modal-card-head p-4"><p class="modal-card-title">${title}</p></header><section class="modal-card-body k-stack">${text ? `<p>${text}</p>` : ""}${body}</section><footer class="modal-card-foot p-4"><div class="buttons">${actions}</div></footer></div></div>`;
  }
  heading(text) { return `<p class="title is-5">${text}</p>`; }
  title(text) { return `<p class="title is-${this.rng.pick([3, 4])}">${text}</p>`; }
  meter(share) { return `<progress class="progress is-small mb-0 ${this.main}" value="${share}" max="100"></progress>`; }
}
