// Cursors on charts, which keys can move.

// pinOn draws the cursor into a picture. Where an event of a pointer is along it, from 0 to 1, is put there.
function pinOn(svg, height, event, put) {
  const pin = document.createElementNS("http://www.w3.org/2000/svg", "line");
  pin.setAttribute("class", "pin");
  pin.setAttribute("y2", height);
  svg.append(pin);
  svg.addEventListener(event, e => {
    const box = svg.getBoundingClientRect();
    put((e.clientX - box.left) / box.width);
  });
  return x => ["x1", "x2"].forEach(name => pin.setAttribute(name, x));
}

const timeOf = seconds => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

// The cursor of an axis says what its table has at its place. The arrow keys move it from one change to the
// next, and a click puts it there.
for (const axis of document.querySelectorAll("[data-axis]")) {
  const slider = axis.querySelector("input"), says = axis.querySelector(".cursor-says");
  const from = Number(axis.dataset.from), until = Number(axis.dataset.until);
  const rows = Array.from(document.querySelectorAll(`#${axis.dataset.axis} tbody tr`), row => ({
    from: Number(row.dataset.from), until: Number(row.dataset.until), text: textOf(row),
  }));
  const stops = [...new Set(rows.flatMap(r => [r.from, r.until]).concat(from, until))].filter(t => t >= from && t <= until).sort((a, b) => a - b);
  const pins = Array.from(axis.querySelectorAll("svg"), svg => pinOn(svg, 20, "click", at => move(from + (until - from) * at)));

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
    says.textContent = `${timeOf(at)}: ${here.join("; ") || "nothing"}`;
    slider.setAttribute("aria-valuetext", says.textContent);
    for (const pin of pins) pin(1000 * (at - from) / (until - from));
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

// The small pictures of rates have one cursor, which keys move by a minute, and so does a pointer over a
// picture. Each environment then says how many events arrived in that minute.
const minute = document.getElementById("minute");
const sparks = Array.from(document.querySelectorAll(".spark"), svg => {
  const numbers = svg.dataset.numbers.split(" ").map(Number), last = numbers.length - 1;
  const says = document.createElement("span");
  says.className = "small muted";
  svg.after(says);
  return { numbers, says, pin: pinOn(svg, 100, "pointermove", at => look(Math.round(last * at) - last)), name: svg.closest("li").querySelector("bdi").textContent };
});

function look(to) {
  minute.value = to;
  const at = Number(minute.value), time = timeOf(Number(minute.dataset.until) + (at - 1) * 60).slice(11, 16);
  let total = 0, most = { n: -1 };
  for (const { numbers, pin, says, name } of sparks) {
    const n = numbers.at(at - 1); // undefined before the first one
    total += n ?? 0;
    if (n > most.n) most = { n, name };
    pin(numbers.length - 1 + at);
    says.textContent = `${time} UTC: ${n ?? "unknown"} events`;
  }
  minute.setAttribute("aria-valuetext", `${time} UTC: ${total} events, most of them (${most.n}) of ${most.name}`);
}

if (sparks.length) {
  minute.min = 1 - Math.max(...sparks.map(s => s.numbers.length));
  minute.addEventListener("input", () => look(minute.value));
  minute.closest("[hidden]").hidden = false;
  look(0);
}
