// What makes an entry of the audit trail proven, step by step, for the page "Prove". As tlog.js,
// it touches no page; it reads the relay's files by a function that it is given.
import * as t from "./tlog.js";

const decode = bytes => new TextDecoder("utf-8", { fatal: true }).decode(bytes);
const fail = message => { throw new Error(message); };

// Steps are told one after the other; after one that does not hold, no other is tried.
class Steps {
  constructor(tell) { this.tell = tell; this.failed = false; }

  async take(name, work) {
    if (this.failed) return this.tell({ name, state: "skipped", detail: "not checked, since a step before does not hold" });
    try {
      this.tell({ name, state: "good", detail: await work() });
    } catch (e) {
      this.failed = true;
      this.tell({ name, state: "bad", detail: e.message });
    }
  }
}

// Logs are the generations of a trail, each a log of its own.
class Logs {
  constructor(list, files, policy) {
    this.list = list.map(l => ({ ...l, base: t.baseOf(l.origin) }));
    this.files = files;
    this.policy = policy;
    this.opened = new Map();
    this.notes = new Map();
  }

  of(index) {
    const i = this.list.findLastIndex(l => l.base <= index);
    return i < 0 ? fail("no log of the trail has such an entry") : i;
  }

  // log opens a generation: its checkpoint under a key that is trusted, and its tree.
  log(i) {
    if (!this.opened.has(i)) this.opened.set(i, this.open(i));
    return this.opened.get(i);
  }

  note(i) {
    if (!this.notes.has(i)) this.notes.set(i, this.files(`${this.list[i].number}/checkpoint`).then(decode));
    return this.notes.get(i);
  }

  async open(i) {
    let why;
    try { return await this.with(i, await t.open(await this.note(i), this.policy), "by a trusted key"); } catch (e) { why = e; }
    if (this.list.length === 1) throw why;
    // Another key may have been named by the key before it, or by the one after it.
    for (const [step, end, follow] of [[-1, -1, "after"], [1, this.list.length, "before"]]) {
      for (let j = i + step; j !== end; j += step) {
        if (await t.open(await this.note(j), this.policy).then(() => true, () => false)) return this[follow](i, await this.log(i + step));
      }
    }
    throw why;
  }

  async with(i, checkpoint, how) {
    if (checkpoint.origin !== this.list[i].origin) fail(`the checkpoint is of ${checkpoint.origin}, and the list of logs says ${this.list[i].origin}`);
    const tree = new t.Tree(checkpoint, path => this.files(`${this.list[i].number}/${path}`));
    await tree.check();
    return { checkpoint, tree, how };
  }

  // after opens a generation whose key a signed entry at the end of the one before has named.
  async after(i, before) {
    const { size, origin } = before.checkpoint, note = await this.note(i);
    for (const leaf of (await before.tree.bundle(size - 1)).reverse()) {
      const entry = JSON.parse(decode(leaf));
      if (entry.type !== "trail.key_rotated" || !entry.detail.key) continue;
      const key = await t.renamed(await t.parseKey(entry.detail.key), t.parseCheckpoint(note).origin);
      const checkpoint = await t.openAs(note, key).catch(() => null);
      if (!checkpoint) continue;
      const made = await this.with(i, checkpoint, `by a key that ${origin} has named before it ended`);
      const said = (await opening(made)).previous;
      if (said.origin !== origin || said.size !== size || said.root !== t.base64(before.checkpoint.root)) fail(`its first entry names another end of ${origin}: one of the two was replaced`);
      return made;
    }
    fail("its key is none of the trusted ones, and the log before does not name it: the old key was lost, or somebody else signs");
  }

  // before opens a generation whose end the first entry of the next one names.
  async before(i, after) {
    const said = (await opening(after)).previous, note = await this.note(i);
    if (said.origin !== this.list[i].origin) fail(`the log after it names ${said.origin} before it, not ${this.list[i].origin}`);
    const checkpoint = await t.openAs(note, await t.parseKey(said.public_key));
    if (checkpoint.size !== said.size || t.base64(checkpoint.root) !== said.root) fail("the log after it names another end of it: it was changed since");
    return this.with(i, checkpoint, `by a key that ${after.checkpoint.origin} names in its first entry`);
  }
}

async function opening(log) {
  const first = JSON.parse(decode(await log.tree.record(0)));
  return first.type === "trail.generation" && first.detail.previous ? first.detail : fail("its first entry does not name the log before");
}

// compare holds a log against the checkpoint of it that this browser saw last.
async function compare(log, was) {
  const { origin, size } = log.checkpoint;
  if (size < was.size) fail(`${origin} went back: this browser has seen ${was.size} entries, and now there are ${size}`);
  if (t.base64(await log.tree.rootAt(was.size)) !== was.root) fail(`${origin} has forked: its first ${was.size} entries are not those that this browser has seen`);
}

// proveEntry checks an entry, and all that this browser has seen of the trail before. It tells
// each step, and gives what it has proven. The keys of seen are origins of logs.
export async function proveEntry(index, { files, policy, seen }, tell) {
  const steps = new Steps(tell), now = {};
  let logs, log, record, i;
  await steps.take("The list of logs", async () => {
    logs = new Logs(JSON.parse(decode(await files(""))), files, policy);
    i = logs.of(index);
    const gone = Object.keys(seen).filter(origin => !logs.list.some(l => l.origin === origin));
    if (gone.length) fail(`the log ${gone[0]}, which this browser has seen with ${seen[gone[0]].size} entries, is not there any more`);
    return `Entry ${index} belongs to ${logs.list[i].origin}, log ${i + 1} of ${logs.list.length}.`;
  });
  await steps.take("The log's signature, and the tree's edge", async () => {
    log = await logs.log(i);
    const { size, time, key } = log.checkpoint;
    if (index - logs.list[i].base >= size) fail(`the newest checkpoint covers the entries up to ${logs.list[i].base + size - 1}: this one is not signed yet`);
    return `${size} entries were signed ${log.how}, ${key.vkey}, at ${time.toISOString()}.`;
  });
  await steps.take("The witnesses", async () => {
    for (const n of new Set([i, logs.list.length - 1])) await t.cosigned((await logs.log(n)).checkpoint, policy);
    const by = await t.cosigned(log.checkpoint, policy);
    return policy.quorum ? `Enough have signed it: ${by.join(", ")}.` : "The trusted keys ask for none.";
  });
  await steps.take("What this browser saw before", async () => {
    const newest = logs.list.length - 1, known = logs.list.flatMap((l, n) => seen[l.origin] ? [n] : []);
    for (const n of new Set([i, newest, ...known])) {
      const { checkpoint } = await logs.log(n), was = seen[checkpoint.origin];
      if (was) await compare(await logs.log(n), was);
      now[checkpoint.origin] = { size: checkpoint.size, root: t.base64(checkpoint.root) };
    }
    return known.length ? `All of it still stands: ${known.map(n => `${seen[logs.list[n].origin].size} entries of ${logs.list[n].origin}`).join(", ")}.`
      : "Nothing: this is its first look at this trail. From now on it notices if anything is taken back.";
  });
  await steps.take("The entry", async () => {
    record = await log.tree.record(index - logs.list[i].base);
    return `Its ${record.length} bytes have the hash that stands in the signed tree.`;
  });
  return { ok: !steps.failed, record: steps.failed ? null : decode(record), seen: now };
}

// checkProof checks a .tlog-proof of a record, of which the index may be known, without a request.
export async function checkProof({ proof, record, index }, { policy, seen }, tell) {
  const steps = new Steps(tell);
  let p, c;
  await steps.take("The proof's signature", async () => {
    p = t.parseProof(proof);
    c = await t.open(p.checkpoint, policy);
    return `${c.size} entries were signed by ${c.key.vkey} at ${c.time.toISOString()}.`;
  });
  await steps.take("The witnesses", async () => {
    const by = await t.cosigned(c, policy);
    return policy.quorum ? `Enough have signed it: ${by.join(", ")}.` : "The trusted keys ask for none.";
  });
  await steps.take("What this browser saw before", async () => {
    const was = seen[c.origin];
    if (was && was.size === c.size && was.root !== t.base64(c.root)) fail(`${c.origin} has forked: this browser has seen another tree of ${c.size} entries`);
    return was && was.size === c.size ? "The same tree." : "Not compared: without the log's tiles only a tree of the same size can be.";
  });
  await steps.take("The entry", async () => {
    const at = t.baseOf(c.origin) + p.index, bytes = t.bytesOf(record ?? fail("there is no entry with this proof: add INDEX.json too"));
    if (index !== undefined && index !== at) fail(`the proof is of entry ${at}, not of ${index}`);
    if (!await t.inTree(p.path, c.size, c.root, p.index, await t.leafHash(await t.leafOf(bytes)))) fail(`it is not entry ${at} of the signed tree`);
    return `It is entry ${at}: its ${bytes.length} bytes lead to the signed root.`;
  });
  return { ok: !steps.failed, record: steps.failed ? null : record };
}

// sorted puts files into cases to check: proofs with their entries, and bundles of events. A
// file's name tells what belongs together, 17.tlog-proof and 17.json; of one of each, all do.
export async function sorted(files) {
  const cases = [], proofs = [], records = [];
  for (const { name, text } of (await Promise.all(files.map(f => f.bytes ? unpacked(f) : [f]))).flat()) {
    const json = text.trimStart().startsWith("{") ? JSON.parse(text) : null, stem = name.replace(/\.[^.]*$/, "");
    if (json?.format === "auditrelay.event-proof/1") cases.push({ name, bundle: text });
    else if (json) records.push({ stem, record: t.recordOf(text), index: (json.trail || json.data?.trail)?.index });
    else if (text.startsWith("c2sp.org/tlog-proof@")) proofs.push({ name, stem, proof: text });
    else if (!/^(#|log )/.test(text)) fail(`${name || "the text"} is none of an entry, an event, a .tlog-proof and a bundle`);
  }
  for (const p of proofs) cases.push({ ...records.find(r => r.stem === p.stem || records.length === 1 && proofs.length === 1), ...p });
  if (records.length && !proofs.length) fail("an entry alone proves nothing: add its .tlog-proof, as 'auditrelay trail prove' writes it");
  return cases;
}

// check checks a case of sorted.
export async function check(one, trust, tell) {
  if (!one.bundle) return checkProof(one, trust, tell);
  const steps = new Steps(tell);
  let e;
  await steps.take("The event", async () => {
    e = await t.eventProof(one.bundle);
    return `The event ${e.id}, received at ${e.received}, is in the span of entry ${e.index}.`;
  });
  if (steps.failed) return { ok: false };
  const made = await checkProof({ proof: e.proof || "", record: e.entry, index: e.index }, trust, tell);
  return { ok: made.ok, record: made.ok ? JSON.parse(one.bundle).cloud_event : null };
}

// mostBytes bounds a file to check, and all of what an archive holds: few bytes may unpack to very many.
export const mostBytes = 64 << 20;

// unpacked reads the files of a zip archive, such as the console's export of proofs; a file of
// another kind is itself. The list of the files stands at the end.
async function unpacked({ name, bytes }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), files = [];
  if (bytes.length < 22 || view.getUint32(0, true) !== 0x04034b50) return [{ name, text: decode(bytes) }];
  let end = bytes.length - 22, total = 0;
  const bounded = () => new TransformStream({ transform(piece, out) {
    if ((total += piece.length) > mostBytes) fail("the archive is larger than this page reads");
    out.enqueue(piece);
  } });
  while (view.getUint32(end, true) !== 0x06054b50) if (--end < 0) fail("the archive is damaged");
  for (let n = view.getUint16(end + 10, true), at = view.getUint32(end + 16, true); n > 0; n--) {
    const [size, , nameLength, extra, comment] = [20, 24, 28, 30, 32].map((o, i) => i < 2 ? view.getUint32(at + o, true) : view.getUint16(at + o, true));
    const local = view.getUint32(at + 42, true), from = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const method = view.getUint16(at + 10, true), data = new Blob([bytes.slice(from, from + size)]).stream();
    const plain = method === 8 ? data.pipeThrough(new DecompressionStream("deflate-raw")) : data;
    const out = new Uint8Array(await new Response(plain.pipeThrough(bounded())).arrayBuffer());
    files.push({ name: decode(bytes.slice(at + 46, at + 46 + nameLength)), text: decode(out) });
    at += 46 + nameLength + extra + comment;
  }
  return files;
}
