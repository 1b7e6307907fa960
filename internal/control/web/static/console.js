// htmx in its eval-free mode: whatever in a page asks it to compile text (hx-on, hx-vals="js:…",
// filters of triggers) fails. The content security policy forbids it too.
htmx.registerExtension("eval-free", {
  init: api => {
    const refuse = function () { throw new Error("the console compiles no text of a page"); };
    api.initSecurity(null, refuse, refuse);
  },
});

// A page says so while the stream that it follows is interrupted. A stream that has begun is tried again by
// its extension, and the first request here.
const says = lost => e => {
  const note = e.target.querySelector?.(".lost");
  if (note) note.hidden = !lost;
};
document.addEventListener("htmx:sse:before:connection", says(true));
document.addEventListener("htmx:sse:after:connection", says(false));
for (const event of ["htmx:error", "htmx:response:error"]) {
  document.addEventListener(event, says(true));
  document.addEventListener(event, e => setTimeout(() => htmx.trigger(e.target, "again"), 3000));
}
