// Package deadletters keeps the events refused for good by a sink, in a log of the store.
//
// Each letter is one record, so a person can look at it, replay and discard it alone. The
// position of its first record is its number for good. A removal is a record too, with the
// numbers of the letters. An index in memory follows the log (index.go): it says which
// letters there are, where they stand, and what those of each sink and source take. When
// half of the log is dead, the live letters are appended again, and what lies before them
// is dropped (tidy.go).
//
// Each source has a budget of its own at each sink, journal.dead_letter_bytes. A letter
// beyond it is kept all the same: if the sink's pump waited instead, the refused events of
// one environment would hold up all others, and the audit trail. But it counts as an
// undelivered event of its source ([Store.Beyond]), so the journal's budget bounds these
// letters too: at its share of it, the environment's own pushes are refused.
//
// What the disk lost of the log stands in the quarantine, like the losses of other logs.
package deadletters

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
)

// LogName is the log of the dead letters.
const LogName = "deadletters"

// The kinds of records.
const (
	// kindLetter is a letter. Its key is the sink. Its data is a head as one line of JSON,
	// followed by a record of one event.
	kindLetter = 1
	// kindRemoved has the numbers of letters that were removed, as uvarints.
	kindRemoved = 2
)

// head begins the data of a letter.
type head struct {
	// ID is the position of the letter's first record; 0 in that record itself.
	ID store.Pos `json:"id,omitempty"`
	// Time is when the event was refused; zero in the first record, which has its own time.
	Time     time.Time `json:"time,omitzero"`
	Source   string    `json:"source"`
	Event    string    `json:"event"` // its ID
	Reason   string    `json:"reason"`
	Attempts int       `json:"attempts"`
}

// Bounds of one append, which also bound its memory.
const (
	appendLetters = 1000
	appendBytes   = 4 << 20
	// removedAtOnce bounds the numbers in one record of removed letters.
	removedAtOnce = 10_000
)

const (
	// maxText bounds the reason and the ID that stand in a letter's head, in characters.
	maxText = 1 << 10
	// againRoom is what a head takes more in a letter that is appended again, in bytes.
	againRoom = 96
)

// Options are what a store of letters needs.
type Options struct {
	Store      store.Store
	Quarantine *journal.Quarantine
	// Budget is for the letters of each source at each sink, in bytes; 0 for none.
	Budget     int64
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Sinks have metrics from the start. Others have them with their first letter.
	Sinks []string
}

// Store keeps dead letters. It is safe for concurrent use.
type Store struct {
	log        *slog.Logger
	letters    store.Log
	quarantine *journal.Quarantine
	index      *index

	life    context.Context // ends at Close
	stop    context.CancelFunc
	running sync.WaitGroup
	sinks   atomic.Pointer[[]string] // those with metrics from the start

	// appending is held for reading by appends of letters and removals, and for writing
	// while letters are appended again: see move.
	appending sync.RWMutex
	untidy    chan struct{} // takes a value when tidying up may be worth it
}

// Open opens the dead letters, or makes their log. The index is read in the background;
// meanwhile letters are kept, and questions wait.
func Open(ctx context.Context, o Options) (*Store, error) {
	letters, err := o.Store.Log(ctx, LogName, store.Options{})
	if err == nil {
		err = o.Quarantine.Watch(ctx, LogName, letters)
	}
	if err != nil {
		return nil, fmt.Errorf("open the dead letters: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		log: o.Logger, letters: letters, quarantine: o.Quarantine, index: newIndex(o.Budget),
		life: life, stop: stop, untidy: make(chan struct{}, 1),
	}
	s.Serve(o.Sinks)
	o.Registerer.MustRegister(&collector{s})
	s.running.Go(s.follow)
	s.running.Go(s.keepTidy)
	return s, nil
}

// Serve replaces Options.Sinks.
func (s *Store) Serve(sinks []string) { s.sinks.Store(&sinks) }

// Close ends the work in the background.
func (s *Store) Close() error {
	s.stop()
	s.running.Wait()
	return nil
}

// Reject implements relay.DeadLetters. A crash on the way leaves some of the letters; the
// delivery is then tried again, and they stand twice, never not at all.
func (s *Store) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	for len(rejections) > 0 {
		drafts, err := s.draftsOf(sink, rejections)
		if err == nil {
			_, err = s.append(ctx, drafts)
		}
		if err != nil {
			return fmt.Errorf("keep %d dead letters, the first of event %s: %w", max(1, len(drafts)), rejections[0].Event.ID, err)
		}
		rejections = rejections[len(drafts):]
	}
	return nil
}

func (s *Store) append(ctx context.Context, drafts []store.Draft) (store.Pos, error) {
	s.appending.RLock()
	defer s.appending.RUnlock()
	return s.letters.Append(ctx, drafts...)
}

// draftsOf makes records of the first rejections, as many as are appended at once.
func (s *Store) draftsOf(sink string, rejections []relay.Rejection) ([]store.Draft, error) {
	var drafts []store.Draft
	size := 0
	for i := range rejections {
		d, err := letterOf(sink, &rejections[i], s.letters.MaxRecord()-againRoom)
		if err != nil {
			return nil, err
		}
		size += len(d.Data)
		if i == appendLetters || i > 0 && size > appendBytes {
			break
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// letterOf makes the record of a rejection. Its texts are cut until it takes no more than limit bytes:
// the journal leaves room for a letter without them in the record of its largest event.
func letterOf(sink string, r *relay.Rejection, limit int) (d store.Draft, err error) {
	var b record.Batch
	b.AddEvent(&r.Event)
	event := record.Append(nil, b.Bytes(), b.Len())
	for most := maxText; most > 0; most /= 2 {
		h := head{Source: r.Event.Source, Event: plaintext.Line(r.Event.ID, most), Reason: plaintext.Line(r.Reason, most), Attempts: r.Attempts}
		if d, err = draftOf(sink, &h, event); err != nil || len(d.Key)+len(d.Data) <= limit {
			break
		}
	}
	return d, err
}

func draftOf(sink string, h *head, event []byte) (store.Draft, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return store.Draft{}, fmt.Errorf("encode a dead letter: %w", err)
	}
	return store.Draft{Kind: kindLetter, Key: sink, Data: append(append(line, '\n'), event...)}, nil
}

// headIn reads the head of a letter. The event's record follows it.
func headIn(r *store.Record) (h head, event []byte, err error) {
	line, event, _ := bytes.Cut(r.Data, []byte{'\n'})
	if err := json.Unmarshal(line, &h); err != nil {
		return head{}, nil, fmt.Errorf("decode dead letter %d: %w", r.Pos, err)
	}
	if h.ID == 0 {
		h.ID, h.Time = r.Pos, r.Time.UTC()
	}
	return h, event, nil
}

// Remove removes letters for good. A missing letter is no error. A crash on the way leaves
// some of them; when Remove has returned, none comes back.
func (s *Store) Remove(ctx context.Context, numbers []uint64) error {
	if _, err := s.catchUp(ctx); err != nil {
		return err
	}
	for chunk := range slices.Chunk(s.index.live(numbers), removedAtOnce) {
		var data []byte
		for _, id := range chunk {
			data = binary.AppendUvarint(data, uint64(id))
		}
		at, err := s.append(ctx, []store.Draft{{Kind: kindRemoved, Data: data}})
		if err != nil {
			return fmt.Errorf("remove %d dead letters: %w", len(chunk), err)
		}
		if err := s.await(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// removedIn reads the numbers of removed letters.
func removedIn(r *store.Record) (ids []store.Pos, err error) {
	for data := r.Data; len(data) > 0; {
		id, n := binary.Uvarint(data)
		if n <= 0 {
			return ids, fmt.Errorf("the removed letters at position %d cannot be decoded", r.Pos)
		}
		ids, data = append(ids, store.Pos(id)), data[n:]
	}
	return ids, nil
}
