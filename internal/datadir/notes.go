package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// notesDir is the folder of the notes beside the watermarks.
const notesDir = "sealed"

// note says a sealed block was read and all its frames were sound. It holds the block's
// entry for the server's index. A start takes such a block on trust, and scrubs it later.
type note struct {
	identity
	blockfile.Summary
}

// holdsAny reports whether one of the positions lies in the block.
func (n *note) holdsAny(positions []uint64) bool {
	return slices.ContainsFunc(positions, func(p uint64) bool { return n.First <= p && p <= n.Last })
}

// identity tells an unchanged file from a changed one. No program sets Changed, the
// inode's own time: a block changed, replaced, or put back from a copy has another
// identity, and is read again. So a note can be stale, but not wrong. It only misses rot
// below the file system.
type identity struct {
	Size     int64
	Inode    uint64
	Modified int64 // ns since 1970
	Changed  int64 // ns since 1970
}

func identify(path string) (identity, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{Size: s.Size, Inode: s.Ino, Modified: s.Mtim.Nano(), Changed: s.Ctim.Nano()}, nil
}

// notes are the notes of a stream, in a file of lines: each a checksum and a note. They
// are written without a sync, each behind a sync of its block: a note lost in a crash
// costs the reading of its block.
type notes struct {
	path string

	mu      sync.Mutex
	byBlock map[uint32]note // guarded by mu
	lines   int             // in the file; guarded by mu
}

// readNotes reads a stream's notes, except damaged ones: a start reads their blocks
// instead.
func (d *Dir) readNotes(stream string, log *slog.Logger) *notes {
	n := &notes{path: filepath.Join(d.path, "marks", notesDir, stream), byBlock: map[uint32]note{}}
	text, err := os.ReadFile(n.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("reading the notes of verified blocks failed; the start reads all blocks", "error", err)
	}
	for line := range bytes.Lines(text) {
		n.lines++
		if one, ok := decodeNote(bytes.TrimSpace(line)); ok {
			n.byBlock[one.Index] = one
		}
	}
	return n
}

func encodeNote(n note) []byte {
	text, _ := json.Marshal(n) // of numbers and strings
	return append(strconv.AppendUint(nil, xxhash.Sum64(text), 16), append(append([]byte{' '}, text...), '\n')...)
}

func decodeNote(line []byte) (n note, ok bool) {
	sum, text, found := bytes.Cut(line, []byte{' '})
	want, err := strconv.ParseUint(string(sum), 16, 64)
	if !found || err != nil || want != xxhash.Sum64(text) {
		return note{}, false
	}
	return n, json.Unmarshal(text, &n) == nil
}

// of returns the note of a block, if the file is still the noted one. Nil notes have
// none.
func (n *notes) of(path string) (note, bool) {
	if n == nil {
		return note{}, false
	}
	index, err := blockfile.IndexOf(path)
	if err != nil {
		return note{}, false
	}
	n.mu.Lock()
	one, ok := n.byBlock[index]
	n.mu.Unlock()
	if !ok {
		return note{}, false
	}
	now, err := identify(path)
	return one, err == nil && now == one.identity
}

// knows reports whether there is a note of the block, of any identity.
func (n *notes) knows(index uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.byBlock[index]
	return ok
}

// add notes a sound block, with its identity from before it was read. It syncs the block
// first: if the note outlives a power loss, the block must too.
func (n *notes) add(path string, one note) error {
	if err := syncFile(path); err != nil {
		return fmt.Errorf("note a verified block: %w", err)
	}
	if now, err := identify(path); err != nil || now != one.identity {
		return err // it changed meanwhile
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.append(encodeNote(one)); err != nil {
		return err
	}
	n.byBlock[one.Index] = one
	return nil
}

// append writes lines behind the others. A crash leaves a torn line, and the next start
// skips it. mu is held.
func (n *notes) append(text []byte) (err error) {
	if err := durable.MakeDir(filepath.Dir(n.path)); err != nil {
		return fmt.Errorf("note a verified block: %w", err)
	}
	f, err := os.OpenFile(n.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note a verified block: %w", err)
	}
	n.lines++
	_, err = f.Write(append([]byte{'\n'}, text...)) // apart from a torn line before it
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("note a verified block: %w", err)
	}
	return nil
}

// drop forgets blocks, and rewrites the file when due. It is durable when it returns: the
// next start reads the blocks.
func (n *notes) drop(blocks ...uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range blocks {
		delete(n.byBlock, b)
	}
	var text []byte
	for _, one := range n.byBlock {
		text = append(text, encodeNote(one)...)
	}
	n.lines = len(n.byBlock)
	return keepFile(n.path, text)
}

// trim forgets the blocks before one, once they are the greater part of the file.
func (n *notes) trim(oldest uint32) error {
	n.mu.Lock()
	var gone []uint32
	for index := range n.byBlock {
		if index < oldest {
			gone = append(gone, index)
		}
	}
	due := n.lines > 1024+4*(len(n.byBlock)-len(gone))
	n.mu.Unlock()
	if !due {
		return nil
	}
	return n.drop(gone...)
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
