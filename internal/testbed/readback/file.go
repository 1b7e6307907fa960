package readback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// File reads the file sink's file, and the rotated ones next to it, compressed or not.
// Counting is cheap only without rotated ones.
type File struct {
	Path  string // the sink's
	lines int64  // counted so far in the one file; used by one goroutine
	at    int64  // up to this offset
}

// Name implements [Destination].
func (d *File) Name() string { return "file" }

// Count implements [Destination].
func (d *File) Count(ctx context.Context) (int64, error) {
	names, err := Files(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case len(names) == 1:
		return d.countAdded()
	}
	var n int64
	err = d.Read(ctx, func(string, []byte) { n++ })
	return n, err
}

// countAdded counts the lines added since the last call.
func (d *File) countAdded() (int64, error) {
	f, err := os.Open(d.Path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(d.at, io.SeekStart); err != nil {
		return 0, err
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		d.lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		d.at += int64(n)
		if errors.Is(err, io.EOF) {
			return d.lines, nil
		}
		if err != nil {
			return d.lines, err
		}
	}
}

// Read implements [Destination].
func (d *File) Read(ctx context.Context, record func(id string, body []byte)) error {
	for r, err := range Records(d.Path) {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		record(strings.Clone(r.ID()), r.Body)
	}
	return nil
}
