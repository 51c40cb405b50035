"""The style sheet of our pages (reports, the console), for light and dark screens and for paper."""

CSS = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2330; --muted: #667085; --line: #e4e7ec;
  --track: #eef0f4; --s1: #3568d4; --s2: #e08a1e; --s3: #2f9e78; --s4: #c2477f; --s5: #7a5bd0;
  --s6: #2b9fc4; --s7: #a3acba; --warn: #b54708; }
@media (prefers-color-scheme: dark) { :root {
  --page: #11151c; --card: #1a202b; --ink: #e6e9ef; --muted: #98a2b3; --line: #2c3442;
  --track: #252d3a; --s1: #6f9bf5; --s2: #f0a94b; --s3: #55c49b; --s4: #e377a8; --s5: #a68cf0;
  --s6: #5fc3e4; --s7: #667085; --warn: #fdb022; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 0; }
p { margin: 2px 0 0; }
.sub, .note, th { color: var(--muted); }
.note { font-size: 13.5px; margin-bottom: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 24px 0 16px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 14px 16px; }
.tile b { display: block; font-size: 25px; line-height: 1.25; font-weight: 650;
  letter-spacing: -.01em; white-space: nowrap; }
.tile span { color: var(--muted); font-size: 13px; }
section { padding: 20px 22px 16px; margin-bottom: 16px; }
.plot { overflow-x: auto; }
.plot + .scroll { margin-top: 18px; }
svg { display: block; width: 100%; min-width: 600px; height: auto; overflow: visible;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { font-weight: 500; font-size: 13px; text-align: left; padding: 4px 14px 6px 0;
  border-bottom: 1px solid var(--line); }
td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
td:first-child { overflow-wrap: anywhere; }
.share { width: 26%; min-width: 110px; }
.track { display: block; height: 9px; border-radius: 5px; background: var(--track); }
.track i { display: block; height: 9px; border-radius: 5px; background: var(--s1);
  min-width: 3px; }
.none { color: var(--muted); font-style: italic; }
.warn { color: var(--warn); font-weight: 600; }
details { margin-top: 10px; }
summary { cursor: pointer; color: var(--muted); font-size: 13.5px; }
footer { color: var(--muted); font-size: 13px; margin-top: 24px; }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (max-width: 640px) { .wide { display: none; } main { padding: 20px 10px; }
  section { padding: 16px 14px; } }
@media print { body { background: none; } section { break-inside: avoid; } }
"""
