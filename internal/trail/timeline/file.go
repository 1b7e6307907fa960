package timeline

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// The file begins with formatLine. Each batch follows with its length and its CRC-32C, 4
// bytes each.
const (
	formatLine = "auditrelay trail index 5\n"
	frameBytes = 8
	maxBatch   = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// load takes over the file, unless it was taken over already.
func (x *Index) load(ctx context.Context) error {
	if x.file != nil {
		return nil
	}
	file, err := os.OpenFile(x.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return x.create()
	}
	if err != nil {
		return fmt.Errorf("open the index of the audit trail: %w", err)
	}
	l := loader{file: file}
	l.run()
	ours := l.end > 0
	for _, e := range []entryHash{l.first, l.last} {
		same, err := e.isOf(ctx, x.trail)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		ours = ours && same
	}
	if !ours {
		_ = file.Close() // it was only read
		x.log.Info("the index of the audit trail is made again", "file", x.path)
		return x.create()
	}
	// A torn end, or a damaged batch: the trail has the rest. Cut off, so nothing of it
	// is ever taken for a batch that follows a new one.
	if err := file.Truncate(l.end); err != nil {
		return errors.Join(fmt.Errorf("cut the index of the audit trail: %w", err), file.Close())
	}
	x.use(file, l.end, l.table)
	return nil
}

// create begins an empty file. A crash leaves the old file or the empty one: a start
// reads the trail, and finds the old one foreign again.
func (x *Index) create() error {
	if err := durable.WriteFile(x.path, []byte(formatLine)); err != nil {
		return fmt.Errorf("make the index of the audit trail: %w", err)
	}
	file, err := os.OpenFile(x.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the index of the audit trail: %w", err)
	}
	x.use(file, int64(len(formatLine)), table{})
	return nil
}

func (x *Index) use(file *os.File, end int64, t table) {
	x.next, x.pending = t.n, nil
	x.ids = make(map[string]uint16, len(t.names))
	for id, name := range t.names {
		x.ids[name] = uint16(id)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.file, x.end, x.rows = file, end, t
}

// closeFile ends the use of the file.
func (x *Index) closeFile() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file != nil {
		_ = x.file.Close() // every batch in it was synced
		x.file, x.reached, x.err = nil, -1, errors.New("the relay is shutting down")
		x.tell()
	}
}

// flush writes the pending rows as one batch, and then adds them to the table.
//
// A crash before the sync leaves a torn batch, or none: the next start cuts it off and
// reads its entries from the trail. So does a failed write: the next flush writes over it.
func (x *Index) flush() error {
	if len(x.pending) == 0 {
		return nil
	}
	batch := x.rows.encode(x.ids, x.pending, x.newest, x.leaf)
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(batch)))
	frame = binary.LittleEndian.AppendUint32(frame, crc32.Checksum(batch, castagnoli))
	_, err := x.file.WriteAt(append(frame, batch...), x.end)
	if err == nil {
		err = x.file.Sync()
	}
	if err != nil {
		x.forget()
		return fmt.Errorf("write the index of the audit trail: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, _, err := x.rows.apply(batch, x.end+frameBytes); err != nil {
		return err // never: encode made it
	}
	x.end += int64(frameBytes + len(batch))
	x.pending = x.pending[:0]
	x.tell()
	return nil
}

// forget takes back the names of an unwritten batch.
func (x *Index) forget() {
	for name, id := range x.ids {
		if int(id) >= len(x.rows.names) {
			delete(x.ids, name)
		}
	}
}

// loader reads a file, up to its first bad batch.
type loader struct {
	file        *os.File
	table       table
	end         int64
	first, last entryHash
}

func (l *loader) run() {
	head := make([]byte, len(formatLine))
	if _, err := l.file.ReadAt(head, 0); err != nil || string(head) != formatLine {
		return
	}
	l.end = int64(len(head))
	for in := bufio.NewReaderSize(io.NewSectionReader(l.file, l.end, math.MaxInt64-l.end), 1<<20); l.batch(in); {
	}
}

// batch takes one over, and reports whether it was good.
func (l *loader) batch(in io.Reader) bool {
	head := make([]byte, frameBytes)
	if _, err := io.ReadFull(in, head); err != nil {
		return false
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxBatch {
		return false
	}
	batch := make([]byte, size)
	if _, err := io.ReadFull(in, batch); err != nil || crc32.Checksum(batch, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return false
	}
	newest, leaf, err := l.table.apply(batch, l.end+frameBytes)
	if err != nil { // sound, and not a batch of ours: nothing of it is used
		l.table, l.end = table{}, 0
		return false
	}
	l.last = entryHash{newest, leaf}
	if l.first == (entryHash{}) {
		l.first = l.last
	}
	l.end += int64(frameBytes) + int64(size)
	return true
}

// entryHash names an entry of a trail.
type entryHash struct {
	index int64
	leaf  tlog.Hash
}

// isOf reports whether the trail has the entry.
func (e entryHash) isOf(ctx context.Context, trail Trail) (bool, error) {
	if e == (entryHash{}) { // of no entries
		return true, nil
	}
	found, err := trail.Get(ctx, e.index)
	switch {
	case errors.Is(err, audit.ErrMissing), errors.Is(err, audit.ErrDamaged):
		return false, nil
	case err != nil:
		return false, err
	}
	return found.Leaf == e.leaf, nil
}
