// A seeded source of chance: the same seed always tells the same screen.

function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export class Random {
  constructor(seed) {
    // Neighbouring seeds must not give neighbouring streams.
    this.next = mulberry32(Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bd1e995);
    for (let i = 0; i < 4; i++) this.next();
  }

  chance(share) { return this.next() < share; }
  real(low, high) { return low + (high - low) * this.next(); }
  int(low, high) { return low + Math.floor(this.next() * (high - low + 1)); }
  pick(list) { return list[Math.floor(this.next() * list.length)]; }

  /** One of [[weight, value], ...]. */
  weighted(pairs) {
    let left = this.next() * pairs.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, value] of pairs) if ((left -= weight) < 0) return value;
    return pairs[pairs.length - 1][1];
  }

  shuffle(list) {
    const out = [...list];
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      [out[i], out[j]] = [out[j], out[i]];
    }
    return out;
  }

  sample(list, count) { return this.shuffle(list).slice(0, count); }
  times(count, make) { return Array.from({ length: count }, (_, i) => make(i)); }
}
