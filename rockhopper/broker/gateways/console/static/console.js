// The live view of rates: polls counters while the page is visible, and draws their growth.
"use strict";
(() => {
  const box = document.getElementById("rates");
  if (!box) return;
  const EVERY_MS = 2000, ANSWER_WITHIN_MS = 15000, SHOWN_MS = 120000, WIDTH = 600, HEIGHT = 120;
  const REFUSED = {
    401: "you are no longer signed in: reload the page",
    403: "you no longer have permission to see this",
    421: "the broker no longer accepts this host name",
  };
  const note = document.getElementById("live-note");
  let drawn = [], last = null, timer = 0, isRefused = false;
  box.hidden = false;

  const text = (name, value) => { box.querySelector(`[data-rate="${name}"]`).textContent = value; };
  const shown = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });

  function grown(now, before, way) {
    let sum = 0;
    for (const [name, broker] of Object.entries(now.brokers)) {
      const old = before.brokers[name];
      // A broker that has restarted counts from 0 again.
      if (old && old.booted === broker.booted) sum += Math.max(broker[way] - old[way], 0);
    }
    return sum * 1000 / Math.max(now.timeMs - before.timeMs, 1);
  }

  function draw() {
    const end = drawn[drawn.length - 1].to;
    drawn = drawn.filter((each) => each.from >= end - SHOWN_MS);
    const most = 1.15 * Math.max(1, ...drawn.flatMap((each) => [each.in, each.out]));
    const x = (at) => (WIDTH - (end - at) * WIDTH / SHOWN_MS).toFixed(1);
    for (const way of ["in", "out"]) {
      const steps = drawn.map((each, index) => {
        const y = (HEIGHT - 1 - each[way] / most * (HEIGHT - 3)).toFixed(1);
        // Draw no line where values are missing.
        const isOn = index && drawn[index - 1].to === each.from;
        return `${isOn ? "" : `M${x(each.from)} ${y}`}L${x(each.to)} ${y}`;
      });
      box.querySelector(`path.${way}`).setAttribute("d", steps.join(""));
      text(way, shown(drawn[drawn.length - 1][way]));
    }
    text("most", `top line: ${shown(most)}/s`);
  }

  function rows(said) {
    for (const row of document.querySelectorAll("[data-broker]")) {
      const cells = said(row.dataset.broker);
      for (const cell of row.querySelectorAll("[data-is]")) cell.textContent = cells[cell.dataset.is] ?? "–";
      row.querySelector("[data-is=state]").className = cells.state === "serves" ? "good" : "warn";
    }
  }

  function tell(now) {
    const away = Object.values(now.away);
    note.textContent = (away.length ? `Without ${away.join(", ")}` : "Of all brokers") + ", every two seconds.";
    note.className = away.length ? "warn" : "note";
    rows((name) => now.brokers[name]?.cells ?? { state: name in now.away ? "does not answer" : "went" });
  }

  function tellNothing(why) {
    text("in", "–"); text("out", "–"); text("most", why);
    rows(() => ({ state: "not known" }));
    last = null;
  }

  async function look() {
    timer = 0;
    try {
      const asked = { cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN_MS) };
      const answer = await fetch(box.dataset.from, asked);
      if (answer.ok) {
        const now = await answer.json();
        if (last) {
          drawn.push({ from: last.timeMs, to: now.timeMs, in: grown(now, last, "in"), out: grown(now, last, "out") });
          draw();
        }
        tell(now);
        last = now;
      } else {
        isRefused = answer.status in REFUSED;
        tellNothing(REFUSED[answer.status] ?? "no broker answers");
      }
    } catch {
      tellNothing("the broker does not answer");
    }
    if (!document.hidden && !timer && !isRefused) timer = setTimeout(look, EVERY_MS);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); timer = 0; last = null; } else if (!timer && !isRefused) look();
  });
  if (!document.hidden) look();
})();
