package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// LogState is the state of a log at a witness, for people.
type LogState struct {
	Origin string    `json:"origin"`
	Size   int64     `json:"size"`
	Root   tlog.Hash `json:"root"`
	// ClosedBy is a later generation; empty while this one is cosigned.
	ClosedBy string `json:"closed_by,omitempty"`
}

// Logs lists the logs that are trusted and those that were cosigned before, by origin. The size
// is 0 for a log that was never cosigned.
func (w *Witness) Logs() []LogState {
	all := map[string]LogState{}
	for origin := range w.logs {
		all[origin] = LogState{Origin: origin}
	}
	w.mu.Lock()
	for origin, s := range w.known {
		all[origin] = LogState{origin, s.read.Size, s.read.Root, s.ClosedBy}
	}
	w.mu.Unlock()
	var sorted []LogState
	for _, origin := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[origin])
	}
	return sorted
}

func (w *Witness) sizeOf(origin string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[origin].read.Size
}

// cosigned returns the newest cosigned checkpoint of the log whose origin has this SHA-256, in
// hex.
func (w *Witness) cosigned(hash string) (text string, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for origin, s := range w.known {
		if sum := sha256.Sum256([]byte(origin)); hex.EncodeToString(sum[:]) == hash {
			return s.Checkpoint, true
		}
	}
	return "", false
}

// unknown refuses an origin that is not trusted. A later generation of a known log is
// recognised if the log's own key has signed it.
func (w *Witness) unknown(origin string, text []byte) error {
	for _, l := range w.logs {
		if proof.TrailOf(l.origin) != proof.TrailOf(origin) {
			continue
		}
		for _, key := range l.keys {
			renamed, _ := proof.Renamed(key, origin) // of no name, no verifier is made
			v, err := note.NewVerifier(renamed)
			if err != nil {
				continue
			}
			if n, err := note.Open(text, note.VerifierList(v)); err == nil {
				return refuse(Offered, http.StatusNotFound, "%s is a new generation of %s: this witness's operator has to accept its key, %s", origin, l.origin, renamed).of(l, n)
			}
		}
	}
	return refuse(Unknown, http.StatusNotFound, "this witness does not know the log: its operator has to add its key")
}

// laterThan finds a cosigned generation that is later than an origin which was never cosigned.
// Otherwise the holder of the key could go back to a generation that was not used so far.
func (w *Witness) laterThan(origin string) string {
	for other := range w.known {
		if l := w.logs[other]; l != nil && proof.TrailOf(other) == proof.TrailOf(origin) && l.place > w.logs[origin].place {
			return other
		}
	}
	return ""
}

// closeOlder closes the other generations of an origin's log.
func (w *Witness) closeOlder(all states, origin string) {
	for other, s := range all {
		if other != origin && s.ClosedBy == "" && proof.TrailOf(other) == proof.TrailOf(origin) {
			s.ClosedBy = origin
			all[other] = s
		}
	}
}
