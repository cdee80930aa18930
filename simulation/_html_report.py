"""An HTML report with the plot and the table of simulations, in one file."""

from typing import Any, Dict, Sequence

import html
import json

from ._plot import Named, outline, render, style
from ._summary_table import COLUMNS, cells, notes

_POINTS = 3000  # per policy; more points are shown as ranges
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }}
#picture {{ position: relative; }}
#picture svg {{ width: 100%; height: auto; display: block; }}
#line {{ position: absolute; border-left: 1px solid #888; pointer-events: none; display: none; }}
#tip {{ position: absolute; background: #fff; border: 1px solid #aaa; padding: .4rem .6rem; font-size: 13px;
  pointer-events: none; display: none; white-space: nowrap; box-shadow: 0 1px 4px #0003; }}
table {{ border-collapse: collapse; margin-top: 1.5rem; }}
th, td {{ padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
.swatch {{ display: inline-block; width: .8em; height: .8em; margin-right: .5em; }}
</style>
</head>
<body>
<h1>{title}</h1>
<div id="picture">
{picture}
<div id="line"></div><div id="tip"></div>
</div>
<table>
<tr>{head}</tr>
{rows}
</table>
{notes}
<script>
const data = {data};
const picture = document.getElementById("picture"), line = document.getElementById("line");
const tip = document.getElementById("tip");
const text = scale => scale.toLocaleString(undefined, {{maximumSignificantDigits: 9}});
function scaleAt(series, step) {{
  let low = 0, high = series.steps.length - 1;
  while (low < high) {{
    const middle = (low + high + 1) >> 1;
    if (series.steps[middle] <= step) low = middle; else high = middle - 1;
  }}
  const from = text(series.lowest[low]), to = text(series.highest[low]);
  return from === to ? from : from + " to " + to;
}}
picture.addEventListener("mousemove", event => {{
  const box = picture.getBoundingClientRect();
  const share = ((event.clientX - box.left) / box.width - data.left) / (data.right - data.left);
  const step = Math.round(data.first + share * (data.last - data.first));
  const inside = step >= 0 && step < data.count;
  line.style.display = tip.style.display = inside ? "block" : "none";
  if (!inside) return;
  const x = event.clientX - box.left;
  line.style.left = x + "px";
  line.style.top = data.top * box.height + "px";
  line.style.height = (data.bottom - data.top) * box.height + "px";
  tip.replaceChildren();
  const first = document.createElement("div");
  first.textContent = "step " + step.toLocaleString();
  tip.append(first);
  for (const series of data.series) {{
    if (step >= series.count) continue;
    const row = document.createElement("div"), swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = series.color;
    row.append(swatch, series.label + ": " + scaleAt(series, step));
    tip.append(row);
  }}
  const right = x > box.width / 2;
  tip.style.left = right ? "" : x + 12 + "px";
  tip.style.right = right ? box.width - x + 12 + "px" : "";
  tip.style.top = event.clientY - box.top + 12 + "px";
}});
picture.addEventListener("mouseleave", () => {{ line.style.display = tip.style.display = "none"; }});
</script>
</body>
</html>
"""


def html_report(simulations: Sequence[Named], title: str) -> str:
    """Return the report as HTML; pointing at the plot shows the loss scales of a step."""
    picture, (left, right, top, bottom) = render(simulations, "", "svg")
    svg = picture.decode("utf-8")
    steps = max([simulation.steps for _, simulation in simulations] or [1])
    data: Dict[str, Any] = {"left": left, "right": right, "top": top, "bottom": bottom, "count": steps}
    data.update(first=-0.005 * steps, last=1.005 * steps, series=[_series(*each) for each in enumerate(simulations)])
    return _PAGE.format(
        title=html.escape(title or "Loss scales"),
        picture=svg[svg.index("<svg") :],
        head="".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS),
        rows="\n".join(_row(number, named) for number, named in enumerate(simulations)),
        notes="\n".join(f"<p>{html.escape(note)}</p>" for note in notes(simulations)),
        data=json.dumps(data).replace("<", "\\u003c"),  # so that a label can't end the script
    )


def _series(number: int, named: Named) -> Dict[str, Any]:
    label, simulation = named
    points = outline(simulation, _POINTS)
    return {
        "label": label,
        "color": style(number)[0],
        "count": simulation.steps,
        "steps": points.steps.tolist(),
        "lowest": points.lowest.tolist(),
        "highest": points.highest.tolist(),
    }


def _row(number: int, named: Named) -> str:
    first, *others = cells(*named)
    swatch = f'<span class="swatch" style="background:{style(number)[0]}"></span>'
    return (
        f"<tr><td>{swatch}{html.escape(first)}</td>" + "".join(f"<td>{html.escape(c)}</td>" for c in others) + "</tr>"
    )
