// How a screen looks before anything is on it: its size, scale, theme, colour and face.

const MOBILE = [[360, 800], [390, 844], [412, 915], [360, 640]];
const TABLET = [820, 1180];
const DESKTOP = [[1366, 768], [1280, 720], [1440, 900], [1024, 768], [800, 600], [1920, 1080]];
const RETRO = [[640, 480], [800, 600], [1024, 768], [1280, 720], [1366, 768]];
const FACES = ["Inter", "Roboto", "Open Sans", "Lato", "Liberation Sans", "DejaVu Sans"];

/**
 * Zoom is a smaller page at a larger scale, as in a browser: page units times `scale` are picture pixels.
 * @param {"mobile"|"desktop"|"retro"} shape
 */
export function chooseLook(rng, shape, scaleMode, themes) {
  const look = { shape, mobile: shape === "mobile", tablet: false };
  let width, height, zoom = 1, factor = 1;
  if (shape === "mobile") {
    look.tablet = rng.chance(0.1);
    [width, height] = look.tablet ? TABLET : rng.pick(MOBILE);
    if (look.tablet) factor = scaleMode === "low" ? 0.9 : rng.pick([1.5, 2]);
    else factor = scaleMode === "low" ? rng.pick([640, 680, 720]) / width : rng.pick([2, 2.5, 2.625, 3]);
    zoom = rng.weighted([[7, 1], [2, 1.1], [1, 1.2]]);
    if (look.tablet) zoom = rng.pick([1, 1.25]);
  } else {
    [width, height] = rng.pick(shape === "retro" ? RETRO : DESKTOP);
    factor = scaleMode === "low" ? 1 : rng.weighted([[6, 1], [1, 1.25], [1, 1.5], [1, 2]]);
    zoom = rng.weighted([[5, 1], [2, 1.1], [2, 1.25], [1, 1.5]]);
    if (width >= 1920) zoom = rng.pick([1.25, 1.5]);
    if (width <= 800) zoom = Math.min(zoom, 1.1);
  }
  look.width = Math.round(width / zoom);
  // A page is whole units wide; the scale gives way, so that the picture is as wide as meant (the browser rounds down).
  look.scale = (Math.round(width * factor) + 0.01) / look.width;
  look.height = Math.round(height * factor / look.scale);
  look.narrow = look.width < 600;
  look.theme = themes.includes("dark") && rng.chance(0.35) ? "dark" : "light";
  look.hue = rng.int(0, 359);
  look.accent = rng.weighted([[4, null], [6, `hsl(${look.hue} ${rng.int(55, 90)}% ${look.theme === "dark" ? rng.int(45, 62) : rng.int(30, 48)}%)`]]);
  look.face = rng.chance(0.3) ? rng.pick(FACES) : null;
  look.gap = rng.pick(look.mobile ? [8, 10, 12, 14] : [6, 8, 10, 14]);
  look.pad = rng.pick(look.mobile ? [10, 12, 16] : [10, 14, 20]);
  look.rowPad = rng.pick([6, 8, 10, 12]);
  look.radius = rng.pick([0, 4, 6, 8, 12]);
  look.flush = rng.chance(0.5);
  return look;
}
