// Pico, which styles plain HTML.
import { Kit, classes } from "./base.mjs";

export class Pico extends Kit {
  constructor(context) {
    super(context);
    this.variant = this.rng.pick(["", "", "contrast", "secondary"]);
    this.size = this.rng.pick([0.4, 0.5, 0.75]);
    this.fontSize = this.rng.pick([87.5, 93, 100]);
  }
  css() {
    const { accent } = this.look;
    const own = accent ? `:root,[data-theme]{--pico-primary:${accent};--pico-primary-background:${accent};--pico-primary-border:${accent}}` : "";
    return `:root{--pico-font-size:${this.fontSize}%;--pico-form-element-spacing-vertical:${this.size}rem;--k-bg:var(--pico-background-color);--k-fg:var(--pico-color);--k-line:var(--pico-muted-border-color);--k-surface:var(--pico-card-background-color);--k-accent:var(--pico-primary);--k-soft:var(--pico-secondary-background)}
      .k-screen button,.k-screen input:not([type=checkbox],[type=radio],[type=range]),.k-screen select,.k-screen textarea{margin-bottom:0;width:100%} .k-screen button{width:auto} .k-screen button.k-block{width:100%}
      .k-screen label{margin-bottom:0} .k-screen table,.k-screen p,.k-screen article,.k-screen progress,.k-screen nav{margin-bottom:0} .k-screen article{padding:14px;margin:0} .k-screen input[type=range]{margin:0} .k-screen input[type=checkbox],.k-screen input[type=radio]{margin:0;flex:none}
      .k-soft{background:var(--k-soft)} .k-bubble:not(.k-mine){background:var(--pico-form-element-background-color);border:1px solid var(--k-line)} .k-tab{padding:6px 12px !important} .k-tab[aria-current]{border-bottom:2px solid var(--k-accent)}${own}`;
  }
  htmlAttributes() { return { "data-theme": this.look.theme }; }
  button(label, { icon, variant, block } = {}) {
    const kind = { primary: this.variant, danger: "contrast", link: "outline" }[variant] ?? this.rng.pick(["outline", "secondary outline", "secondary", "contrast outline"]);
    return `<button type="button" class="${classes(kind, block && "k-block")}" ${this.target("button", label)}>${this.iconBefore(icon)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size, bare } = {}) {
    return `<button type="button" class="${bare ? "k-plain" : "secondary outline"}" style="${bare ? "padding:6px" : "padding:7px 10px"};${bare ? "color:var(--k-fg);background:none;border:0" : ""}" ${this.target("button")}>${this.icon(icon, { size })}</button>`;
  }
  check(kind, label, on) {
    return `<label class="k-check" ${this.target(kind, label)}><input type="${kind === "radio" ? "radio" : "checkbox"}" ${kind === "switch" ? 'role="switch"' : ""} ${on ? "checked" : ""}>${this.named(label)}</label>`;
  }
  switchControl(on) { return `<input type="checkbox" role="switch" ${on ? "checked" : ""}>`; }
  searchField(label) { return this.input({ label, type: "search", placeholder: label }); }
  tabs(items) {
    return `<nav style="justify-content:flex-start"><ul style="margin:0">${items.map((i) => `<li style="padding:0 4px"><a class="k-tab" style="display:inline-block" ${i.on ? 'aria-current="page"' : ""} ${this.target("tab", i.label)}>${this.iconBefore(i.icon)}${this.named(i.label)}</a></li>`).join("")}</ul></nav>`;
  }
  card(body) { return `<article><div class="k-stack">${body}</div></article>`; }
  cardTarget(label, body) { return `<article style="padding:10px" ${this.target("card", label)}><div class="k-stack">${body}</div></article>`; }
  badge(text) { return `<kbd>${text}</kbd>`; }
  meter(share) { return `<progress value="${share}" max="100"></progress>`; }
  sidebar(items, head = "") {
    return `<aside class="k-side">${head}<nav><ul style="width:100%">${items.map((i) => `<li style="padding:2px 8px"><a class="${i.on ? "" : this.rng.pick(["secondary", "contrast"])}" style="display:flex;gap:8px;align-items:center;padding:6px" ${this.target("link", i.label)}>${i.icon ? this.icon(i.icon) : ""}${this.named(i.label)}</a></li>`).join("")}</ul></nav></aside>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay"><article style="width:min(460px,90vw)"><header style="padding:12px 16px;margin:-14px -14px 12px"><strong>${title}</strong></header><div class="k-stack">${text ? `<p>${text}</p>` : ""}${body}<div class="k-line k-end">${actions}</div></div></article></div>`;
  }
}
