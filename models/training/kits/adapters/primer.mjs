// GitHub's Primer.
import { Kit, classes } from "./base.mjs";

/** What Primer CSS 22 leaves to its React components, drawn in its measures. */
const LOST = `.Box{border:1px solid var(--k-line);border-radius:6px} .Box-row{padding:var(--k-rowpad) 16px;border-top:1px solid var(--k-line)} .Box-row:first-child{border-top:0}
  .Box-header{padding:12px 16px;background:var(--k-soft);border-bottom:1px solid var(--k-line);border-radius:6px 6px 0 0} .Box-title{margin:0;font-size:14px;font-weight:600} .Box-body{padding:16px} .Box-footer{padding:12px 16px;border-top:1px solid var(--k-line)}
  .UnderlineNav{display:flex;overflow:hidden;box-shadow:inset 0 -1px 0 var(--k-line)} .UnderlineNav-body{display:flex} .UnderlineNav-item{padding:8px 14px;color:var(--k-fg);text-decoration:none;border-bottom:2px solid transparent;white-space:nowrap} .UnderlineNav-item[aria-current]{font-weight:600;border-bottom-color:#fd8c73}
  .tabnav{border-bottom:1px solid var(--k-line)} .tabnav-tabs{display:flex;margin-bottom:-1px} .tabnav-tab{padding:8px 16px;color:var(--k-fg);text-decoration:none;border:1px solid transparent} .tabnav-tab[aria-current]{border-color:var(--k-line);border-bottom-color:var(--k-bg);background:var(--k-bg);border-radius:6px 6px 0 0}
  .Label{display:inline-block;padding:0 7px;font-size:12px;border:1px solid var(--k-line);border-radius:2em} .Label--success{border-color:#1a7f37;color:#1a7f37} .Label--accent{border-color:#0969da;color:#0969da}
  .Progress{display:flex;height:8px;border-radius:6px;overflow:hidden;background:var(--k-line)} .Progress-item{background:#1a7f37}
  .menu{border:1px solid var(--k-line);border-radius:6px;overflow:hidden} .menu-item{display:block;padding:8px 14px;color:var(--k-fg);text-decoration:none} .menu-item + .menu-item{border-top:1px solid var(--k-line)} .menu-item[aria-current]{box-shadow:inset 2px 0 0 #fd8c73;font-weight:600}`;

export class Primer extends Kit {
  constructor(context) {
    super(context);
    this.iconSize = 16;
    this.size = this.rng.pick(["", "", "btn-sm", "btn-large"]);
    this.barDark = this.rng.chance(0.3);
    this.underline = this.rng.chance(0.6);
  }
  css() {
    const { accent } = this.look;
    const own = accent ? `.btn-primary{background-color:${accent} !important} .UnderlineNav-item[aria-current]{border-bottom-color:${accent} !important}` : "";
    return `:root{--k-bg:var(--bgColor-default,#fff);--k-fg:var(--fgColor-default,#1f2328);--k-line:var(--borderColor-default,#d1d9e0);--k-surface:var(--bgColor-default,#fff);--k-accent:${accent ?? "var(--fgColor-accent,#0969da)"};--k-soft:var(--bgColor-muted,#f6f8fa)}
      body{background:var(--k-bg);color:var(--k-fg);font-size:14px;line-height:1.5} .Box{background:var(--k-bg)} .k-table th,.k-table td{padding:6px 10px;border-bottom:1px solid var(--k-line);text-align:left}${LOST}${own}`;
  }
  htmlAttributes() { return { "data-color-mode": this.look.theme, "data-light-theme": "light", "data-dark-theme": "dark" }; }
  button(label, { icon, variant, block } = {}) {
    const kind = { primary: this.rng.chance(0.8) ? "btn-primary" : "btn-outline", danger: "btn-danger", link: "btn-link" }[variant] ?? this.rng.pick(["", "", "btn-outline", "btn-invisible"]);
    return `<button type="button" class="${classes("btn", kind, this.size, block && "btn-block")}" ${this.target("button", label)}>${this.iconBefore(icon)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size, bare } = {}) {
    return `<button type="button" class="${bare ? "btn-octicon" : "btn"}" style="${bare ? "margin:0;display:inline-flex;padding:6px;color:inherit" : "padding:5px 8px"}" ${this.target("button")}>${this.icon(icon, { size })}</button>`;
  }
  inputClass() { return "form-control width-full"; }
  labelClass() { return "text-bold f6"; }
  selectClass() { return "form-select width-full"; }
  list(rows) { return `<div class="Box ${this.rng.chance(0.3) ? "Box--condensed" : ""}">${rows.join("")}</div>`; }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    return `<div class="Box-row Box-row--hover-gray d-flex flex-items-center" style="gap:12px" ${this.target(role, label)}>${media}${icon ? this.icon(icon) : ""}<div class="k-grow"><div class="text-bold">${this.named(label)}</div>${detail ? `<div class="color-fg-muted f6 k-clip">${detail}</div>` : ""}</div>${role === "switch" ? this.switchControl(on) : ""}${end}</div>`;
  }
  switchControl(on) {
    return `<span style="display:inline-block;width:40px;height:22px;border-radius:6px;border:1px solid var(--k-line);background:${on ? "var(--k-accent)" : "var(--k-soft)"};position:relative"><span style="position:absolute;top:1px;${on ? "right" : "left"}:1px;width:18px;height:18px;border-radius:5px;background:#fff;border:1px solid #aaa"></span></span>`;
  }
  check(kind, label, on) {
    if (kind !== "switch") return super.check(kind, label, on);
    return `<div class="k-check" ${this.target(kind, label)}>${this.named(label)}${this.switchControl(on)}</div>`;
  }
  tabs(items) {
    if (!this.underline) return `<nav class="tabnav mb-0"><div class="tabnav-tabs">${items.map((i) => `<a class="tabnav-tab" ${i.on ? 'aria-current="page"' : ""} ${this.target("tab", i.label)}>${this.iconBefore(i.icon)}${this.named(i.label)}</a>`).join("")}</div></nav>`;
    return `<nav class="UnderlineNav"><div class="UnderlineNav-body">${items.map((i) => `<a class="UnderlineNav-item" ${i.on ? 'aria-current="page"' : ""} ${this.target("tab", i.label)}>${this.iconBefore(i.icon)}${this.named(i.label)}${this.rng.chance(0.3) ? ` <span class="Counter">${this.rng.int(1, 99)}</span>` : ""}</a>`).join("")}</div></nav>`;
  }
  chip(label, { icon } = {}) {
    return `<a class="IssueLabel" style="padding:2px 10px;background:${this.colour()};color:#fff" ${this.target("chip", label)}>${this.iconBefore(icon, 12)}${this.named(label)}</a>`;
  }
  badge(text) { return `<span class="${this.rng.pick(["Label", "Counter", "Label Label--success", "Label Label--accent"])}">${text}</span>`; }
  card(body) { return `<div class="Box p-3"><div class="k-stack">${body}</div></div>`; }
  cardTarget(label, body) { return `<div class="Box p-2" ${this.target("card", label)}><div class="k-stack">${body}</div></div>`; }
  link(label) { return `<a class="Link${this.rng.pick(["", "--primary", "--secondary"])}" ${this.target("link", label)}>${this.named(label)}</a>`; }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    const style = this.barDark ? "background:#24292f;color:#f0f6fc" : "background:var(--k-soft)";
    return `<header class="k-bar" style="${style}" ${this.barDark ? 'data-color-mode="dark" data-dark-theme="dark"' : ""}>${left}<strong class="k-clip">${title}</strong><div class="k-grow">${middle}</div><div class="k-line k-tight k-nowrap">${right}</div></header>`;
  }
  sidebar(items, head = "") {
    const list = this.rng.chance(0.5)
      ? `<nav class="SideNav border">${items.map((i) => `<a class="SideNav-item d-flex flex-items-center" style="gap:8px" ${i.on ? 'aria-current="page"' : ""} ${this.target("link", i.label)}>${i.icon ? this.icon(i.icon) : ""}${this.named(i.label)}</a>`).join("")}</nav>`
      : `<nav class="menu">${items.map((i) => `<a class="menu-item" ${i.on ? 'aria-current="page"' : ""} ${this.target("link", i.label)}>${i.icon ? `${this.icon(i.icon)} ` : ""}${this.named(i.label)}</a>`).join("")}</nav>`;
    return `<aside class="k-side">${head}${list}</aside>`;
  }
  menu(items) {
    return `<div class="dropdown-menu" style="position:static;width:200px">${items.map((i) => `<a class="dropdown-item" ${this.target("menu", i.label)}>${this.iconBefore(i.icon)}${this.named(i.label)}</a>`).join("")}</div>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay"><div class="Box Box--overlay" style="width:440px;max-width:90vw"><div class="Box-header"><h3 class="Box-title">${title}</h3></div><div class="Box-body k-stack">${text ? `<p class="mb-0">${text}</p>` : ""}${body}</div><div class="Box-footer k-line k-end">${actions}</div></div></div>`;
  }
  meter(share) { return `<span class="Progress"><span class="Progress-item color-bg-success-emphasis" style="width:${share}%"></span></span>`; }
}
