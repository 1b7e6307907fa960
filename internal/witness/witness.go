// Package witness cosigns checkpoints of logs, each only if it continues the one before:
// C2SP tlog-witness (https://c2sp.org/tlog-witness) with timestamped cosignatures
// (https://c2sp.org/tlog-cosignature). A log with a split view, or set back to an older
// state, gets no signature. It is a room of our own as the one library known of
// (github.com/transparency-dev/witness) brings SQLite, Spanner and OpenTelemetry along;
// signatures and proofs come from libraries.
//
// # State
//
// A witness is worth as much as its memory. One file has the newest cosigned checkpoint of
// each log, with the witness's own signature. The file is made by Create alone: a witness
// without it does not start, as "never seen" and "forgotten" look the same from outside.
// See Recover.
//
// # Generations
//
// A trail with a lost tree or key goes on under another origin, ORIGIN/from-N or
// ORIGIN/since-T. To a reader this is another log, so a witness with trust in it by itself would let
// two histories pass. It does not: a person at the witness adds the new key, after asking
// why. Generations are listed oldest first. From the first cosignature of a later one on,
// the earlier ones are closed, so only one history can grow.
package witness

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
)

// Witness is an open witness. Its methods may be called concurrently.
type Witness struct {
	file string
	key  Key
	logs map[string]*log // by origin

	mu    sync.Mutex // from the look at a state to its successor on the disk
	known states     // under mu; as on the disk, or older after a failed write
	write func(states) error
}

// log is a log in the witness's trust.
type log struct {
	origin    string
	place     int      // in the list: later generations come later
	keys      []string // the verifier keys, all of this name
	verifiers []note.Verifier
}

// Open opens the witness with the state in file, and trust in the logs of these verifier
// keys: their names are the origins. An origin may have several keys. The generations of a
// trail are in order, the oldest first.
func Open(file string, key Key, logs []string) (*Witness, error) {
	w := &Witness{file: file, key: key, logs: map[string]*log{}}
	w.write = func(s states) error { return s.write(file, key) }
	for i, text := range logs {
		v, err := note.NewVerifier(text)
		if err != nil {
			return nil, fmt.Errorf("the log's key %q is not a verifier key, NAME+HASH+KEY, of Ed25519: %w", text, err)
		}
		if proof.SamePublicKey(text, key.public) {
			return nil, fmt.Errorf("the log's key %q is this witness's own key", text)
		}
		l := w.logs[v.Name()]
		if l == nil {
			l = &log{origin: v.Name(), place: i}
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
	Inconsistent = "inconsistent"
	Superseded   = "superseded"
	Offered      = "new_generation"
)

// Refusal is why a request gets no signature.
type Refusal struct {
	Kind   string
	Status int // of HTTP
	Text   string
	// Size is of the tree cosigned last, for Stale.
	Size int64
	// Origin is the log's, where a valid signature vouches for it.
	Origin string
}

func (r *Refusal) Error() string { return r.Text }

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
	if err := check(r, c, before); err != nil {
		return nil, err
	}
	signed, line, err := w.sign(n)
	if err != nil {
		return nil, err
	}
	if seen && before.read.Size == c.Size {
		return line, nil // the state stays
	}
	after := maps.Clone(w.known)
	after[c.Origin] = logState{Origin: c.Origin, Checkpoint: signed, read: c}
	w.closeOlder(after, c.Origin)
	// A crash before this line's end leaves either state on the disk, and no signature
	// has left: the log asks again. Behind it the signature may be lost on its way; then
	// the log learns the new size from the answer 409.
	if err := w.write(after); err != nil {
		return nil, err
	}
	w.known = after
	return line, nil
}

// open checks a note's signature, and reads its checkpoint.
func (w *Witness) open(text []byte) (*note.Note, proof.Checkpoint, error) {
	origin := originOf(text)
	l := w.logs[origin]
	if l == nil {
		return nil, proof.Checkpoint{}, w.unknown(origin, text)
	}
	n, err := note.Open(text, note.VerifierList(l.verifiers...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified), errors.As(err, &invalid):
		return nil, proof.Checkpoint{}, &Refusal{Kind: Untrusted, Status: http.StatusForbidden, Text: "no signature of a key that this witness trusts for the origin"}
	case err != nil:
		return nil, proof.Checkpoint{}, &Refusal{Kind: Malformed, Status: http.StatusBadRequest, Text: "the checkpoint is not a signed note"}
	}
	c, err := proof.ParseCheckpoint(n.Text)
	if err != nil {
		return nil, proof.Checkpoint{}, &Refusal{Kind: Malformed, Status: http.StatusBadRequest, Text: err.Error(), Origin: origin}
	}
	return n, c, nil
}

// check holds a request against the state, in the order of the specification.
func check(r Request, c proof.Checkpoint, before logState) error {
	refuse := func(kind string, status int, format string, args ...any) error {
		return &Refusal{Kind: kind, Status: status, Text: fmt.Sprintf(format, args...), Size: before.read.Size, Origin: c.Origin}
	}
	empty, _ := tlog.TreeHash(0, nil) // reads nothing
	switch old := before.read.Size; {
	case before.ClosedBy != "":
		return refuse(Superseded, http.StatusForbidden, "this witness has cosigned a later generation, %s, and closed this one", before.ClosedBy)
	case r.Old > c.Size:
		return refuse(Malformed, http.StatusBadRequest, "the old size is above the checkpoint's")
	case r.Old != old:
		return refuse(Stale, http.StatusConflict, "%d", old)
	case c.Size == old && old > 0 && c.Root != before.read.Root:
		return refuse(Inconsistent, http.StatusConflict, "this witness has cosigned another tree of the size %d", old)
	case (old == 0 || c.Size == old) && len(r.Proof) > 0:
		return refuse(Malformed, http.StatusUnprocessableEntity, "the proof must be empty")
	case c.Size == 0 && c.Root != empty:
		return refuse(Malformed, http.StatusUnprocessableEntity, "the root is not of an empty tree")
	case old > 0 && c.Size > old && tlog.CheckTree(r.Proof, c.Size, c.Root, old, before.read.Root) != nil:
		return refuse(Inconsistent, http.StatusUnprocessableEntity, "the proof does not show that the tree begins with the one of size %d that this witness has cosigned", old)
	}
	return nil
}

// sign gives the note with its log's signatures and ours, and the line with ours.
func (w *Witness) sign(n *note.Note) (signed string, line []byte, err error) {
	trusted := &note.Note{Text: n.Text, Sigs: n.Sigs} // without foreign signatures
	text, err := note.Sign(trusted, w.key.signer)
	if err != nil {
		return "", nil, fmt.Errorf("cosign checkpoint: %w", err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	return string(text), []byte(lines[len(lines)-2]), nil // our signature comes last
}
