// The widgets every template asks for. A kit overrides what it has a component for; the rest is drawn by layout.css.
import { iconMarkup } from "../icons.mjs";

export const classes = (...names) => names.filter(Boolean).join(" ");

export class Kit {
  constructor({ rng, say, look, iconSet }) {
    Object.assign(this, { rng, say, look, iconSet });
    this.ids = 0;
    this.iconSize = look.mobile ? 22 : 18;
  }

  // ---- marks read by collect.mjs
  /** Attributes of something to point at. */
  target(role, name = "") {
    this.lastId = ++this.ids;
    return `data-role="${role}" data-id="${this.lastId}" data-name="${name}"`;
  }
  /** The words that name the target they are in. */
  named(label) { return `<span data-n>${label}</span>`; }
  icon(name, options = {}) { return iconMarkup(this.iconSet, name, { size: this.iconSize, ...options }); }
  iconBefore(name, size) { return name ? this.icon(name, { size: size ?? 16 }) + " " : ""; }

  // ---- screen
  /** CSS variables and rules that depend on the seed. */
  css() { return ""; }
  htmlAttributes() { return {}; }
  bodyClass() { return ""; }

  frame({ top = "", side = "", main = "", bottom = "", overlay = "", float = "" }) {
    return `<div class="k-screen">${top}<div class="k-body">${side}<main class="k-main"><div class="k-stack">${main}</div></main></div>${bottom}${float}${overlay}</div>`;
  }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    return `<header class="k-bar">${left}<strong class="k-clip">${title}</strong><div class="k-grow">${middle}</div><div class="k-line k-tight k-nowrap">${right}</div></header>`;
  }
  tabbar(items) {
    return `<nav class="k-tabbar">${items.map((i) => `<a class="${i.on ? "k-on" : ""}" ${this.target("tab", i.label)}>${i.icon ? this.icon(i.icon) : ""}${i.label ? this.named(i.label) : ""}</a>`).join("")}</nav>`;
  }
  sidebar(items, head = "") {
    return `<aside class="k-side"><div class="k-stack k-tight">${head}${items.map((i) => `<a class="k-row" ${this.target("link", i.label)}>${i.icon ? this.icon(i.icon) : ""}${this.named(i.label)}</a>`).join("")}</div></aside>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay"><div class="k-dialog k-stack"><p class="k-h">${title}</p>${text ? `<div class="k-muted">${text}</div>` : ""}${body}<div class="k-line k-end">${actions}</div></div></div>`;
  }
  menu(items) {
    return `<div class="k-pop">${items.map((i) => `<a class="k-item" ${this.target("menu", i.label)}>${i.icon ? this.icon(i.icon, { size: 16 }) : ""}${this.named(i.label)}</a>`).join("")}</div>`;
  }
  sheet(items) { return `<div class="k-overlay k-low"><div style="width:100%;padding:10px">${this.menu(items)}</div></div>`; }

  // ---- groups
  stack(html) { return `<div class="k-stack">${html}</div>`; }
  line(html, more = "") { return `<div class="k-line ${more}">${html}</div>`; }
  grid(columns, cells) { return `<div class="k-grid" style="grid-template-columns:repeat(${columns},minmax(0,1fr))">${cells.join("")}</div>`; }
  heading(text) { return `<p class="k-h">${text}</p>`; }
  title(text) { return `<p class="k-big">${text}</p>`; }
  muted(text) { return `<div class="k-muted k-small">${text}</div>`; }
  list(rows) { return `<div class="k-rows ${this.look.mobile && this.look.flush ? "k-flush" : ""}">${rows.join("")}</div>`; }
  card(body) { return `<div class="k-card k-stack">${body}</div>`; }
  /** A card that is itself something to press. */
  cardTarget(label, body) { return `<div class="k-card k-stack" ${this.target("card", label)}>${body}</div>`; }
  toolbar(html) { return `<div class="k-line k-tight">${html}</div>`; }

  // ---- controls
  button(label, { icon, variant } = {}) {
    return `<button type="button" ${this.target("button", label)}>${this.iconBefore(icon)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size } = {}) {
    return `<button type="button" class="k-plain" ${this.target("button")}>${this.icon(icon, { size: size ?? this.iconSize })}</button>`;
  }
  link(label) { return `<a href="#" ${this.target("link", label)}>${this.named(label)}</a>`; }
  input({ label, type = "text", value = "", placeholder = "", cls = "", lines = 0 }) {
    const attributes = `${this.target("field", label)} class="${cls}" placeholder="${placeholder}"`;
    return lines
      ? `<textarea ${attributes} rows="${lines}" ${placeholder === label ? "data-n" : ""}>${value}</textarea>`
      : `<input type="${type}" ${attributes} value="${value}" ${placeholder === label ? "data-n" : ""}>`;
  }
  outerLabel(label, cls = "") { return `<label class="${cls}" data-for="${this.lastId}">${label}</label>`; }
  field(spec) {
    const input = this.input({ ...spec, cls: this.inputClass?.() });
    if (spec.placeholder === spec.label) return `<div class="k-field">${input}</div>`;
    return `<div class="k-field">${this.outerLabel(spec.label, this.labelClass?.())}${input}</div>`;
  }
  searchField(label) { return this.field({ label, placeholder: label }); }
  check(kind, label, on) {
    const type = kind === "radio" ? "radio" : "checkbox";
    return `<label class="k-check" ${this.target(kind, label)}><input type="${type}" ${on ? "checked" : ""}>${this.named(label)}</label>`;
  }
  select(label, value) {
    const select = `<select class="${this.selectClass?.() ?? ""}" ${this.target("select", label)}><option>${value}</option></select>`;
    return `<div class="k-field">${this.outerLabel(label, this.labelClass?.())}${select}</div>`;
  }
  slider(label, value) {
    const slider = `<input type="range" style="width:100%" value="${value}" ${this.target("slider", label)}>`;
    return `<div class="k-field">${this.outerLabel(label)}${slider}</div>`;
  }
  /** A slider without a word, named by an icon beside it, is not a target: it cannot be asked for. */
  bareSlider(value) { return `<input type="range" style="width:100%" value="${value}">`; }
  switchControl(on) { return `<input type="checkbox" ${on ? "checked" : ""}>`; }
  tabs(items) {
    return `<div class="k-line k-tight">${items.map((i) => `<button type="button" ${this.target("tab", i.label)}>${i.icon ? this.iconBefore(i.icon) : ""}${this.named(i.label)}</button>`).join("")}</div>`;
  }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    return `<div class="k-row" ${this.target(role, label)}>${media}${icon ? this.icon(icon) : ""}<div class="k-grow"><div>${this.named(label)}</div>${detail ? `<div class="k-muted k-small k-clip">${detail}</div>` : ""}</div>${role === "switch" ? this.switchControl(on) : ""}${end}</div>`;
  }
  chip(label, { on, icon } = {}) {
    return `<span class="k-chip ${on ? "k-on" : ""}" ${this.target("chip", label)}>${icon ? this.icon(icon, { size: 14 }) : ""}${this.named(label)}</span>`;
  }
  badge(text) { return `<span class="k-small k-muted">${text}</span>`; }
  tableClass() { return ""; }
  table(columns, rows) {
    return `<table class="k-table ${this.tableClass()}"><thead><tr>${columns.map((c) => `<th>${c}</th>`).join("")}</tr></thead><tbody>${rows.map((r) => `<tr>${r.map((c) => `<td>${c}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
  }
  meter(share) { return `<div class="k-meter"><div style="width:${share}%"></div></div>`; }

  // ---- pictures
  colour() { return `hsl(${this.rng.int(0, 359)} ${this.rng.int(35, 75)}% ${this.rng.int(35, 62)}%)`; }
  avatar(name = "", size = 36) {
    return `<div class="k-avatar" style="width:${size}px;height:${size}px;font-size:${size * 0.42}px;background:${this.colour()}">${name.slice(0, 1).toUpperCase()}</div>`;
  }
  picture(width, height) {
    const w = width === "100%" ? width : `${width}px`;
    return `<div class="k-thumb" style="width:${w};height:${height}px;background:linear-gradient(${this.rng.int(0, 359)}deg,${this.colour()},${this.colour()})"></div>`;
  }
}
