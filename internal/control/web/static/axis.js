// A cursor on an axis of time. It says what the table of the axis has at its place. The arrow keys move
// it from one change to the next, and a click puts it there.
for (const axis of document.querySelectorAll("[data-axis]")) {
  const slider = axis.querySelector("input"), says = axis.querySelector(".cursor-says");
  const from = Number(axis.dataset.from), until = Number(axis.dataset.until);
  const rows = Array.from(document.querySelectorAll(`#${axis.dataset.axis} tbody tr`), row => ({
    from: Number(row.dataset.from), until: Number(row.dataset.until), text: textOf(row),
  }));
  const stops = [...new Set(rows.flatMap(r => [r.from, r.until]).concat(from, until))].filter(t => t >= from && t <= until).sort((a, b) => a - b);
  const pins = Array.from(axis.querySelectorAll("svg"), svg => {
    const pin = document.createElementNS("http://www.w3.org/2000/svg", "line");
    pin.setAttribute("class", "pin");
    pin.setAttribute("y1", 0);
    pin.setAttribute("y2", 20);
    svg.append(pin);
    svg.addEventListener("click", e => {
      const box = svg.getBoundingClientRect();
      move(from + (until - from) * (e.clientX - box.left) / box.width);
    });
    return pin;
  });

  function textOf(row) {
    const heads = row.closest("table").tHead.rows[0].cells;
    const name = row.querySelector("th")?.textContent;
    return Array.from(row.cells).filter(c => c.tagName === "TD" && c.textContent && !c.querySelector("time"))
      .map(c => `${name ?? heads[c.cellIndex].textContent}: ${c.textContent.trim()}`).join("; ");
  }

  function move(to) {
    slider.value = to;
    const at = Number(slider.value);
    const here = rows.filter(r => r.from === at || r.from < at && (at < r.until || at === until && r.until === until)).map(r => r.text);
    const time = new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
    says.textContent = `${time}: ${here.join("; ") || "nothing"}`;
    slider.setAttribute("aria-valuetext", says.textContent);
    for (const pin of pins) {
      for (const x of ["x1", "x2"]) pin.setAttribute(x, 1000 * (at - from) / (until - from));
    }
  }

  slider.addEventListener("input", () => move(slider.value));
  slider.addEventListener("keydown", e => {
    const at = Number(slider.value);
    let to;
    if (e.key === "ArrowRight" || e.key === "ArrowUp") to = stops.find(t => t > at);
    else if (e.key === "ArrowLeft" || e.key === "ArrowDown") to = stops.findLast(t => t < at);
    else return;
    e.preventDefault();
    move(to ?? at);
  });
  slider.closest("[hidden]").hidden = says.hidden = false;
  move(until);
}
