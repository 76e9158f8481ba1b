// Every template takes a kit and returns the parts of its frame.
import { login, settings, eventForm, profile } from "./forms.mjs";
import { mail, people, chat, searchPage } from "./lists.mjs";
import { table, dashboard, files, editor } from "./work.mjs";
import { shop, cart, player } from "./leisure.mjs";
import { confirm, menuOpen } from "./overlays.mjs";

export const TEMPLATES = { login, settings, eventForm, profile, mail, people, chat, searchPage, table, dashboard, files, editor, shop, cart, player, confirm, menuOpen };
