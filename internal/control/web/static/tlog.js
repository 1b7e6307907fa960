// Verification of the audit trail: bytes in, verdicts out. It has no dependencies, touches no
// page and makes no request. Each format is one of C2SP (https://c2sp.org): signed-note,
// tlog-checkpoint, tlog-tiles, tlog-proof, tlog-policy, tlog-cosignature; the tree is that of
// RFC 6962. Every parser refuses another spelling than the format's own. An Error that a
// function throws says, for people, what does not hold.

const utf8 = new TextEncoder();
const text = bytes => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
const fail = message => { throw new Error(message); };

// Bytes.
export const bytesOf = s => utf8.encode(s);
export const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("");
export const base64 = bytes => btoa(Array.from(bytes, b => String.fromCharCode(b)).join(""));
export const equal = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);

function join(...parts) {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) { all.set(p, at); at += p.length; }
  return all;
}

function unbase64(s) {
  let raw;
  try { raw = Uint8Array.from(atob(s), c => c.charCodeAt(0)); } catch { fail("something is not base64"); }
  return base64(raw) === s ? raw : fail("something is not in the usual spelling of base64");
}

function hashOf64(s) {
  const raw = unbase64(s);
  return raw.length === 32 ? raw : fail("a hash has not 32 bytes");
}

function decimal(s) {
  const n = Number(s);
  return /^(0|[1-9]\d*)$/.test(s) && Number.isSafeInteger(n) ? n : fail(`"${s.slice(0, 40)}" is not a number that this page can count`);
}

export const sha256 = async bytes => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
export const leafHash = data => sha256(join([0], data)); // RFC 6962, section 2.1
const node = (left, right) => sha256(join([1], left, right));

// Verifier keys: NAME+HASH+KEY, where HASH is of the name and the key.
export async function parseKey(vkey) {
  const [name, id, ...rest] = vkey.split("+"); // base64 has pluses of its own
  const raw = unbase64(rest.join("+"));
  if (!name || /\s/.test(name) || ![1, 4].includes(raw[0]) || raw.length !== 33) fail(`this page knows no such key: ${vkey.slice(0, 120)}`);
  const key = { vkey, name, type: raw[0], id: await keyID(name, raw), bytes: raw.slice(1) };
  return hex(key.id) === id ? key : fail(`the key of ${name} was mistyped: its hash is not that of its name and bytes`);
}

const keyID = async (name, raw) => (await sha256(join(utf8.encode(name + "\n"), raw))).slice(0, 4);
export const fingerprint = async key => hex(await sha256(key.bytes)).replace(/(.{8})(?=.)/g, "$1 ");

// renamed is the same public key under the name of another generation.
export async function renamed(key, name) {
  const raw = join([key.type], key.bytes);
  const id = await keyID(name, raw);
  return { ...key, name, id, vkey: `${name}+${hex(id)}+${base64(raw)}` };
}

async function signed(key, message, signature) {
  const k = await crypto.subtle.importKey("raw", key.bytes, { name: "Ed25519" }, false, ["verify"]);
  return signature.length === 64 && crypto.subtle.verify({ name: "Ed25519" }, k, signature, message);
}

// Checkpoints: notes with the lines ORIGIN, SIZE, ROOT and perhaps more.
export function parseCheckpoint(note) {
  const end = note.lastIndexOf("\n\n");
  if (end < 0 || !note.endsWith("\n") || /[\x00-\x09\x0b-\x1f\x7f]/.test(note)) fail("the checkpoint is no signed note");
  const lines = note.slice(0, end).split("\n");
  if (lines.length < 3 || lines.includes("")) fail("the checkpoint has not three lines");
  const signatures = note.slice(end + 2, -1).split("\n").map(line => {
    const m = /^— (\S+) (\S+)$/.exec(line) || fail("a signature of the checkpoint is not one");
    const raw = unbase64(m[2]);
    return { name: m[1], id: raw.slice(0, 4), bytes: raw.slice(4) };
  });
  return { text: note.slice(0, end + 1), origin: lines[0], size: decimal(lines[1]), root: hashOf64(lines[2]), signatures };
}

// verdict checks the signatures of one key: null for none. A wrong one throws. A signature of
// the type cosignature/v1 (4) has the seconds since 1970 in its first eight bytes.
async function verdict(c, key, type) {
  const id = type === key.type ? key.id : await keyID(key.name, join([type], key.bytes));
  const of = c.signatures.filter(s => s.name === key.name && equal(s.id, id));
  if (!of.length) return null;
  if (of.length > 1) fail(`${key.name} has signed twice`);
  const raw = of[0].bytes;
  let time = 0n, message = utf8.encode(c.text), signature = raw;
  if (type === 4) {
    if (raw.length !== 72) fail(`the cosignature of ${key.name} is too short`);
    time = new DataView(raw.buffer, raw.byteOffset).getBigUint64(0);
    message = utf8.encode(`cosignature/v1\ntime ${time}\n${c.text}`);
    signature = raw.slice(8);
  }
  return await signed(key, message, signature) ? { time: new Date(Number(time) * 1000) } : fail(`the signature of ${key.name} is wrong`);
}

// isTime reports whether a signature has a time: one before 1970 or after the year 9999 is none.
const isTime = at => at < Date.UTC(10000, 0);

// openAs checks a note under the key of its log, which must bear the log's name.
export async function openAs(note, key) {
  const c = parseCheckpoint(note);
  if (c.origin !== key.name) fail(`the checkpoint is of the log ${c.origin}, not of ${key.name}`);
  const plain = key.type === 1 ? await verdict(c, key, 1) : null;
  const timed = await verdict(c, key, 4);
  if (key.type === 1 && !plain || !isTime(timed?.time)) fail(`the key ${key.vkey} has not signed the checkpoint, or not twice as the relay does: once with the time`);
  return { ...c, key, time: timed.time };
}

// Policies: the keys of logs and witnesses, and how many of these are needed.
export async function parsePolicy(policy) {
  const p = { text: policy, logs: [], witnesses: [], quorum: null }, names = new Map([["none", null]]), grouped = [];
  const another = (list, key) => list.some(k => equal(k.bytes, key.bytes)) ? fail(`another line has the public key of ${key.name}`) : key;
  for (const line of policy.split("\n")) {
    const [kind, ...words] = line.trim().split(/[ \t]+/);
    if (!kind || kind.startsWith("#")) continue;
    if (kind === "log" && words.length) p.logs.push(another(p.logs, await parseKey(words[0])));
    else if (kind === "witness" && words.length > 1 && !names.has(words[0])) {
      const w = { name: words[0], key: another(p.witnesses.map(w => w.key), await parseKey(words[1])) };
      p.witnesses.push(w);
      names.set(w.name, w);
    } else if (kind === "group" && words.length > 2 && !names.has(words[0])) {
      const [name, need, ...of] = words;
      const members = of.map(m => names.get(m) || fail(`no line before it defines ${m}`));
      grouped.push(...of);
      if (new Set(grouped).size !== grouped.length) fail(`a member of ${name} is in a group twice`);
      const n = need === "any" ? 1 : need === "all" ? of.length : decimal(need);
      names.set(name, n >= 1 && n <= of.length ? { name, need: n, members } : fail(`${name} needs more members than it has`));
    } else if (kind === "quorum" && names.has(words[0]) && !p.ended) {
      p.quorum = names.get(words[0]);
      p.ended = true;
    } else fail(`a line of the policy is not one: ${line.slice(0, 80)}`);
  }
  return p.ended && p.logs.length ? p : fail("the policy names no log, or has no line quorum");
}

// The name of a trail is that of its first generation; a later one has a suffix.
export const trailOf = origin => origin.replace(/\/(?:from|since)-[1-9]\d{0,17}$/, "");
export const baseOf = origin => Number((/\/from-([1-9]\d{0,17})$/.exec(origin) || [0, 0])[1]);

// open checks a note under a policy: with the log of its origin, or one of the same trail.
export async function open(note, policy) {
  const { origin } = parseCheckpoint(note);
  const own = policy.logs.filter(k => k.name === origin);
  const keys = own.length ? own : policy.logs.filter(k => trailOf(k.name) === trailOf(origin));
  if (!keys.length) fail(`the log ${origin} is none of the trusted ones`);
  let why;
  for (const key of keys) {
    try { return await openAs(note, await renamed(key, origin)); } catch (e) { why ||= e; }
  }
  throw why;
}

// cosigned says which witnesses have signed, and throws unless they are a quorum. A witness's signature without a
// time counts for nothing: else one of them could spoil each checkpoint.
export async function cosigned(c, policy) {
  const by = new Set();
  for (const w of policy.witnesses) if (isTime((await verdict(c, w.key, 4))?.time)) by.add(w.name);
  const holds = g => !g || (g.members ? g.members.filter(holds).length >= g.need : by.has(g.name));
  if (!holds(policy.quorum)) fail(`only ${by.size} of ${policy.witnesses.length} witnesses have signed it (${[...by].join(", ") || "none"}), which is no quorum`);
  return [...by];
}

// A tree of RFC 6962. rootOf joins the hashes of subtrees of one size, the last ones of a tree.
async function rootOf(hashes) {
  if (!hashes.length) return sha256(new Uint8Array());
  if (hashes.length === 1) return hashes[0];
  let k = 1;
  while (2 * k < hashes.length) k *= 2;
  return node(await rootOf(hashes.slice(0, k)), await rootOf(hashes.slice(k)));
}

// edgeOf is the root of a tree whose last tiles, from the leaves up, have these hashes.
async function edgeOf(levels) {
  let tail = null;
  for (const hashes of levels) {
    // The full subtrees of a tile are larger than all of the levels below: they stand left of them.
    for (let n = hashes.length, bit = 1; n > 0; n -= bit, bit = 1) {
      while (n % (2 * bit) === 0) bit *= 2;
      const full = await rootOf(hashes.slice(n - bit, n));
      tail = tail ? await node(full, tail) : full;
    }
  }
  return tail || sha256(new Uint8Array());
}

const width = 256;
const above = (n, level) => Math.floor(n / width ** level); // how many hashes a level has

// pathOf is the path of a tile, or of a bundle of entries: tile/0/x001/234.p/5.
export function pathOf(level, n, w) {
  let path = String(n % 1000).padStart(3, "0");
  while ((n = Math.floor(n / 1000)) > 0) path = `x${String(n % 1000).padStart(3, "0")}/${path}`;
  return `tile/${level}/${path}${w < width ? `.p/${w}` : ""}`;
}

// Tree reads the tiles of a signed tree. fetch gives a file's bytes by its path below the log.
// Every byte that it reads is held against the signed root: the last tiles of all levels give the
// root, and a full tile the hash that stands for it in the tile above.
export class Tree {
  constructor(checkpoint, fetch) {
    this.size = checkpoint.size;
    this.root = checkpoint.root;
    this.fetch = fetch;
    this.known = new Map();
  }

  async read(level, n, w) {
    const path = pathOf(level, n, w), bytes = await this.fetch(path);
    if (bytes.length !== 32 * w) fail(`${path} has ${bytes.length} bytes, not ${32 * w}`);
    return Array.from({ length: w }, (_, i) => bytes.slice(32 * i, 32 * i + 32));
  }

  async check() {
    this.edge = [];
    for (let level = 0; above(this.size, level) > 0; level++) {
      const n = above(this.size, level), w = n % width;
      this.edge.push(w ? await this.read(level, Math.floor(n / width), w) : []);
    }
    if (!equal(await edgeOf(this.edge), this.root)) fail("the tiles at the tree's edge do not give the signed root");
  }

  async tile(level, n) {
    if (n === Math.floor(above(this.size, level) / width)) return this.edge[level];
    const name = `${level}/${n}`;
    if (!this.known.has(name)) {
      const hashes = await this.read(level, n, width);
      const up = await this.tile(level + 1, Math.floor(n / width));
      if (!equal(await rootOf(hashes), up[n % width])) fail(`${pathOf(level, n, width)} is not the tile that was signed`);
      this.known.set(name, hashes);
    }
    return this.known.get(name);
  }

  // leaf is the hash of an entry's leaf, as signed.
  leaf = async n => (await this.tile(0, Math.floor(n / width)))[n % width];

  // rootAt is the root that the tree had with its first size leaves.
  async rootAt(size) {
    const levels = [];
    for (let level = 0; above(size, level) > 0; level++) {
      const n = above(size, level);
      levels.push(n % width ? (await this.tile(level, Math.floor(n / width))).slice(0, n % width) : []);
    }
    return edgeOf(levels);
  }

  // bundle gives the entries around n, each of them held against its signed hash.
  async bundle(n) {
    const at = Math.floor(n / width), w = Math.min(width, this.size - at * width);
    const path = pathOf("entries", at, w), bytes = await this.fetch(path), leaves = [];
    for (let i = 0; i < bytes.length;) {
      const end = i + 2 + bytes[i] * 256 + bytes[i + 1];
      if (!(end <= bytes.length)) fail(`${path} ends within an entry`);
      leaves.push(bytes.slice(i + 2, end));
      i = end;
    }
    if (leaves.length !== w) fail(`${path} has ${leaves.length} entries, not ${w}`);
    for (let i = 0; i < w; i++) {
      if (!equal(await leafHash(leaves[i]), await this.leaf(at * width + i))) fail(`entry ${i + 1} of ${path} is not the one that was signed`);
    }
    return leaves;
  }

  // record is an entry: the leaf itself, or the file whose digest the leaf is.
  async record(n) {
    const leaf = (await this.bundle(n))[n % width], sum = digestIn(leaf);
    if (!sum) return leaf;
    const record = await this.fetch(`records/${sum}`);
    return equal(await leafOf(record), leaf) ? record : fail(`records/${sum} is not the record that was signed`);
  }
}

const digestIn = leaf => leaf.length < 150 && (/^\{"record_bytes":\d+,"record_sha256":"([0-9a-f]{64})"\}$/.exec(text(leaf)) || [])[1];

// leafOf is the leaf of a record: the record, or where it is long its digest.
export async function leafOf(record) {
  return record.length < 65536 ? record : utf8.encode(`{"record_bytes":${record.length},"record_sha256":"${hex(await sha256(record))}"}`);
}

// inTree follows a path from a leaf to a root: RFC 9162, section 2.1.3.2.
export async function inTree(path, size, root, index, leaf) {
  if (!(index < size)) return false;
  let at = index, last = size - 1, hash = leaf;
  for (const p of path) {
    if (last === 0) return false;
    if (at % 2 === 1 || at === last) {
      hash = await node(p, hash);
      while (at % 2 === 0 && at !== 0) { at /= 2; last = Math.floor(last / 2); }
    } else hash = await node(hash, p);
    at = Math.floor(at / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && equal(hash, root);
}

// parseProof reads a .tlog-proof: https://c2sp.org/tlog-proof.
export function parseProof(file) {
  const end = file.indexOf("\n\n"), [header, ...lines] = file.slice(0, end).split("\n");
  if (end < 0 || header !== "c2sp.org/tlog-proof@v1") fail("the proof does not begin as a .tlog-proof does, or has no checkpoint");
  if (lines[0]?.startsWith("extra ")) unbase64(lines.shift().slice(6));
  const index = /^index (.*)$/.exec(lines.shift() || "") || fail("the proof has no line with its index");
  if (lines.length > 63) fail("the proof has more hashes than the highest tree");
  return { index: decimal(index[1]), path: lines.map(hashOf64), checkpoint: file.slice(end + 2) };
}

// The body of an entry's event, as a sink delivers it, is the record and more members. Its record
// is canonical JSON (RFC 8785), which JSON.stringify makes of sorted members.
export function recordOf(body) {
  const event = JSON.parse(body);
  const { trail, omitted, ...record } = event.specversion ? event.data ?? {} : event;
  if (omitted) fail("the event leaves out parts of the entry: take the entry itself, INDEX.json of 'auditrelay trail prove'");
  return trail ? canonical(record) : body;
}

function canonical(v) {
  if (Array.isArray(v)) return `[${v.map(canonical)}]`;
  if (v === null || typeof v !== "object") return JSON.stringify(v);
  return `{${Object.keys(v).sort().map(k => `${JSON.stringify(k)}:${canonical(v[k])}`)}}`;
}

const bundled = ["format", "position", "event", "cloud_event", "salt", "record_events", "record_root", "event_path", "leaf", "path", "entry_index", "entry", "tlog_proof"];

// eventProof checks a bundle of 'auditrelay trail prove-event': from the event to the entry of its span.
export async function eventProof(bundle) {
  membersOf(bundle, bundled, "the bundle");
  const b = JSON.parse(bundle), e = membersOf(b.cloud_event, members, "the event"), entry = JSON.parse(b.entry), span = entry.detail;
  const net = s => join(utf8.encode(`${utf8.encode(s).length}:${s},`));
  const part = name => net(e[name] === undefined ? "" : JSON.parse(e[name]));
  const time = name => /^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z"$/.test(e[name]) ? part(name) : fail(`the event's ${name} is not spelled as the relay does`);
  const origin = await sha256(join(part("source"), part("project"), part("environment"), time("receivedtime")));
  const body = bodyOf(e), isJSON = /^\s*\{[^]*\}\s*$/.test(new TextDecoder().decode(body));
  if (JSON.parse(e.datacontenttype) !== (isJSON ? "application/json" : "text/plain; charset=utf-8")) fail("no event with this body has such a content type");
  const hash = await sha256(join(origin, part("id"), part("type"), part("subject"), time("time"), body));
  const salt = unbase64(b.salt), list = hashes => (hashes || []).map(hashOf64);
  if (salt.length !== 16) fail("the salt has not 16 bytes");
  if (!await inTree(list(b.event_path), b.record_events, hashOf64(b.record_root), b.event, await leafHash(join(salt, hash)))) fail("the event is not in its record: it is not the one that was received");
  if (entry.type !== "events.span") fail(`the entry is of the type ${entry.type}, not events.span`);
  if (b.position < span.first_position || b.position > span.last_position) fail("the record stands outside of the span");
  if ((span.missing || []).some(m => m.from <= b.position && b.position <= m.to)) fail("the span says that it has no such record");
  if (b.record_events > span.events) fail("the record has more events than its span");
  const leaf = await leafHash(utf8.encode(`${b.position} ${b.record_events} ${b.record_root}\n`));
  if (!await inTree(list(b.path), span.records, hashOf64(span.root), b.leaf, leaf)) fail("the record is not in its span");
  return { id: JSON.parse(e.id), received: JSON.parse(e.receivedtime), entry: b.entry, index: b.entry_index, proof: b.tlog_proof };
}

// The members that vouch for an event; another one would stand there unvouched for.
const members = ["specversion", "id", "source", "type", "subject", "time", "project", "environment", "receivedtime", "datacontenttype", "data", "data_base64"];

// membersOf gives the members of an object as they are spelled. Each is one of the known ones, and stands there once.
function membersOf(object, known, what) {
  JSON.parse(object);
  const token = /\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s"{}[\],:]+)\s*/y, found = {};
  let depth = 0, name = null, from = 0;
  for (let m; (m = token.exec(object));) {
    const t = m[1];
    if (depth === 1 && (t === "," || t === "}")) {
      if (name !== null) found[name] = object.slice(from, token.lastIndex - m[0].length + m[0].indexOf(t));
      name = null;
    } else if (depth === 1 && name === null) {
      name = JSON.parse(t);
      if (!known.includes(name) || name in found) fail(`${what} has the member ${name} twice, or should not have it`);
      token.exec(object);
      from = token.lastIndex;
      continue;
    }
    if ("{[".includes(t)) depth++;
    if ("}]".includes(t)) depth--;
  }
  return found;
}

function bodyOf(e) {
  if (e.data_base64 !== undefined) return unbase64(JSON.parse(e.data_base64));
  if (e.data === undefined) return new Uint8Array();
  return utf8.encode(/json/.test(e.datacontenttype) ? e.data : JSON.parse(e.data));
}
