// Runs in the page: what is on the screen, in CSS pixels. Self-contained, for its source text is sent to the browser.

export function collect() {
  const WIDTH = innerWidth, HEIGHT = innerHeight;
  const targets = new Map(), words = [], icons = [];
  const pen = document.createElement("canvas").getContext("2d");
  const inkCache = new Map();

  // Stencil's components answer with their slotted children only; the real ones are wanted.
  const realChildren = Object.getOwnPropertyDescriptor(Node.prototype, "childNodes").get;
  const parentOf = (node) => node.assignedSlot ?? node.parentElement ?? (node.getRootNode() instanceof ShadowRoot ? node.getRootNode().host : null);
  const inside = (node, ancestor) => { for (let n = node; n; n = parentOf(n)) if (n === ancestor) return true; return false; };
  const hitAt = (x, y) => {
    let hit = document.elementFromPoint(x, y);
    while (hit?.shadowRoot) {
      const deeper = hit.shadowRoot.elementFromPoint(x, y);
      if (!deeper || deeper === hit) break;
      hit = deeper;
    }
    return hit;
  };
  const meet = (a, b) => [Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])];
  const area = (b) => Math.max(0, b[2] - b[0]) * Math.max(0, b[3] - b[1]);
  const join = (boxes) => boxes.reduce((a, b) => [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[2], b[2]), Math.max(a[3], b[3])]);
  const boxOf = (rect) => [rect.left, rect.top, rect.right, rect.bottom];
  /** Seen at its centre; an ancestor may answer for it, since what is clipped away was cut off before. */
  const seen = (box, owner, context) => {
    const hit = hitAt((box[0] + box[2]) / 2, (box[1] + box[3]) / 2);
    // A label that floats in its field lets presses through to the field.
    return !!hit && (inside(hit, owner) || inside(owner, hit) || (!!context?.labelled && inside(hit, context.labelled)));
  };

  function ink(style, text) {
    const font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const key = `${font}|${style.letterSpacing}|${text}`;
    if (!inkCache.has(key)) {
      pen.font = font;
      pen.letterSpacing = style.letterSpacing === "normal" ? "0px" : style.letterSpacing;
      inkCache.set(key, pen.measureText(text));
    }
    return inkCache.get(key);
  }
  function shown(style, text) {
    if (style.textTransform === "uppercase") return text.toUpperCase();
    if (style.textTransform === "lowercase") return text.toLowerCase();
    if (style.textTransform === "capitalize") return text.replace(/(^|\s)\S/g, (c) => c.toUpperCase());
    return text;
  }
  /** The line's box is as tall as the face; a word's box should be as tall as its ink. */
  function tight(box, style, text) {
    const m = ink(style, text);
    const tall = m.fontBoundingBoxAscent + m.fontBoundingBoxDescent;
    if (!tall) return box;
    const base = box[1] + (box[3] - box[1]) * (m.fontBoundingBoxAscent / tall);
    // A transform scales what is drawn, and the page's measures with it, but not the face asked for.
    const ratio = (box[3] - box[1]) / tall, grown = Math.abs(ratio - 1) > 0.08 ? ratio : 1;
    return [box[0], base - grown * m.actualBoundingBoxAscent, box[2], base + grown * m.actualBoundingBoxDescent];
  }

  function addWord(text, box, style, owner, context) {
    if (box[2] - box[0] < 1 || box[3] - box[1] < 1) return;
    const look = shown(style, text), drawn = tight(box, style, look), cut = meet(drawn, context.clip);
    const room = context.ellipsis ? context.clip[2] - parseFloat(style.fontSize) : Infinity;
    const visible = area(cut) >= 0.93 * area(drawn) && cut[2] - cut[0] >= 0.97 * (drawn[2] - drawn[0]) && box[2] <= room && seen(cut, owner, context);
    const target = context.target;
    if (context.naming && target) target.expected.push(visible);
    if (!visible) return;
    const word = { text: look, box: drawn, target };
    if (context.naming && target) target.name.push(word);
    words.push(word);
  }

  function visitText(node, context) {
    const style = getComputedStyle(node.parentElement), owner = node.parentElement;
    if (style.visibility !== "visible" || parseFloat(style.fontSize) < 4) return;
    const range = document.createRange();
    for (const match of node.data.matchAll(/\S+/g)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const rects = [...range.getClientRects()].filter((r) => r.width > 0);
      // A word broken over two lines is two words to the eye; such a one is left out.
      if (rects.length === 1) addWord(match[0], boxOf(rects[0]), style, owner, context);
      else if (context.naming && context.target) context.target.expected.push(false);
    }
  }

  /** A control's own text is in no text node: it is measured and laid out as the browser does. */
  function visitControl(node, context) {
    const isArea = node.localName === "textarea", isSelect = node.localName === "select";
    if (!isArea && !isSelect && ["checkbox", "radio", "range", "hidden", "color", "file"].includes(node.type)) return;
    const placeholder = !isSelect && !node.value;
    const text = isSelect ? node.selectedOptions[0]?.text ?? "" : node.value || node.placeholder;
    if (node.type === "password" && node.value) return;
    if (!text) return;
    const style = getComputedStyle(node), rect = node.getBoundingClientRect();
    const left = rect.left + parseFloat(style.borderLeftWidth) + parseFloat(style.paddingLeft);
    const right = rect.right - parseFloat(style.borderRightWidth) - parseFloat(style.paddingRight);
    const m = ink(style, "x"), tall = m.fontBoundingBoxAscent + m.fontBoundingBoxDescent;
    const innerTop = rect.top + parseFloat(style.borderTopWidth) + parseFloat(style.paddingTop);
    const innerBottom = rect.bottom - parseFloat(style.borderBottomWidth) - parseFloat(style.paddingBottom);
    const lineHeight = parseFloat(style.lineHeight) || tall * 1.15;
    const top = isArea ? innerTop + (lineHeight - tall) / 2 : (innerTop + innerBottom - tall) / 2;
    const width = ink(style, text).width;
    const start = style.textAlign === "center" ? (left + right - width) / 2 : ["right", "end"].includes(style.textAlign) && style.direction === "ltr" ? right - width : left;
    const naming = placeholder && node.hasAttribute("data-n");
    const clip = meet(context.clip, [left - 1, rect.top, right + 1, rect.bottom]);
    for (const match of text.matchAll(/\S+/g)) {
      const from = start + ink(style, text.slice(0, match.index)).width, to = start + ink(style, text.slice(0, match.index + match[0].length)).width;
      if (isArea && to > right) break;
      addWord(match[0], [from, top, to, top + tall], style, node, { ...context, clip, ellipsis: false, naming });
    }
  }

  function iconBox(node) {
    const rect = boxOf(node.getBoundingClientRect());
    if (node.localName !== "svg") return rect;
    try {
      const b = node.getBBox(), m = node.getScreenCTM();
      const half = node.getAttribute("fill") === "none" ? parseFloat(node.getAttribute("stroke-width") ?? 0) / 2 : 0;
      const box = [m.a * (b.x - half) + m.e, m.d * (b.y - half) + m.f, m.a * (b.x + b.width + half) + m.e, m.d * (b.y + b.height + half) + m.f];
      return area(box) > 0 ? meet(box, rect) : rect;
    } catch { return rect; }
  }

  function targetOf(node) {
    const id = node.getAttribute("data-id");
    if (!targets.has(id)) targets.set(id, { id, node: null, name: [], expected: [], icons: [] });
    return targets.get(id);
  }

  function visit(node, context) {
    if (node.nodeType === 3) { visitText(node, context); return; }
    if (node.nodeType !== 1) return;
    const style = getComputedStyle(node);
    if (style.display === "none" || parseFloat(style.opacity) < 0.1) return;
    let next = context;
    if (node.hasAttribute("data-role")) {
      const target = targetOf(node);
      Object.assign(target, { node, role: node.getAttribute("data-role"), wanted: node.getAttribute("data-name"), clip: context.clip });
      next = { ...next, target, naming: false };
    }
    if (node.hasAttribute("data-n") && next.target) next = { ...next, naming: true };
    if (node.hasAttribute("data-for")) {
      const id = node.getAttribute("data-for");
      if (!targets.has(id)) targets.set(id, { id, node: null, name: [], expected: [], icons: [] });
      next = { ...next, target: targets.get(id), naming: true, labelled: document.querySelector(`[data-id="${id}"]`) };
    }
    if (node.hasAttribute("data-icon")) {
      const box = iconBox(node), cut = meet(box, context.clip);
      if (style.visibility === "visible" && area(box) > 16 && area(cut) > 0.9 * area(box) && seen(cut, node)) {
        const icon = { name: node.getAttribute("data-icon"), box: cut, target: next.target };
        icons.push(icon);
        next.target?.icons.push(icon);
      }
      return;
    }
    if (["input", "textarea", "select"].includes(node.localName)) { visitControl(node, next); return; }
    if (style.overflowX !== "visible" || style.overflowY !== "visible") {
      next = { ...next, clip: meet(next.clip, boxOf(node.getBoundingClientRect())) };
    }
    if (style.display !== "inline" && style.textOverflow === "ellipsis" && node.scrollWidth > node.clientWidth + 1) next = { ...next, ellipsis: true };
    else if (next.ellipsis && style.overflowX !== "visible") next = { ...next, ellipsis: false };
    const children = node.shadowRoot ? node.shadowRoot.childNodes : node.localName === "slot" && node.assignedNodes().length ? node.assignedNodes() : realChildren.call(node);
    for (const child of children) visit(child, next);
  }

  visit(document.body, { clip: [0, 0, WIDTH, HEIGHT], target: null, naming: false, ellipsis: false });

  const elements = [];
  for (const target of targets.values()) {
    target.index = -1;
    if (!target.node) continue;
    const whole = boxOf(target.node.getBoundingClientRect()), box = meet(whole, target.clip);
    if (box[2] - box[0] < 8 || box[3] - box[1] < 8 || area(box) < 0.6 * area(whole)) continue;
    if (getComputedStyle(target.node).visibility !== "visible") continue;
    const hit = hitAt((box[0] + box[2]) / 2, (box[1] + box[3]) / 2);
    if (!hit || !(inside(hit, target.node) || (hit.localName === "label" && hit.control === target.node))) continue;
    if (target.expected.includes(false)) continue;
    const name = target.name.map((w) => w.text).join(" ");
    if (target.wanted && name.toLowerCase() !== target.wanted.toLowerCase()) continue;
    if (!name && target.icons.length !== 1) continue;
    target.index = elements.length;
    elements.push({ role: target.role, name, icon: target.icons[0]?.name ?? null, box,
      core: name ? join(target.name.map((w) => w.box)) : target.icons[0].box });
  }
  const indexOf = (thing) => thing.target?.index ?? -1;
  return { elements, words: words.map((w) => [w.text, ...w.box, indexOf(w)]), icons: icons.map((i) => [i.name, ...i.box, indexOf(i)]) };
}
