// htmx in its eval-free mode: whatever in a page asks it to compile text (hx-on, hx-vals="js:…",
// filters of triggers) fails. The content security policy forbids it too.
htmx.registerExtension("eval-free", {
  init: api => {
    const refuse = function () { throw new Error("the console compiles no text of a page"); };
    api.initSecurity(null, refuse, refuse);
  },
});

// A page says so while the stream that it follows is interrupted.
for (const [event, lost] of [["htmx:sse:before:connection", true], ["htmx:sse:after:connection", false]]) {
  document.addEventListener(event, e => {
    const note = e.target.querySelector?.(".lost");
    if (note) note.hidden = !lost;
  });
}
