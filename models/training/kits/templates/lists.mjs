// Screens that are mostly rows.
import { bottomTabs, buttonLine, chipLine, iconLine, items, rowEnds, sideNav, topBar } from "./pieces.mjs";

export function mail(ui) {
  const { rng, say, look } = ui;
  const count = rng.int(6, 12), ends = rowEnds(ui, count), pictured = rng.chance(0.6);
  const rows = ui.list(say.labels("people", count).map((label, i) => ui.row({ label, media: pictured ? ui.avatar(label) : "", detail: say.sentence(3, 9), end: ends[i] })));
  const tools = iconLine(ui, rng.int(3, 7), ...rng.shuffle(["archive", "trash", "reply", "refresh", "star", "flag", "tag", "print"]));
  const reading = ui.card(ui.heading(say.sentence(2, 4)) + ui.line(`${ui.avatar(say.word(), 40)}<div><strong>${say.sentence(2)}</strong><div class="k-muted k-small">${say.email()}</div></div>`)
    + rng.times(rng.int(2, 4), () => `<div>${say.sentence(14, 40)}</div>`).join("") + ui.line([say.want("actions", "Reply"), say.want("actions", "Forward"), ...(rng.chance(0.5) ? [say.want("actions", "Archive", "Report")] : [])].map((l, i) => ui.button(l, { variant: i ? "plain" : "primary", icon: rng.chance(0.5) ? say.iconFor(l) : null })).join("")));
  const list = (rng.chance(0.4) ? chipLine(ui, "navigation", rng.int(3, 4)) : "") + rows;
  const split = look.width > 820 && rng.chance(0.7);
  const compose = ui.button(say.want("actions", "New message", "Create", "Send message"), { variant: "primary", icon: rng.chance(0.6) ? say.iconFor("Edit") : null });
  const floating = look.mobile && rng.chance(0.5);
  return { top: topBar(ui, say.want("navigation", "Inbox", "Messages", "Sent", "Drafts")), side: sideNav(ui, 0.8),
    main: (rng.chance(0.4) ? ui.searchField(say.want("fields", "Search")) : "") + (look.mobile && rng.chance(0.5) ? "" : ui.line(tools + (floating ? "" : compose), "k-spread")) + (split ? ui.grid(2, [ui.stack(list), reading]) : list),
    float: floating ? `<div class="k-float" style="right:16px;bottom:84px">${compose}</div>` : "", bottom: bottomTabs(ui) };
}

export function people(ui) {
  const { rng, say, look } = ui;
  const block = (count) => {
    const ends = rowEnds(ui, count);
    return ui.list(say.labels("people", count).map((label, i) => ui.row({ label, media: ui.avatar(label, rng.int(28, 40)), detail: rng.chance(0.6) ? say.email() : "", end: ends[i] })));
  };
  const tabs = ui.tabs(items(ui, "navigation", rng.int(2, 4), { icons: false, longest: 9 }));
  const search = ui.searchField(say.want("fields", "Search", "Full name"));
  const lists = look.width > 820 ? ui.grid(2, [ui.stack(ui.heading(say.label("headings")) + block(rng.int(4, 8))), ui.stack(ui.heading(say.label("headings")) + block(rng.int(3, 8)))]) : block(rng.int(6, 12));
  const parts = [rng.chance(0.6) ? search : "", rng.chance(0.6) ? tabs : "", rng.chance(0.5) ? buttonLine(ui, rng.int(1, 3), { longest: 12 }) : "", lists];
  return { top: topBar(ui, say.want("navigation", "Contacts", "Team", "Users", "Customers", "Groups")), side: sideNav(ui), main: parts.join(""), bottom: bottomTabs(ui) };
}

export function chat(ui) {
  const { rng, say, look } = ui;
  const who = say.label("people");
  const bubbles = rng.times(rng.int(4, 8), () => `<div class="k-bubble ${rng.chance(0.45) ? "k-mine" : ""}">${say.sentence(2, 14)}<div class="k-small k-muted">${say.time()}</div></div>`).join("");
  const rows = ui.list(say.labels("people", rng.int(5, 9)).map((label) => ui.row({ label, media: ui.avatar(label, 32), detail: say.sentence(3, 6), end: rng.chance(0.5) ? ui.badge(say.number()) : "" })));
  const prompt = say.want("fields", "Message"), field = ui.field({ label: prompt, placeholder: prompt });
  const extra = rng.times(rng.int(1, 3), () => ui.iconButton(say.icon("attach", "camera", "microphone", "image", "plus"))).join("");
  const send = rng.chance(0.6) ? ui.iconButton(say.icon("send")) : ui.button(say.want("actions", "Send"), { variant: "primary" });
  const composer = `<div class="k-bar k-nowrap" style="border-top:1px solid var(--k-line)">${extra}<div class="k-grow">${field}</div>${send}</div>`;
  const head = ui.line(`${ui.avatar(who, 34)}<div><strong>${who}</strong><div class="k-muted k-small">${say.sentence(1, 2)}</div></div><div class="k-grow"></div>${iconLine(ui, rng.int(1, 3), "phone", "video", "info")}`);
  const quick = rng.chance(0.6) ? chipLine(ui, "actions", 3) : "";
  const thread = ui.stack(head + bubbles + quick);
  return { top: topBar(ui, say.want("navigation", "Chats", "Messages"), { back: true }), side: look.mobile ? "" : sideNav(ui, 0.4),
    main: look.width > 700 ? `<div class="k-grid" style="grid-template-columns:minmax(0,1fr) minmax(0,2fr)">${ui.stack(rows)}${thread}</div>` : thread, bottom: composer + bottomTabs(ui, 0.4) };
}

export function searchPage(ui) {
  const { rng, say, look } = ui;
  const empty = rng.chance(0.4);
  const search = ui.searchField(say.want("fields", "Search"));
  const filters = chipLine(ui, rng.pick(["navigation", "products"]), rng.int(4, look.mobile ? 6 : 9));
  const nothing = `<div class="k-stack k-center" style="padding:${rng.int(20, 70)}px 0">${ui.picture(90, 90)}${ui.heading(say.want("headings", "No results", "Something went wrong"))}${ui.muted(say.sentence(5, 10))}${buttonLine(ui, rng.int(1, 2), { more: "k-center" })}</div>`;
  const results = ui.list(say.labels(rng.pick(["navigation", "products", "settings"]), rng.int(4, 9)).map((label) => ui.row({ label, icon: rng.chance(0.5) ? say.iconFor(label) : null, media: rng.chance(0.3) ? ui.picture(40, 40) : "", detail: say.sentence(3, 10) })));
  const recent = ui.stack(ui.heading(say.want("headings", "Recent activity", "Related products")) + ui.line(say.labels("products", rng.int(3, 6)).map((l) => ui.link(l)).join("")));
  const tools = ui.line(`${ui.select(say.want("columns", "Type", "Date"), say.sentence(1))}${iconLine(ui, rng.int(2, 4), "filter", "sort", "grid")}`);
  return { top: topBar(ui, say.want("navigation", "Explore", "Discover", "Library", "Help")), side: sideNav(ui), main: search + filters + (rng.chance(0.5) ? tools : "") + (empty ? nothing : results) + recent, bottom: bottomTabs(ui) };
}
