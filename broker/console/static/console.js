// The live view of rates: asks for counters while the page is looked at, and draws what they grew by.
"use strict";
(() => {
  const box = document.getElementById("rates");
  if (!box) return;
  const EVERY_MS = 2000, KEPT = 60, WIDTH = 600, HEIGHT = 120;
  const drawn = [];
  let last = null, timer = 0;
  box.hidden = false;
  document.getElementById("live-note").textContent = "Of all brokers, every two seconds.";

  const text = (name, value) => { box.querySelector(`[data-rate="${name}"]`).textContent = value; };
  const shown = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });

  function grown(now, before, way) {
    let sum = 0;
    for (const [name, broker] of Object.entries(now.brokers)) {
      const old = before.brokers[name];
      // A broker that has started anew counts from nothing.
      if (old && old.booted === broker.booted) sum += Math.max(broker[way] - old[way], 0);
    }
    return sum * 1000 / Math.max(now.timeMs - before.timeMs, 1);
  }

  function draw() {
    const most = 1.15 * Math.max(1, ...drawn.flatMap((each) => [each.in, each.out]));
    for (const way of ["in", "out"]) {
      const points = drawn.map((each, index) => {
        const x = WIDTH - (drawn.length - 1 - index) * WIDTH / (KEPT - 1);
        return `${x.toFixed(1)},${(HEIGHT - 1 - each[way] / most * (HEIGHT - 3)).toFixed(1)}`;
      });
      box.querySelector(`polyline.${way}`).setAttribute("points", points.join(" "));
      text(way, shown(drawn[drawn.length - 1][way]));
    }
    text("most", `top line: ${shown(most)}/s`);
  }

  async function look() {
    timer = 0;
    try {
      const answer = await fetch(box.dataset.from, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const now = await answer.json();
      if (last) {
        drawn.push({ in: grown(now, last, "in"), out: grown(now, last, "out") });
        drawn.splice(0, drawn.length - KEPT);
        draw();
      }
      last = now;
    } catch {
      text("in", "–"); text("out", "–"); text("most", "the broker does not answer");
      last = null;
    }
    if (!document.hidden && !timer) timer = setTimeout(look, EVERY_MS);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); timer = 0; last = null; } else if (!timer) look();
  });
  if (!document.hidden) look();
})();
