package readback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/auditrelay/auditrelay/sinks/file"
)

// File is the file sink's one file, which it never rotates.
type File struct {
	Path  string // the sink's
	lines int64  // counted so far; used by one goroutine
	at    int64  // up to this offset
}

// Name implements [Destination].
func (d *File) Name() string { return "file" }

// Count implements [Destination]; it counts the lines that were added since the last call.
func (d *File) Count(context.Context) (int64, error) {
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
	for r, err := range file.Read(d.Path) {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		record(strings.Clone(r.ID()), r.Body)
	}
	return nil
}
