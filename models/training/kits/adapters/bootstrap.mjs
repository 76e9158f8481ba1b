// Bootstrap 5 and Tabler, which is built on it.
import { Kit, classes } from "./base.mjs";

const COLOURS = ["primary", "primary", "success", "danger", "dark", "info", "warning", "secondary"];

export class Bootstrap extends Kit {
  constructor(context) {
    super(context);
    this.size = this.rng.pick(["", "", "sm", "lg"]);
    this.main = this.rng.pick(COLOURS);
    this.outline = this.rng.chance(0.3);
    this.pills = this.rng.chance(0.4);
    this.barTheme = this.rng.chance(0.4);
    this.flat = this.rng.chance(0.4);
    this.floating = this.rng.chance(0.2);
  }
  css() {
    const { accent } = this.look;
    const own = accent ? `:root,[data-bs-theme]{--bs-primary:${accent};--bs-link-color:${accent};--tblr-primary:${accent}}
      .btn-primary{--bs-btn-bg:${accent};--bs-btn-border-color:${accent}} .btn-outline-primary{--bs-btn-color:${accent};--bs-btn-border-color:${accent}}
      .nav-pills{--bs-nav-pills-link-active-bg:${accent}} .form-check-input:checked{background-color:${accent};border-color:${accent}}` : "";
    return `:root{--k-bg:var(--bs-body-bg);--k-fg:var(--bs-body-color);--k-line:var(--bs-border-color);--k-surface:var(--bs-body-bg);--k-accent:var(--bs-primary);--k-soft:var(--bs-secondary-bg)}${own}`;
  }
  htmlAttributes() { return { "data-bs-theme": this.look.theme }; }
  buttonClass(variant = "plain") {
    if (variant === "primary") return classes("btn", `btn-${this.outline ? "outline-" : ""}${this.main}`, this.size && `btn-${this.size}`);
    if (variant === "danger") return classes("btn btn-danger", this.size && `btn-${this.size}`);
    if (variant === "link") return "btn btn-link";
    return classes("btn", this.rng.pick(["btn-outline-secondary", "btn-secondary", "btn-outline-primary", "btn-light"]), this.size && `btn-${this.size}`);
  }
  button(label, { icon, variant, block } = {}) {
    return `<button type="button" class="${classes(this.buttonClass(variant), block && "w-100")}" ${this.target("button", label)}>${this.iconBefore(icon)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size, bare } = {}) {
    const cls = bare || this.flat ? "btn btn-link text-reset p-1" : `btn ${this.size === "sm" ? "btn-sm" : ""} btn-outline-secondary`;
    return `<button type="button" class="${cls}" ${this.target("button")}>${this.icon(icon, { size })}</button>`;
  }
  inputClass() { return "form-control"; }
  labelClass() { return "form-label mb-1"; }
  selectClass() { return "form-select"; }
  field(spec) {
    if (!this.floating || spec.placeholder === spec.label || spec.lines || !spec.value) return super.field(spec);
    return `<div class="form-floating">${this.input({ ...spec, cls: "form-control", placeholder: " " })}${this.outerLabel(spec.label)}</div>`;
  }
  searchField(label) {
    const field = this.input({ label, placeholder: label, cls: "form-control" });
    return this.rng.chance(0.5) ? field : `<div class="input-group"><span class="input-group-text">${this.icon("search", { size: 16 })}</span>${field}</div>`;
  }
  check(kind, label, on) {
    const cls = classes("form-check mb-0", kind === "switch" && "form-switch");
    return `<label class="${cls}" style="width:fit-content" ${this.target(kind, label)}><input class="form-check-input" type="${kind === "radio" ? "radio" : "checkbox"}" ${on ? "checked" : ""}><span class="form-check-label">${this.named(label)}</span></label>`;
  }
  switchControl(on) { return `<span class="form-check form-switch m-0 p-0"><input class="form-check-input m-0 float-none" type="checkbox" ${on ? "checked" : ""}></span>`; }
  slider(label, value) {
    const slider = `<input type="range" class="form-range" value="${value}" ${this.target("slider", label)}>`;
    return `<div>${this.outerLabel(label, "form-label mb-0")}${slider}</div>`;
  }
  bareSlider(value) { return `<input type="range" class="form-range" value="${value}">`; }
  tabs(items) {
    const links = items.map((i) => `<li class="nav-item"><a class="nav-link ${i.on ? "active" : ""}" ${this.target("tab", i.label)}>${this.iconBefore(i.icon)}${this.named(i.label)}</a></li>`);
    return `<ul class="nav ${this.pills ? "nav-pills" : "nav-tabs"} ${this.rng.chance(0.2) ? "nav-fill" : ""}">${links.join("")}</ul>`;
  }
  list(rows) { return `<div class="list-group ${this.look.flush && this.look.mobile ? "list-group-flush" : ""}">${rows.join("")}</div>`; }
  row({ label, icon, media = "", detail = "", end = "", role = "row", on }) {
    return `<div class="list-group-item list-group-item-action d-flex align-items-center gap-3" ${this.target(role, label)}>${media}${icon ? this.icon(icon) : ""}<div class="k-grow"><div>${this.named(label)}</div>${detail ? `<div class="text-body-secondary small k-clip">${detail}</div>` : ""}</div>${role === "switch" ? this.switchControl(on) : ""}${end}</div>`;
  }
  card(body) { return `<div class="card"><div class="card-body k-stack">${body}</div></div>`; }
  cardTarget(label, body) { return `<div class="card" ${this.target("card", label)}><div class="card-body k-stack p-2">${body}</div></div>`; }
  badge(text) { return `<span class="badge text-bg-${this.rng.pick(["secondary", "primary", "success", "light", "danger"])}">${text}</span>`; }
  tableClass() { return classes("table mb-0 align-middle", this.flat && "table-striped", this.size === "sm" && "table-sm"); }
  menu(items) {
    return `<div class="dropdown-menu show position-static shadow" style="min-width:190px">${items.map((i) => `<a class="dropdown-item" ${this.target("menu", i.label)}>${i.icon ? `${this.icon(i.icon, { size: 16 })} ` : ""}${this.named(i.label)}</a>`).join("")}</div>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay"><div class="modal-content" style="width:min(440px,90vw);background:var(--bs-body-bg);border-radius:8px;border:1px solid var(--bs-border-color)"><div class="modal-header p-3"><h5 class="modal-title">${title}</h5></div><div class="modal-body p-3 k-stack">${text ? `<p class="mb-0">${text}</p>` : ""}${body}</div><div class="modal-footer p-2 k-line k-end">${actions}</div></div></div>`;
  }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    const cls = this.barTheme ? "bg-primary" : "bg-body-tertiary border-bottom";
    return `<nav class="navbar ${cls} py-2" ${this.barTheme ? 'data-bs-theme="dark"' : ""}><div class="container-fluid flex-nowrap gap-2">${left}<span class="navbar-brand mb-0 k-clip">${title}</span><div class="k-grow" style="color:var(--bs-body-color)">${middle}</div><div class="k-line k-tight k-nowrap" style="color:var(--bs-body-color)">${right}</div></div></nav>`;
  }
  sidebar(items, head = "") {
    return `<aside class="k-side bg-body-tertiary">${head}<ul class="nav nav-pills flex-column">${items.map((i) => `<li class="nav-item"><a class="nav-link ${i.on ? "active" : "text-body"} d-flex gap-2 align-items-center" ${this.target("link", i.label)}>${i.icon ? this.icon(i.icon) : ""}${this.named(i.label)}</a></li>`).join("")}</ul></aside>`;
  }
  meter(share) { return `<div class="progress" style="height:8px"><div class="progress-bar" style="width:${share}%"></div></div>`; }
}

export class Tabler extends Bootstrap {
  css() {
    const { accent } = this.look;
    const own = accent ? `:root,[data-bs-theme]{--tblr-primary:${accent};--tblr-link-color:${accent}}` : "";
    return `:root{--bs-body-bg:var(--tblr-bg-surface);--bs-border-color:var(--tblr-border-color);--bs-body-color:var(--tblr-body-color);--k-bg:var(--tblr-body-bg);--k-fg:var(--tblr-body-color);--k-line:var(--tblr-border-color);--k-surface:var(--tblr-bg-surface);--k-accent:var(--tblr-primary);--k-soft:var(--tblr-bg-surface-secondary)}${own}`;
  }
  button(label, { icon, variant, block } = {}) {
    const drawn = icon ? this.icon(icon, { size: 18, cls: "icon" }) : "";
    return `<button type="button" class="${classes(this.buttonClass(variant), block && "w-100")}" ${this.target("button", label)}>${drawn}${this.named(label)}</button>`;
  }
  buttonClass(variant) {
    if (variant === "primary" || variant === "danger" || variant === "link") return super.buttonClass(variant);
    return classes("btn", this.rng.pick(["", "", "btn-ghost-secondary", "btn-outline-primary", "btn-secondary"]), this.size && `btn-${this.size}`);
  }
  navbar(spec) {
    this.barTheme = false;
    return super.navbar(spec);
  }
  badge(text) { return `<span class="badge bg-${this.rng.pick(["blue", "green", "red", "azure", "yellow"])}-lt">${text}</span>`; }
}
