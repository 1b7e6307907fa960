// Holds the scripts of the page Prove against a trail that the test has made: node prove.mjs DIR SEED CASES
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { webcrypto } from "node:crypto";
globalThis.crypto ??= webcrypto;
const t = await import("../static/tlog.js");
const trail = await import("../static/trail.js");

const [dir, seed, cases] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const read = name => readFileSync(join(dir, name), "utf8");
const json = name => JSON.parse(read(name));
const bad = [];
const must = (holds, what) => { if (!holds) bad.push(what); };

let state = seed * 2654435761 % 4294967296;
const random = n => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return Math.floor(state / 4294967296 * n); };

// serve reads the files as the relay serves them. alter may change one on its way.
const serve = (alter, log) => async path => {
  let bytes;
  if (path === "") {
    bytes = new TextEncoder().encode(JSON.stringify(readdirSync(join(dir, "tlog")).sort().map(n => ({ number: Number(n), origin: read(`tlog/${n}/checkpoint`).split("\n")[0] }))));
  } else {
    try { bytes = new Uint8Array(readFileSync(join(dir, "tlog", path))); } catch {
      const [, whole, w] = /^(.*)\.p\/(\d+)$/.exec(path) || [];
      if (!whole) throw new Error(`${path} is not there`);
      bytes = widest(whole, Number(w), path);
    }
  }
  log?.push(path);
  return alter ? alter(path, bytes) : bytes;
};

// widest cuts a narrower tile or bundle from a wider one, as the relay does.
function widest(whole, w, path) {
  let bytes;
  try { bytes = new Uint8Array(readFileSync(join(dir, "tlog", whole))); } catch {
    const names = readdirSync(join(dir, "tlog", `${whole}.p`)).map(Number).filter(n => n >= w).sort((a, b) => a - b);
    bytes = new Uint8Array(readFileSync(join(dir, "tlog", `${whole}.p`, String(names[0]))));
  }
  if (!path.includes("entries")) return bytes.slice(0, 32 * w);
  let at = 0;
  for (let i = 0; i < w; i++) at += 2 + bytes[at] * 256 + bytes[at + 1];
  return bytes.slice(0, at);
}

async function prove(index, policy, seen, files) {
  const steps = [];
  const made = await trail.proveEntry(index, { files, policy, seen }, s => steps.push(s));
  const why = steps.filter(s => s.state === "bad").map(s => `${s.name}: ${s.detail}`).join("; ");
  return { ...made, steps, why };
}

const first = await t.parsePolicy(read("first.policy")), newest = await t.parsePolicy(read("newest.policy")), seen = json("seen.json");

// What is sound holds, under the first key and under the newest one, in both generations.
for (const policy of [first, newest]) for (const index of [0, 3, 49, 255, 256, 599, 655, 700, 860]) {
  const made = await prove(index, policy, seen, serve());
  must(made.ok, `entry ${index} does not hold: ${made.why}`);
  must(!made.ok || JSON.parse(made.record).type, `entry ${index} is none`);
  must(Object.keys(made.seen).length === 2, "it does not keep what it has seen");
}
must((await prove(3, first, {}, serve())).ok, "a first look does not hold");

// What is too much, or of another trail, does not.
const red = async (what, index, policy, before, files, words) => {
  const made = await prove(index, policy, before, files);
  must(!made.ok && made.why.includes(words), `${what}: ${made.ok ? "it holds" : made.why}`);
  must(made.ok || made.record === null, `${what}: it shows what it has not proven`);
};
const origins = Object.keys((await prove(3, first, {}, serve())).seen);
await red("an entry after the end", 5000, first, seen, serve(), "not signed yet");
await red("a log that went back", 3, first, { [origins[0]]: { size: 10_000, root: seen[origins[0]].root } }, serve(), "went back");
await red("a log that forked", 3, first, { [origins[0]]: { ...seen[origins[0]], root: t.base64(new Uint8Array(32)) } }, serve(), "forked");
await red("a log that is gone", 3, first, { ...seen, "example.com/trail/from-9": { size: 1, root: "" } }, serve(), "not there any more");
await red("the trail before the rotation", 3, first, (await prove(3, first, seen, serve())).seen, serve((path, bytes) => path === "" ? new TextEncoder().encode(JSON.stringify(JSON.parse(new TextDecoder().decode(bytes)).slice(0, 1))) : bytes), "not there any more");
const other = await t.parsePolicy(read("first.policy").replace(/log \S+/, `log ${(await t.renamed(first.witnesses[0].key, "example.com/trail")).vkey}`));
await red("another key", 3, other, seen, serve(), "has not signed");
await red("another key, after the rotation", 860, other, seen, serve(), "has not signed");
const both = await t.parsePolicy(read("first.policy").replace(/group .*/, "").replace("quorum the-quorum", `witness v ${(await t.renamed(first.logs[0], "v.example.com")).vkey}\ngroup g all w v\nquorum g`));
await red("a quorum that is not there", 3, both, seen, serve(), "no quorum");

// A witness counts once, however often a policy names it, and not with a time that is none.
const throws = async (what, words, f) => {
  try { await f(); } catch (e) { return must(e.message.includes(words), `${what}: ${e.message}`); }
  must(false, `${what}: it is taken`);
};
const policyText = read("first.policy").replace(/(group|quorum) .*\n/g, ""), w = first.witnesses[0].key;
await throws("a witness's key twice", "another line has the public key", async () => t.parsePolicy(`${policyText}witness v ${(await t.renamed(w, "v.example.com")).vkey}\ngroup g all w v\nquorum g\n`));
await throws("a witness in two groups", "in a group twice", () => t.parsePolicy(`${policyText}group g any w\ngroup h any w\nquorum h\n`));
const pair = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]), public32 = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
const late = await t.renamed({ type: 4, bytes: public32 }, "late.example.com"), signed = t.parseCheckpoint(read("tlog/0/checkpoint"));
for (const [time, counts] of [[0n, true], [253402300799n, true], [253402300800n, false], [2n ** 63n, false], [2n ** 64n - 1n, false]]) {
  const signature = new Uint8Array(await crypto.subtle.sign("Ed25519", pair.privateKey, t.bytesOf(`cosignature/v1\ntime ${time}\n${signed.text}`)));
  const bytes = new Uint8Array(72);
  new DataView(bytes.buffer).setBigUint64(0, time);
  bytes.set(signature, 8);
  const c = { ...signed, signatures: [...signed.signatures, { name: late.name, id: late.id, bytes }] };
  const policy = need => t.parsePolicy(`${policyText}witness late ${late.vkey}\ngroup g ${need} w late\nquorum g\n`);
  must((await t.cosigned(c, await policy("any"))).length === (counts ? 2 : 1), `a cosignature at ${time} counts, or spoils the others`);
  if (!counts) await throws(`a cosignature at ${time}`, "no quorum", async () => t.cosigned(c, await policy("all")));
}

// Whatever is altered on its way turns it red, and nothing is shown.
const found = {};
for (let i = 0; i < cases; i++) {
  const index = [3, 49, 255, 300, 655, 700][random(6)], policy = random(2) ? first : newest, read = [];
  await prove(index, policy, seen, serve(null, read));
  const files = [...new Set(read)].filter(path => path !== ""), target = files[random(files.length)];
  const altered = bytes => {
    const made = new Uint8Array(bytes), at = random(made.length), kind = random(5);
    if (kind === 0) { made[at] ^= 1 << random(8); return made; }
    if (kind === 1) return made.slice(0, at);
    if (kind === 2) return Uint8Array.from([...made.slice(0, at), random(256), ...made.slice(at)]);
    if (kind === 3) return Uint8Array.from([...made.slice(0, at), ...made.slice(at + 1)]);
    return made.length > 64 ? Uint8Array.from([...made.slice(32, 64), ...made.slice(0, 32), ...made.slice(64)]) : made.reverse();
  };
  let same = true, last = "";
  // Of another generation than the entry's and the newest, only what the log itself signs counts.
  const counts = bytes => target === "0/checkpoint" && index >= 600 ? new TextDecoder().decode(bytes).split("\n").filter(l => !l.startsWith("—") || l.includes("example.com/trail ")).join("\n").trim() : null;
  const { ok, record } = await prove(index, policy, seen, serve((path, bytes) => {
    if (path !== target) return bytes;
    const made = altered(bytes);
    last = JSON.stringify(new TextDecoder().decode(made));
    same &&= t.equal(made, bytes) || counts(made) !== null && counts(made) === counts(bytes);
    return made;
  }));
  const kind = target.includes("entries") ? "bundles" : target.includes("tile") ? "tiles" : target.includes("records") ? "records" : "checkpoints";
  if (same) { i--; continue; }
  must(!ok && record === null, `case ${i} of entry ${index}: an altered ${target} is not found${target.endsWith("checkpoint") ? `: ${last}` : ""}`);
  found[kind] = (found[kind] || 0) + 1;
}

// The same offline: proofs, and a bundle of an event.
const check = async (files, policy = first) => {
  const steps = [];
  try {
    const made = await Promise.all((await trail.sorted(files)).map(one => trail.check(one, { policy, seen }, s => steps.push(s))));
    return { ok: made.length > 0 && made.every(m => m.ok), why: steps.map(s => `${s.state} ${s.name}: ${s.detail}`).join("; ") };
  } catch (e) { return { ok: false, why: e.message }; }
};
const file = name => ({ name, text: read(name) });
for (const index of [3, 49]) {
  const made = await check([file(`${index}.json`), file(`${index}.tlog-proof`)]);
  must(made.ok, `the proof of ${index} does not hold: ${made.why}`);
}
must((await check(["3.json", "3.tlog-proof", "49.json", "49.tlog-proof"].map(file))).ok, "several proofs do not hold");
must((await check([{ name: "proofs.zip", bytes: new Uint8Array(readFileSync(join(dir, "proofs.zip"))) }])).ok, "an export of proofs does not hold");
const bomb = await check([{ name: "bomb.zip", bytes: new Uint8Array(readFileSync(join(dir, "bomb.zip"))) }]);
must(!bomb.ok && bomb.why.includes("larger than this page reads"), `an archive that unpacks to very much is read: ${bomb.why}`);
must(process.memoryUsage().rss < 700 << 20, "an archive is unpacked before it is found to be too large");
must((await check(["655.json", "655.tlog-proof"].map(file), newest)).ok, "a proof under the newest key does not hold");
must(!(await check(["655.json", "655.tlog-proof"].map(file))).ok, "a proof under a key that is not trusted holds");
must(!(await check([file("3.tlog-proof")])).ok, "a proof without its entry holds");
must(!(await check([file("3.json")])).ok, "an entry without its proof holds");
must(!(await check([{ ...file("49.json"), name: "3.json" }, file("3.tlog-proof")])).ok, "the proof of another entry holds");
const event = JSON.stringify({ ...json("3.json"), trail: { index: 3, leaf: "" } });
must((await check([{ name: "", text: event }, { name: "", text: read("3.tlog-proof") }])).ok, "an event with its proof does not hold");
const span = await check([file("bundle.json")], newest);
must(span.ok, `the bundle of an event does not hold: ${span.why}`);
for (const more of ['"cloud_event":"{}",', '"entry_index":1,', '"note":"",', `"\\u0063loud_event":${JSON.stringify(json("bundle.json").cloud_event)},`]) {
  const made = await check([{ name: "bundle.json", text: read("bundle.json").replace("{", `{${more}`) }], newest);
  must(!made.ok && made.why.includes("twice, or should not"), `a bundle with one more member, ${more}: ${made.why || "it holds"}`);
}
for (let i = 0; i < cases; i++) {
  const name = ["3.json", "3.tlog-proof", "bundle.json"][random(3)], bytes = new TextEncoder().encode(read(name));
  const at = random(bytes.length);
  bytes[at] ^= 1 << random(7);
  const text = new TextDecoder().decode(bytes), rest = name === "bundle.json" ? [] : [file(name === "3.json" ? "3.tlog-proof" : "3.json")];
  const made = await check([{ name, text }, ...rest], name === "bundle.json" ? newest : first);
  let same = false; // JSON may be spelled in other ways, and mean the same
  try { same = name === "bundle.json" && JSON.stringify(JSON.parse(text)) === JSON.stringify(json(name)); } catch { /* it is none */ }
  must(!made.ok || same, `case ${i}: byte ${at} of ${name} was altered unnoticed, "${read(name).slice(Math.max(0, at - 20), at + 20)}"`);
  found[name] = (found[name] || 0) + 1;
}

console.log(Object.entries(found).map(([kind, n]) => `${kind}: ${n} altered, all found`).join("\n"));
if (bad.length) {
  console.error(bad.slice(0, 20).join("\n"));
  process.exit(1);
}
