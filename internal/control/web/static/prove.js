// The page "Prove": the browser itself checks the trail, and keeps in its own storage whom it
// trusts and what it has seen. What is checked, and how, stands in trail.js and tlog.js.
import { parsePolicy, fingerprint } from "./tlog.js";
import { proveEntry, sorted, check, mostBytes } from "./trail.js";

const at = id => document.getElementById(id);
const storage = "auditrelay.trail";

// What this browser remembers: { policy, since, seen }. A person alone changes policy.
function remembered() {
  const kept = localStorage.getItem(storage);
  return kept ? JSON.parse(kept) : null;
}
const remember = kept => localStorage.setItem(storage, JSON.stringify(kept));

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", redirect: "error" });
  if (!answer.ok) throw new Error(`${path}: the relay answers ${answer.status}, ${(await answer.text()).slice(0, 200).trim()}`);
  return new Uint8Array(await answer.arrayBuffer());
}
const asText = async path => new TextDecoder().decode(await ask(path));

function make(tag, text, ...classes) {
  const e = document.createElement(tag);
  e.textContent = text;
  e.classList.add(...classes);
  return e;
}

// show is a text from outside: characters that would turn its direction are shown by their number.
function show(record) {
  let text = record;
  try { text = JSON.stringify(JSON.parse(record), null, 2); } catch { /* it is no JSON */ }
  const most = 100_000;
  if (text.length > most) text = text.slice(0, most) + `\n… and ${text.length - most} characters more, which were checked too`;
  return text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Result is where the steps of one check, its verdict, and what was proven stand.
class Result {
  constructor(within) {
    [this.verdict, this.steps, this.shown] = ["verdict", "steps", "shown"].map(c => within.querySelector(`.${c}`));
    this.steps.replaceChildren();
    this.say("", "Checking …");
  }

  say(state, text) {
    this.verdict.className = `verdict large ${state}`;
    this.verdict.textContent = text;
    this.shown.hidden = true;
  }

  tell = ({ name, state, detail }) => {
    const li = document.createElement("li"), words = { good: "holds", bad: "does not hold", skipped: "not checked" };
    li.append(make("span", words[state], "badge", state), make("strong", ` ${name}. `), make("bdi", detail));
    this.steps.append(li);
  };

  end({ ok, record }) {
    this.say(ok ? "good" : "bad", ok ? "Proven by this browser." : "Not proven. The first step that does not hold says why.");
    if (!ok || !record) return;
    this.shown.hidden = false;
    this.shown.querySelector("pre").textContent = show(record);
  }

  async run(work) {
    try { this.end(await work()); } catch (e) {
      this.tell({ name: "The check", state: "bad", detail: e.message });
      this.end({ ok: false });
    }
  }
}

// unable says why this browser cannot verify here; empty where it can.
async function unable() {
  if (!globalThis.crypto?.subtle) return "It cannot be verified here: browsers verify on HTTPS and on localhost only.";
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(32), { name: "Ed25519" }, false, ["verify"]);
    localStorage.getItem(storage);
  } catch (e) {
    return `It cannot be verified here: this browser has no Ed25519, or keeps nothing (${e.name}).`;
  }
  return "";
}

// trusted gives whom this browser trusts: at its first use those that the relay names.
async function trusted(tell, mayAsk) {
  let kept = remembered();
  if (!kept && !mayAsk) throw new Error("this browser trusts nobody yet: prove an entry first, or enter the trusted keys below");
  const first = !kept;
  kept ||= { policy: await asText("/prove/policy"), since: new Date().toISOString(), seen: {} };
  const policy = await parsePolicy(kept.policy);
  if (first) remember(kept);
  const keys = (await Promise.all(policy.logs.map(fingerprint))).join("; ");
  tell({
    name: "Whom this browser trusts", state: "good",
    detail: first ? `Nobody until now. It has pinned what the relay says, with the fingerprint ${keys}: compare it with one that you know by another way.` : `The key with the fingerprint ${keys}, pinned on ${kept.since.slice(0, 10)}.`,
  });
  return { policy, seen: kept.seen };
}

function proveOne(index) {
  const result = new Result(at("entry-result"));
  return result.run(async () => {
    const trust = await trusted(result.tell, true);
    const made = await proveEntry(index, { files: path => ask(`/tlog/${path}`), ...trust }, result.tell);
    const kept = remembered();
    if (made.ok) remember({ ...kept, seen: { ...kept.seen, ...made.seen } });
    await showTrust();
    return made;
  });
}

async function checkFiles() {
  const result = new Result(at("files-result"));
  await result.run(async () => {
    const large = Array.from(at("files").files).find(f => f.size > mostBytes);
    if (large) throw new Error(`${large.name} is larger than this page reads`);
    const files = await Promise.all(Array.from(at("files").files, async f => ({ name: f.name, bytes: new Uint8Array(await f.arrayBuffer()) })));
    // Several texts may be pasted one after the other: a proof begins with its first line.
    for (const text of at("pasted").value.split(/^(?=c2sp\.org\/tlog-proof@)/m)) {
      if (text.trim()) files.push({ name: "", text: text.startsWith("c2sp.org/") ? text : text.trim() });
    }
    const trust = await trusted(result.tell, false), cases = await sorted(files);
    if (!cases.length) throw new Error("there is nothing to check: paste something, or choose files");
    let ok = true, record = null;
    for (const one of cases) {
      const made = await check(one, trust, step => result.tell({ ...step, name: cases.length > 1 ? `${one.name}: ${step.name}` : step.name }));
      ok &&= made.ok;
      record = cases.length === 1 ? made.record : null;
    }
    return { ok, record };
  });
}

// showTrust shows what this browser remembers, and whether the relay names other keys now.
async function showTrust() {
  const kept = remembered(), list = at("trusted");
  list.replaceChildren();
  at("forget").hidden = !kept;
  if (!kept) return list.append(make("li", "Nobody yet. At the first proof it pins what the relay says."));
  const policy = await parsePolicy(kept.policy);
  for (const key of policy.logs) list.append(make("li", `The log's key ${key.vkey}, fingerprint ${await fingerprint(key)}`));
  for (const w of policy.witnesses) list.append(make("li", `The witness ${w.name}, ${w.key.vkey}`));
  for (const [origin, { size }] of Object.entries(kept.seen)) list.append(make("li", `It has seen ${size} entries of ${origin}.`));
  at("policy").value ||= kept.policy;
}

async function replaceTrust() {
  const said = at("trust-said");
  try {
    const text = at("policy").value.trim() + "\n";
    await parsePolicy(text);
    remember({ policy: text, since: new Date().toISOString(), seen: remembered()?.seen || {} });
    said.textContent = "This browser trusts these keys from now on.";
  } catch (e) { said.textContent = `These keys were not taken: ${e.message}.`; }
  await showTrust();
}

async function start() {
  const why = await unable();
  if (why) {
    for (const place of document.querySelectorAll(".verdict")) Object.assign(place, { textContent: why, className: "verdict large warn" });
    return;
  }
  for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
  at("check").addEventListener("submit", e => { e.preventDefault(); checkFiles(); });
  at("trust").addEventListener("submit", e => { e.preventDefault(); replaceTrust(); });
  at("forget").addEventListener("click", () => { localStorage.removeItem(storage); at("policy").value = ""; showTrust(); });
  at("entry").form.addEventListener("submit", e => {
    e.preventDefault();
    history.replaceState(null, "", `?entry=${at("entry").value}`);
    proveOne(Number(at("entry").value));
  });
  await showTrust();
  if (at("entry").value) await proveOne(Number(at("entry").value));
}

start();
