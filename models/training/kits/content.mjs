// What a screen says: labels from the closed list, each at most once unless asked for, and filler that means nothing.
import fs from "node:fs";
import { ICONS } from "./icons.mjs";

const GROUPS = JSON.parse(fs.readFileSync(new URL("../content.json", import.meta.url), "utf8"));

/** Icons a label goes well with: the words it is spoken by, and a few that need saying. */
const ICON_FOR = { delete: "trash", remove: "trash", notifications: "bell", "add to cart": "cart", checkout: "cart",
  favorites: "heart", photos: "image", pictures: "image", contacts: "users", inbox: "mail", messages: "chat", chats: "chat",
  calls: "phone", files: "folder", documents: "file", downloads: "download", videos: "video", movies: "video", books: "book",
  orders: "bag", shop: "bag", payments: "card", wallet: "card", billing: "card", rewards: "gift", reports: "chart",
  analytics: "chart", storage: "cloud", privacy: "shield", security: "lock", appearance: "sun", network: "wifi", general: "settings",
  "dark mode": "moon", "new file": "file", "new folder": "folder", create: "plus", "add item": "plus", "log in": "user",
  events: "calendar", "do not disturb": "moon", wallpaper: "image", "save changes": "save", upgrade: "bolt", desktop: "grid" };
for (const [icon, { spoken }] of Object.entries(ICONS)) for (const word of spoken) ICON_FOR[word] ??= icon;

const ONSETS = ["b", "br", "d", "f", "g", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "tr", "v", "z"];
const VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "o"];
const CODAS = ["", "", "", "n", "r", "l", "s", "t", "m"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const CASES = {
  given: (text) => text,
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  title: (text) => text.replace(/\b[a-z]/g, (c) => c.toUpperCase()),
};

export class Content {
  constructor(rng) {
    this.rng = rng;
    this.decks = Object.fromEntries(Object.entries(GROUPS).map(([group, list]) => [group, rng.shuffle(list)]));
    this.iconDeck = rng.shuffle(Object.keys(ICONS));
    this.used = new Set();
    /** Whether this screen may say the same thing in several rows; about half of those that may have such rows. */
    this.repeats = rng.chance(0.35);
    const all = rng.weighted([[80, "given"], [7, "title"], [7, "upper"], [6, "lower"]]);
    this.cases = { actions: rng.chance(0.08) ? "upper" : all, other: all };
  }

  cased(text, group) {
    return CASES[group === "actions" ? this.cases.actions : this.cases.other](text);
  }

  take(label, group) {
    this.used.add(label.toLowerCase());
    return this.cased(label, group);
  }

  /** A label of the group that this screen does not show yet; longest tells how long it may be. */
  label(group, longest = 24) {
    const deck = this.decks[group];
    const at = deck.findIndex((l) => l.length <= longest && !this.used.has(l.toLowerCase()));
    if (at < 0) return this.cased(this.rng.pick(deck), group);
    return this.take(deck.splice(at, 1)[0], group);
  }

  /** The first of the wanted labels not shown yet, in seeded order; else any label of the group. */
  want(group, ...wanted) {
    const free = this.rng.shuffle(wanted).find((l) => GROUPS[group].includes(l) && !this.used.has(l.toLowerCase()));
    return free ? this.take(free, group) : this.label(group);
  }

  labels(group, count, longest) {
    return this.rng.times(count, () => this.label(group, longest));
  }

  /** An icon to stand alone: no label on the screen may be spoken the same way. */
  icon(...wanted) {
    const free = (name) => !this.used.has(`icon ${name}`) && !ICONS[name].spoken.some((w) => this.used.has(w));
    const name = this.rng.shuffle(wanted).find(free) ?? this.iconDeck.find(free);
    if (!name) return this.rng.pick(this.iconDeck);
    this.used.add(`icon ${name}`);
    for (const word of ICONS[name].spoken) this.used.add(word);
    return name;
  }

  /** An icon to go beside a label. */
  iconFor(label) {
    const fitting = ICON_FOR[label.toLowerCase()];
    if (fitting && !this.used.has(`icon ${fitting}`)) {
      this.used.add(`icon ${fitting}`);
      return fitting;
    }
    const name = this.iconDeck.find((n) => !this.used.has(`icon ${n}`)) ?? this.rng.pick(this.iconDeck);
    this.used.add(`icon ${name}`);
    return name;
  }

  word() {
    const { rng } = this;
    return rng.times(rng.weighted([[3, 1], [6, 2], [2, 3]]), () => rng.pick(ONSETS) + rng.pick(VOWELS) + rng.pick(CODAS)).join("");
  }

  sentence(least, most) {
    const words = this.rng.times(this.rng.int(least, most ?? least), () => this.word());
    words[0] = words[0][0].toUpperCase() + words[0].slice(1);
    return words.join(" ");
  }

  number() { return this.rng.weighted([[3, () => `${this.rng.int(1, 99)}`], [2, () => `${this.rng.int(100, 9999)}`], [1, () => `${this.rng.int(1, 99)}%`], [1, () => `${this.rng.real(1, 99).toFixed(1)}k`]])(); }
  price() { return `${this.rng.pick(["$", "$", "€", "£"])}${this.rng.int(1, 400)}.${this.rng.pick(["00", "50", "99", "95", "20"])}`; }
  time() { return `${this.rng.int(0, 23)}:${String(this.rng.int(0, 59)).padStart(2, "0")}`; }
  date() { return this.rng.pick([() => `${this.rng.int(1, 28)} ${this.rng.pick(MONTHS)}`, () => `${this.rng.pick(MONTHS)} ${this.rng.int(1, 28)}, 20${this.rng.int(18, 29)}`, () => `20${this.rng.int(18, 29)}-${String(this.rng.int(1, 12)).padStart(2, "0")}-${String(this.rng.int(1, 28)).padStart(2, "0")}`])(); }
  size() { return `${this.rng.int(1, 990)} ${this.rng.pick(["KB", "MB", "GB"])}`; }
  email() { return `${this.word()}@${this.word()}.${this.rng.pick(["com", "org", "net", "io"])}`; }
  datum(column) {
    const c = column.toLowerCase();
    if (["date", "modified"].includes(c)) return this.date();
    if (["price", "total", "amount"].includes(c)) return this.price();
    if (c === "size") return this.size();
    if (["stock", "rating"].includes(c)) return this.number();
    return this.sentence(1, 2);
  }
}
