package witness

import (
	"fmt"
	"net/http"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// unknown refuses an origin that is not trusted. A later generation of a known log is
// recognised if the log's own key has signed it.
func (w *Witness) unknown(origin string, text []byte) error {
	for _, l := range w.logs {
		if proof.TrailOf(l.origin) != proof.TrailOf(origin) {
			continue
		}
		for _, key := range l.keys {
			renamed, err := proof.Renamed(key, origin)
			if err != nil {
				continue
			}
			v, err := note.NewVerifier(renamed)
			if err != nil {
				continue
			}
			if n, err := note.Open(text, note.VerifierList(v)); err == nil {
				refusal := &Refusal{
					Kind: Offered, Status: http.StatusNotFound,
					Text: fmt.Sprintf("%s is a new generation of %s: this witness's operator has to accept its key, %s", origin, l.origin, renamed),
				}
				return refusal.of(l, n)
			}
		}
	}
	return &Refusal{Kind: Unknown, Status: http.StatusNotFound, Text: "this witness does not know the log: its operator has to add its key"}
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
