package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// maxKept bounds the quarantine: beyond it records are named, and their bytes are not kept.
const maxKept = 1 << 30

// kindLoss is the kind of a record that names positions. Its key is the log. Its data is a
// Loss as one line of JSON, followed by the bytes of the record that was there.
const kindLoss = 1

// Loss is a run of positions whose records were lost or cannot be read.
type Loss struct {
	Log string `json:"log"`
	// ID is the ID of the log under which the positions were found missing.
	ID string `json:"log_id"`
	// From and To are the first and the last position.
	From   store.Pos `json:"from"`
	To     store.Pos `json:"to"`
	Reason string    `json:"reason"`
	// Why is empty for a record that is there, but cannot be decoded.
	Why store.Reason `json:"why,omitempty"`
	// Kept is the file with the damaged bytes, relative to the data directory. It is empty
	// if none are left, or if the quarantine itself has them.
	Kept string    `json:"kept,omitempty"`
	Time time.Time `json:"time"` // of discovery
	// Bytes of the record are kept by the quarantine.
	Bytes int `json:"bytes"`
}

// Positions is how many positions there are.
func (l *Loss) Positions() uint64 { return uint64(l.To-l.From) + 1 }

// Subject names the loss, and no other one of the same store.
func (l *Loss) Subject() string {
	return fmt.Sprintf("journal %s position %d, log %s", l.Log, l.From, l.ID)
}

// lossReasons are the texts of the reasons of a gap.
var lossReasons = map[store.Reason]string{
	store.Damaged:  "the log has no readable record there: it was damaged or lost on disk",
	store.Doubtful: "possibly acknowledged: a power cut left no whole record there",
	store.Rewound:  "the servers lost the end of the log, with records that they had confirmed",
}

func lossOf(log string, gap store.Gap) Loss {
	loss := Loss{Log: log, From: gap.From, To: gap.To, Why: gap.Why, Reason: lossReasons[gap.Why]}
	if gap.Kept != "" { // the salvage folder stands in the data directory
		folder, file := filepath.Split(gap.Kept)
		loss.Kept = filepath.Join(filepath.Base(folder), file)
	}
	return loss
}

// draft is the record of the loss, with the bytes as far as they fit.
func (l *Loss) draft(data []byte, limit int) (store.Draft, error) {
	head, err := json.Marshal(l)
	if err != nil {
		return store.Draft{}, fmt.Errorf("encode a name of the quarantine: %w", err)
	}
	head = append(head, '\n')
	room := max(0, limit-len(l.Log)-len(head))
	return store.Draft{Kind: kindLoss, Key: l.Log, Data: append(head, data[:min(room, len(data))]...)}, nil
}

// lossIn reads a record of the quarantine. It returns false for one of another kind.
func lossIn(r *store.Record) (l Loss, ok bool) {
	head, data, _ := bytes.Cut(r.Data, []byte{'\n'})
	if r.Kind != kindLoss || json.Unmarshal(head, &l) != nil || l.From == 0 || l.To < l.From {
		return Loss{}, false
	}
	l.Time, l.Bytes = r.Time.UTC(), len(data)
	return l, true
}
