// Package witness cosigns checkpoints of logs, each only if it continues the previous one:
// C2SP tlog-witness (https://c2sp.org/tlog-witness) with timestamped cosignatures
// (https://c2sp.org/tlog-cosignature). A log that shows a split view, or was set back to an
// older state, gets no signature. The package exists because the one library that is known
// (github.com/transparency-dev/witness) requires SQLite, Spanner and OpenTelemetry;
// signatures and proofs come from libraries.
//
// # State
//
// A witness is worth as much as its memory. One file has the newest cosigned checkpoint of
// each log, with the witness's own signature. Only Create makes the file: a witness without
// it does not start, since "never seen" and "forgotten" look the same from outside. See
// Recover.
//
// # Generations
//
// A trail that has lost its tree or key goes on under another origin, ORIGIN/from-N or
// ORIGIN/since-T. To a reader this is another log, so a witness that trusted it by itself
// would let two histories pass. It does not: a person at the witness adds the new key, after
// asking why. Generations are listed oldest first. From the first cosignature of a later one
// on, the earlier ones are closed, so that only one history can grow.
//
// # The other side
//
// A [Cosigner] gets a trail's checkpoints cosigned. All witnesses are asked at once, each for at most
// ten seconds; one that fails is asked again after growing pauses. This does not block the trail:
// no append and no signature waits for it.
//
// There are two alarms. A witness that knows another history of this trail (a split view, or a
// trail that was set back to an older copy) raises one at once: an error in the log, an entry
// in the trail, and so an event at every sink. A missing quorum raises the other, once it lasts
// longer than [CosignOptions].Patience: an error in the log, the metrics, and the remark of /readyz.
package witness

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Witness is an open witness. Its methods may be called concurrently.
type Witness struct {
	file string
	key  Key
	logs map[string]*log // by origin

	mu    sync.Mutex // held from reading a state until its successor is on the disk
	known states     // as on the disk, or older after a failed write, or with a newer cosignature of the same tree; guarded by mu
	write func(states) error
}

// log is a log that the witness trusts.
type log struct {
	origin    string
	place     int      // in the list: later generations come later
	keys      []string // the verifier keys, all of this name
	verifiers []note.Verifier
	writes    *rate.Limiter // of new states
}

// mostWrites bounds how often per minute the holder of one log's key can have the state
// written.
const mostWrites = 120

// Open opens the witness with the state in file, and with trust in the logs of these verifier
// keys, whose names are the origins. An origin may have several keys. The generations of a
// trail are in order, the oldest first.
func Open(file string, key Key, logs []string) (*Witness, error) {
	w := &Witness{file: file, key: key, logs: map[string]*log{}}
	w.write = func(s states) error { return s.write(file, key) }
	for i, text := range logs {
		v, err := note.NewVerifier(text)
		if err != nil {
			if strings.HasPrefix(text, "PRIVATE+KEY+") {
				return nil, errors.New("the log's key is not a verifier key, NAME+HASH+KEY: it is a signing key, which stays with the log")
			}
			return nil, fmt.Errorf("the log's key %q is not a verifier key, NAME+HASH+KEY, of Ed25519: %w", text, err)
		}
		if proof.SamePublicKey(text, key.public) {
			return nil, fmt.Errorf("the log's key %q is this witness's own key", text)
		}
		l := w.logs[v.Name()]
		if l == nil {
			l = &log{origin: v.Name(), place: i, writes: rate.NewLimiter(rate.Every(time.Minute/mostWrites), mostWrites)}
			w.logs[v.Name()] = l
		}
		l.keys, l.verifiers = append(l.keys, text), append(l.verifiers, v)
	}
	var err error
	w.known, err = readStates(file, key)
	return w, err
}

// The kinds of refusals.
const (
	Malformed    = "malformed"
	Unknown      = "unknown_log"
	Untrusted    = "untrusted"
	Stale        = "stale"
	Unproven     = "unproven"
	Inconsistent = "inconsistent"
	Busy         = "busy"
	Superseded   = "superseded"
	Offered      = "new_generation"
)

// Refusal is why a request gets no signature. Only one of the kind Inconsistent accuses the
// log: two checkpoints with its signatures show two trees of one size. Anybody can send an
// honest log's checkpoint with a wrong proof, or send an older one again.
type Refusal struct {
	Kind   string
	Status int // of HTTP
	Text   string
	// Log is the trusted log whose key signed the checkpoint; it is empty if none did.
	Log string
	// Checkpoint is the refused one, with the signatures of that log's keys only. Cosigned is
	// the newest cosigned one, for Inconsistent.
	Checkpoint, Cosigned string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(kind string, status int, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Status: status, Text: fmt.Sprintf(format, args...)}
}

// Add cosigns a checkpoint, and returns the signature line. The error is a *Refusal, or a
// failure to keep the state.
func (w *Witness) Add(r Request) ([]byte, error) {
	n, c, err := w.open(r.Checkpoint)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before, seen := w.known[c.Origin]
	if !seen {
		before.ClosedBy = w.laterThan(c.Origin)
	}
	if refusal := check(r, c, before); refusal != nil {
		return nil, refusal.of(w.logs[c.Origin], n)
	}
	grows := !seen || before.read.Size != c.Size
	if grows && !w.logs[c.Origin].writes.Allow() {
		return nil, refuse(Busy, http.StatusTooManyRequests, "this witness takes no more trees of this log at the moment").of(w.logs[c.Origin], n)
	}
	signed, line, err := w.sign(n)
	if err != nil {
		return nil, err
	}
	now := logState{Origin: c.Origin, Checkpoint: signed, read: c}
	if !grows { // the newer cosignature is for monitors, and need not outlive the process
		w.known[c.Origin] = now
		return line, nil
	}
	after := maps.Clone(w.known)
	after[c.Origin] = now
	w.closeOlder(after, c.Origin)
	// If the process crashes before this line has ended, either state is on the disk, and no
	// signature was sent, so the log asks again. After it the signature may be lost on its way;
	// then the log learns the new size from the answer 409.
	if err := w.write(after); err != nil {
		return nil, err
	}
	w.known = after
	return line, nil
}

// maxText bounds the signed text of a checkpoint, in bytes. It is kept, and it may be logged.
const maxText = 2 << 10

// open checks a note's signature, and reads its checkpoint.
func (w *Witness) open(text []byte) (*note.Note, proof.Checkpoint, error) {
	if len(proof.NoteText(text)) > maxText {
		return nil, proof.Checkpoint{}, refuse(Malformed, http.StatusBadRequest, "a checkpoint's text has at most %d bytes here", maxText)
	}
	origin := proof.NoteOrigin(text)
	l := w.logs[origin]
	if l == nil {
		return nil, proof.Checkpoint{}, w.unknown(origin, text)
	}
	n, err := note.Open(text, note.VerifierList(l.verifiers...))
	_, unverified := errors.AsType[*note.UnverifiedNoteError](err)
	_, invalid := errors.AsType[*note.InvalidSignatureError](err)
	switch {
	case unverified, invalid, err == nil && l.forged(n, text):
		return nil, proof.Checkpoint{}, refuse(Untrusted, http.StatusForbidden, "no signature of a key that this witness trusts for the origin")
	case err != nil:
		return nil, proof.Checkpoint{}, refuse(Malformed, http.StatusBadRequest, "the checkpoint is not a signed note")
	}
	c, err := proof.ParseCheckpoint(n.Text)
	if err != nil {
		return nil, proof.Checkpoint{}, refuse(Malformed, http.StatusBadRequest, "%v", err)
	}
	return n, c, nil
}

// forged reports whether a note has a line with the name and the number of one of the log's
// keys that is not its signature, since [note.Open] looks only at the first line of each key.
func (l *log) forged(n *note.Note, text []byte) bool {
	lines := bytes.Split(text[len(proof.NoteText(text)):], []byte("\n"))
	for _, v := range l.verifiers {
		for _, line := range lines {
			encoded, named := bytes.CutPrefix(line, []byte("— "+v.Name()+" "))
			sig, err := base64.StdEncoding.DecodeString(string(encoded))
			if !named || err != nil || len(sig) < 5 || binary.BigEndian.Uint32(sig) != v.KeyHash() {
				continue
			}
			if !v.Verify([]byte(n.Text), sig[4:]) {
				return true
			}
		}
	}
	return false
}

// of adds what the log's signature vouches for.
func (r *Refusal) of(l *log, n *note.Note) *Refusal {
	r.Log = l.origin
	if text, err := note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs}); err == nil { // without strangers' lines
		r.Checkpoint = string(text)
	}
	return r
}

// check compares a request with the state, in the order of the specification.
func check(r Request, c proof.Checkpoint, before logState) *Refusal {
	empty, _ := tlog.TreeHash(0, nil) // it reads nothing
	switch old := before.read.Size; {
	case before.ClosedBy != "":
		return refuse(Superseded, http.StatusForbidden, "this witness has cosigned a later generation, %s, and closed this one", before.ClosedBy)
	case r.Old > c.Size:
		return refuse(Malformed, http.StatusBadRequest, "the old size is above the checkpoint's")
	case r.Old != old:
		return refuse(Stale, http.StatusConflict, "%d", old)
	case c.Size == old && old > 0 && c.Root != before.read.Root:
		refusal := refuse(Inconsistent, http.StatusUnprocessableEntity, "this witness has cosigned another tree of the size %d", old)
		refusal.Cosigned = before.Checkpoint
		return refusal
	case (old == 0 || c.Size == old) && len(r.Proof) > 0:
		return refuse(Malformed, http.StatusUnprocessableEntity, "the proof must be empty")
	case c.Size == 0 && c.Root != empty:
		return refuse(Malformed, http.StatusUnprocessableEntity, "the root is not of an empty tree")
	case old > 0 && c.Size > old && tlog.CheckTree(r.Proof, c.Size, c.Root, old, before.read.Root) != nil:
		return refuse(Unproven, http.StatusUnprocessableEntity, "the proof does not show that the tree begins with the one of size %d that this witness has cosigned", old)
	}
	return nil
}

// sign returns the note with its log's signatures and ours, and the line with ours.
func (w *Witness) sign(n *note.Note) (signed string, line []byte, err error) {
	trusted := &note.Note{Text: n.Text, Sigs: n.Sigs} // without foreign signatures
	text, err := note.Sign(trusted, w.key.signer)
	if err != nil {
		return "", nil, fmt.Errorf("cosign checkpoint: %w", err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	return string(text), []byte(lines[len(lines)-2]), nil // our signature comes last
}
