package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// note says how far a log reached, for the next process.
type note struct {
	// URL is where the log was. With another URL the log may be another one by intent.
	URL    string `json:"url,omitempty"`
	Newest spot   `json:"newest"`
	Meta   meta   `json:"meta"`
}

// isEarlier reports whether a note of the same file was written before another one: positions grow, and
// where they did not, the shifts of one stream and the marks of trims.
func (n *note) isEarlier(than *note) bool {
	return cmp.Or(
		cmp.Compare(n.Newest.Pos, than.Newest.Pos),
		cmp.Compare(n.Meta.Created, than.Meta.Created),
		cmp.Compare(n.Meta.last().Shift, than.Meta.last().Shift),
		cmp.Compare(n.Meta.Trimmed, than.Meta.Trimmed),
	) < 0
}

// A note's file has two slots that are written in turn, so that a torn write leaves the
// note before it. A slot is a checksum, a length, and the note in JSON. After them are the newest
// records, each at a place that its position says: its position, its nonce and a checksum.
const (
	slotSize = 64 << 10
	slotHead = 8 + 4
	spotSize = 8 + 8 + 8
)

// noteFile keeps the newest note of a log in the data directory. It is written before an
// append is acknowledged, and without a sync: after a kill it is exact, and after a power
// cut it may be older.
type noteFile struct {
	f       *os.File
	mu      sync.Mutex // guards the file and the fields below
	newest  store.Pos
	written int
}

// openNote opens the file, or makes it, and returns the newest note in it.
func (s *Store) openNote(name string) (*noteFile, note, error) {
	return openNote(filepath.Join(s.cfg.Dir, s.cfg.Journal.StreamPrefix), name)
}

func openNote(dir, name string) (*noteFile, note, error) {
	if err := durable.MakeDir(dir); err != nil {
		return nil, note{}, fmt.Errorf("make the folder of the notes on logs: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, note{}, fmt.Errorf("open the note on a log: %w", err)
	}
	n := &noteFile{f: f}
	var newest note
	for i := range 2 {
		b := make([]byte, slotSize)
		read, _ := f.ReadAt(b, int64(i)*slotSize) // up to the file's end, perhaps nothing
		size := binary.LittleEndian.Uint32(b[8:])
		if int(size) > read-slotHead || xxhash.Sum64(b[8:slotHead+size]) != binary.LittleEndian.Uint64(b) {
			continue
		}
		var found note
		if json.Unmarshal(b[slotHead:slotHead+size], &found) == nil && !found.isEarlier(&newest) {
			newest, n.written, n.newest = found, i, found.Newest.Pos
		}
	}
	return n, newest, nil
}

// write keeps a note, unless a newer one was kept. A crash in the middle leaves the note of
// the other slot.
func (n *noteFile) write(to note) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if to.Newest.Pos < n.newest {
		return nil
	}
	text, err := json.Marshal(&to)
	if err != nil {
		return err
	}
	if len(text) > slotSize-slotHead {
		return errors.New("the note on a log is too long")
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 8, slotHead+len(text)), uint32(len(text)))
	b = append(b, text...)
	binary.LittleEndian.PutUint64(b, xxhash.Sum64(b[8:]))
	next := 1 - n.written
	if _, err := n.f.WriteAt(b, int64(next)*slotSize); err != nil {
		return fmt.Errorf("write the note on a log: %w", err)
	}
	n.written, n.newest = next, to.Newest.Pos
	return nil
}

// add keeps a record, for the next process to tell which of the newest are still there. A crash
// before it leaves one that was not acknowledged.
func (n *noteFile) add(id logID, s spot) error {
	b := s.encode(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.f.WriteAt(b, 2*slotSize+int64(s.Pos%ringSize)*spotSize); err != nil {
		return fmt.Errorf("write the note on a log: %w", err)
	}
	return nil
}

// encode has the log's id in the checksum, as the file may have been another log's.
func (s spot) encode(id logID) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, spotSize+len(id)), uint64(s.Pos))
	b = binary.LittleEndian.AppendUint64(b, s.Nonce)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(append(b, id[:]...)))
}

// spots are the records of a log that were kept.
func (n *noteFile) spots(id logID) (all []spot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := make([]byte, ringSize*spotSize)
	read, _ := n.f.ReadAt(b, 2*slotSize) // up to the file's end, perhaps nothing
	for b = b[:read]; len(b) >= spotSize; b = b[spotSize:] {
		s := spot{store.Pos(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])}
		if bytes.Equal(s.encode(id), b[:spotSize]) {
			all = append(all, s)
		}
	}
	return all
}

// close may be called twice.
func (n *noteFile) close() error {
	if err := n.f.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// remember keeps the newest position for the next process: exactly in the data directory,
// and within a moment in the table.
func (l *Log) remember(newest spot) error {
	n := l.noteOf(newest)
	if err := l.note.write(n); err != nil {
		return err
	}
	data, err := json.Marshal(note{Newest: newest, Meta: meta{ID: n.Meta.ID}})
	if err != nil {
		return err
	}
	return l.store.table.lazily(put{subject: l.endSubject(), key: l.name, data: data})
}

func (l *Log) noteOf(newest spot) note {
	return note{URL: l.store.cfg.Journal.URL, Newest: newest, Meta: *l.meta()}
}

// endSubject is the subject in the table of how far the log reached.
func (l *Log) endSubject() string { return l.store.table.stream + ".end." + l.stream }

// loadEnd reads from the table how far the log reached. An older one is no harm.
func (l *Log) loadEnd(ctx context.Context) (n note, err error) {
	_, err = l.load(ctx, l.endSubject(), &n)
	return n, err
}
