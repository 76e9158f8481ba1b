// 98.css and XP.css: windows on a desktop, with a task bar.
import { Kit } from "./base.mjs";

export class Retro extends Kit {
  constructor(context) {
    super(context);
    this.xp = context.mode === "xp";
    this.iconSize = 16;
    this.titleText = "";
    this.ground = this.rng.pick(this.xp
      ? ["linear-gradient(#5a8fe0,#9cc3f5 55%,#6ba045 56%,#3f7a2a)", "#3a6ea5", "#004e98", "#6b8e23"]
      : ["#008080", "#008080", "#3a6ea5", "#55557f", "#808080", "linear-gradient(135deg,#004080,#80a0c0)"]);
  }
  css() {
    const face = this.xp ? "#ece9d8" : "#c0c0c0";
    return `:root{--k-bg:${this.xp ? "#3a6ea5" : "#008080"};--k-fg:#000;--k-line:#808080;--k-surface:#fff;--k-accent:${this.xp ? "#316ac6" : "#000080"};--k-soft:#ddd;--k-shade:rgba(0,0,0,.35);--k-gap:6px;--k-pad:8px;--k-rowpad:${this.rng.pick([3, 4, 6])}px;--k-radius:0}
      body{background:${this.ground};font-family:"Pixelated MS Sans Serif",Arial;font-size:11px;color:#000}
      .window{display:flex;flex-direction:column;position:absolute;background-color:${face}} .window-body{flex:1 1 0;min-height:0;display:flex;flex-direction:column;margin:4px 6px 6px;overflow:hidden}
      button .k-icon{color:#222;text-shadow:none} .title-bar{flex:none} .r-menus{display:flex;flex:none;padding:2px 2px 0} .r-menus a{padding:2px 7px;color:#000} .r-bar{display:flex;align-items:center;gap:3px;padding:3px;flex:none;border-bottom:1px solid #fff}
      .r-task{position:absolute;left:0;right:0;bottom:0;height:30px;display:flex;align-items:center;gap:4px;padding:2px 4px;z-index:50;background:${this.xp ? "linear-gradient(#3f8cf3,#245edb 12%,#1941a5)" : "#c0c0c0;box-shadow:inset 0 1px #fff"}}
      .r-flat{min-width:0 !important;padding:3px 5px !important;min-height:0 !important} .r-small button{min-width:60px}
      .k-main{padding:4px} .k-side{width:130px;background:#fff;border:1px solid #808080;padding:3px} .k-side .k-row{padding:3px 5px;gap:6px} .k-row{padding:var(--k-rowpad) 6px;gap:8px} .k-rows{border:1px solid #7f9db9} .k-bar{padding:4px;background:none}
      .k-avatar{width:20px !important;height:20px !important;font-size:10px !important;border-radius:2px} .field-row{margin:0 !important} .field-row-stacked{margin:0 !important} .field-row-stacked > input,.field-row-stacked > textarea,.field-row-stacked > select{width:100%;box-sizing:border-box}
      .k-bubble{border-radius:2px;padding:4px 6px} .k-stack{gap:6px} menu[role=tablist]{margin:0 0 -2px !important;padding-left:3px} .r-desk{position:absolute;left:8px;top:8px;display:grid;gap:14px;width:72px;color:#fff;text-align:center} .r-desk a{color:#fff;display:flex;flex-direction:column;align-items:center;gap:3px}
      input[type=range]{margin:4px 0}`;
  }

  titleBar(title, close = true) {
    const useful = close && !this.say.used.has("icon close") && !this.say.used.has("close");
    if (useful) for (const word of ["icon close", "close", "cross", "dismiss"]) this.say.used.add(word);
    const mark = useful ? `${this.target("button")} data-icon="close"` : "";
    return `<div class="title-bar"><div class="title-bar-text k-clip">${title}</div><div class="title-bar-controls"><button aria-label="Minimize"></button><button aria-label="Maximize"></button><button aria-label="Close" ${mark}></button></div></div>`;
  }
  navbar({ title = "", left = "", right = "", middle = "" }) {
    this.titleText = title;
    return left + right + middle ? `<div class="r-bar">${left}${right}<div class="k-grow">${middle}</div></div>` : "";
  }
  menuBar() {
    return `<div class="r-menus">${this.say.labels("menus", this.rng.int(3, 7), 9).map((l) => `<a ${this.target("menu", l)}>${this.named(l)}</a>`).join("")}</div>`;
  }
  frame({ top = "", side = "", main = "", bottom = "", overlay = "", float = "", menus = false }) {
    const { rng, look, say } = this;
    const roomW = look.width, roomH = look.height - 34, full = rng.chance(0.3) || roomW < 560;
    const width = full ? roomW : Math.round(roomW * rng.real(0.62, 0.9)), height = full ? roomH : Math.round(roomH * rng.real(0.75, 0.98));
    const left = full ? 0 : rng.int(0, roomW - width), topAt = full ? 0 : rng.int(0, roomH - height);
    const bars = menus || rng.chance(0.7) ? this.menuBar() : "";
    const status = rng.chance(0.5) ? `<div class="status-bar">${rng.times(rng.int(1, 3), () => `<p class="status-bar-field">${say.sentence(1, 2)}</p>`).join("")}</div>` : "";
    const window = `<div class="window" style="left:${left}px;top:${topAt}px;width:${width}px;height:${height}px">${this.titleBar(this.titleText || say.word(), !overlay)}${bars}<div class="window-body">${top}<div class="k-body">${side}<main class="k-main"><div class="k-stack">${main}</div></main></div>${bottom}</div>${status}</div>`;
    const second = !overlay && rng.chance(0.35) ? this.messageWindow(roomW, roomH) : "";
    const desk = !full && left > 90 ? `<div class="r-desk">${say.labels("navigation", rng.int(2, 5), 9).map((l) => `<a ${this.target("button", l)}>${this.icon(say.iconFor(l), { size: 30 })}${this.named(l)}</a>`).join("")}</div>` : "";
    const start = say.used.has("start") ? "" : `<button class="r-flat" style="${this.xp ? "background:#3c9a3c;color:#fff;" : ""}font-weight:bold" ${this.target("button", say.cased("Start"))}>${this.named(say.cased("Start"))}</button>`;
    const tasks = say.labels("navigation", rng.int(1, 3), 10).map((l) => `<button class="r-flat" style="width:110px;text-align:left" ${this.target("button", l)}>${this.named(l)}</button>`).join("");
    const task = `<div class="r-task">${start}${tasks}<div class="k-grow"></div><span style="${this.xp ? "color:#fff" : ""}">${say.time()}</span></div>`;
    return `<div class="k-screen">${desk}${window}${second}${task}${float}${overlay}</div>`;
  }
  messageWindow(roomW, roomH) {
    const { rng, say } = this, width = Math.min(roomW - 20, rng.int(230, 340));
    const buttons = say.labels("actions", rng.int(1, 3), 10).map((l) => this.button(l)).join("");
    return `<div class="window" style="left:${rng.int(0, roomW - width)}px;top:${rng.int(Math.floor(roomH * 0.3), Math.floor(roomH * 0.7))}px;width:${width}px;z-index:20">${this.titleBar(say.sentence(1, 2), false)}<div class="window-body" style="flex:none"><p style="margin:8px 4px 12px">${say.sentence(4, 10)}</p><div class="k-line k-end">${buttons}</div></div></div>`;
  }
  dialog({ title, text, body = "", actions }) {
    return `<div class="k-overlay"><div class="window" style="position:relative;width:min(340px,90vw)">${this.titleBar(title)}<div class="window-body k-stack" style="flex:none;padding:6px">${text ? `<div>${text}</div>` : ""}${body}<div class="k-line k-end" style="margin-top:8px">${actions}</div></div></div></div>`;
  }
  tabbar() { return ""; }
  button(label, { icon, variant, block } = {}) {
    return `<button type="button" class="${variant === "primary" && this.rng.chance(0.5) ? "default" : ""}" style="${block ? "width:100%" : ""}" ${this.target("button", label)}>${this.iconBefore(icon, 14)}${this.named(label)}</button>`;
  }
  iconButton(icon, { size } = {}) {
    return `<button type="button" class="r-flat" style="display:inline-flex" ${this.target("button")}>${this.icon(icon, { size })}</button>`;
  }
  field(spec) {
    const input = this.input(spec);
    if (spec.placeholder === spec.label) return `<div class="field-row-stacked">${input}</div>`;
    return `<div class="field-row-stacked">${this.outerLabel(spec.label)}${input}</div>`;
  }
  select(label, value) {
    const select = `<select ${this.target("select", label)}><option>${value}</option></select>`;
    return `<div class="field-row-stacked">${this.outerLabel(label)}${select}</div>`;
  }
  check(kind, label, on) {
    const type = kind === "radio" ? "radio" : "checkbox", shown = kind === "switch" ? "checkbox" : kind;
    const marks = this.target(shown, label), id = `c${this.lastId}`;
    return `<div class="field-row" style="width:fit-content" ${marks}><input type="${type}" id="${id}" ${on ? "checked" : ""}><label for="${id}">${this.named(label)}</label></div>`;
  }
  switchControl(on) {
    const id = `s${++this.ids}`;
    return `<div class="field-row"><input type="checkbox" id="${id}" ${on ? "checked" : ""}><label for="${id}"></label></div>`;
  }
  tabs(items) {
    const tab = (i) => this.xp
      ? `<button role="tab" aria-selected="${!!i.on}" ${this.target("tab", i.label)}>${this.named(i.label)}</button>`
      : `<li role="tab" aria-selected="${!!i.on}" ${this.target("tab", i.label)}><a>${this.named(i.label)}</a></li>`;
    return `<menu role="tablist">${items.map(tab).join("")}</menu>`;
  }
  slider(label, value) {
    // The groove alone is two pixels high: what takes the press is around it.
    const slider = `<div style="padding:9px 2px" ${this.target("slider", label)}><input type="range" style="width:100%;margin:0" value="${value}"></div>`;
    return `<div>${this.outerLabel(label)}${slider}</div>`;
  }
  chip(label) { return this.button(label); }
  card(body) { return this.rng.chance(0.5) ? `<fieldset><legend>${this.say.word()}</legend><div class="k-stack">${body}</div></fieldset>` : super.card(body); }
  table(columns, rows) { return `<div class="sunken-panel" style="overflow:hidden">${super.table(columns, rows)}</div>`; }
  meter(share) { return `<div class="k-meter" style="border:1px solid #808080;height:12px"><div style="width:${share}%"></div></div>`; }
  title(text) { return `<p style="font-size:14px;font-weight:bold;margin:2px 0">${text}</p>`; }
}
