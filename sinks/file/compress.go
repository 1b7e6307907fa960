package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/klauspost/compress/gzip"
)

// A compressor turns rotated files into .gz, one at a time, in a goroutine of its own, so
// that no delivery waits for it.
//
// Wherever a crash happens, each event is in the plain form or in the compressed one, or
// in both; then a reader takes the plain one:
//
//   - while NAME.gz.tmp is written, NAME is untouched; the next start removes what was
//     left, and compresses NAME again;
//   - NAME.gz.tmp becomes NAME.gz once it is complete, was read back, and is synced, so
//     that a file with the name NAME.gz is always complete;
//   - NAME is removed once the name NAME.gz is synced; before that, or if the removal was
//     lost in a crash, both are there, and NAME is compressed again.
type compressor struct {
	path   string
	logger *slog.Logger
	disk   disk        // set before the first call of wake
	names  *sync.Mutex // held where archives get their names or lose them

	due   chan struct{} // has room for one reminder
	ctx   context.Context
	end   context.CancelFunc
	ended chan struct{}
}

func newCompressor(s *Sink) *compressor {
	c := &compressor{
		path: s.cfg.Path, logger: s.opts.Logger, disk: s.disk, names: &s.names,
		due: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	go c.run()
	return c
}

// wake makes the compressor look for something to compress.
func (c *compressor) wake() {
	select {
	case c.due <- struct{}{}:
	default: // a reminder is waiting already
	}
}

// close ends a compression that is under way; the next start repeats it.
func (c *compressor) close() {
	c.end()
	<-c.ended
}

func (c *compressor) run() {
	defer close(c.ended)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.due:
			c.all()
		}
	}
}

// all compresses the plain files, the oldest first. After an error a file stays as it is,
// and is tried again after the next rotation.
func (c *compressor) all() {
	found, err := archives(c.path)
	if err != nil {
		c.logger.Warn("rotated files cannot be compressed", "path", c.path, "err", err)
		return
	}
	for _, a := range found {
		if !a.plain {
			continue
		}
		err := c.compress(a)
		if c.ctx.Err() != nil {
			return
		}
		if err != nil {
			c.logger.Warn("rotated file could not be compressed, and stays as it is", "path", a.name, "err", err)
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return // there is none for the others either
		}
	}
}

func (c *compressor) compress(a archive) error {
	err := c.pack(a)
	if err == nil {
		err = c.replace(a)
	}
	if err == nil {
		return nil
	}
	_ = c.disk.remove(a.partialName()) // what is left does no harm, and is removed at the next start
	if _, gone := os.Lstat(a.name); errors.Is(gone, fs.ErrNotExist) {
		return nil // it was too old to be kept
	}
	return err
}

// pack writes the compressed form under its temporary name, and makes sure that it is good.
func (c *compressor) pack(a archive) error {
	in, err := os.Open(a.name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(a.partialName(), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // it is synced, or not used
	packer := gzip.NewWriter(writer{c.disk, out})
	size, err := io.Copy(packer, reader{c.ctx, in})
	if err == nil {
		err = packer.Close()
	}
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := c.disk.sync(out); err != nil {
		return fmt.Errorf("sync %s: %w", a.partialName(), err)
	}
	return c.readBack(out, size)
}

// readBack checks the length and the checksum, because the plain form, which is the only copy,
// is about to be removed.
func (c *compressor) readBack(f *os.File, size int64) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unpacker, err := gzip.NewReader(reader{c.ctx, f})
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	n, err := io.Copy(io.Discard, unpacker)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

// replace puts the compressed form in the place of the plain one.
func (c *compressor) replace(a archive) error {
	c.names.Lock()
	defer c.names.Unlock()
	if _, err := os.Lstat(a.name); err != nil {
		return err // a file that was removed meanwhile must not come back
	}
	// A crash before the rename leaves a temporary file next to the plain form, and one after
	// it leaves both forms, complete.
	if err := c.disk.rename(a.partialName(), a.packedName()); err != nil {
		return err
	}
	// Without this, the removal of the plain form could reach the disk before the name of the
	// compressed form.
	if err := c.disk.syncDir(filepath.Dir(a.name)); err != nil {
		return err
	}
	if err := c.disk.remove(a.name); err != nil {
		return err
	}
	c.logger.Info("rotated file compressed", "path", a.packedName())
	return nil
}

// sweep removes what interrupted compressions left. None may be under way.
func (s *Sink) sweep() error {
	found, err := archives(s.cfg.Path)
	if err != nil {
		return err
	}
	for _, a := range found {
		if !a.partial {
			continue
		}
		if err := s.disk.remove(a.partialName()); err != nil {
			s.opts.Logger.Warn("rest of a compression could not be removed", "path", a.partialName(), "err", err)
		}
	}
	return nil
}

// writer writes to a file through the disk, which tests can make fail.
type writer struct {
	disk disk
	file *os.File
}

func (w writer) Write(b []byte) (int, error) { return w.disk.write(w.file, b) }

// reader reads until a context ends.
type reader struct {
	ctx context.Context
	in  io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}
