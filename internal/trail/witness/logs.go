package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
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
