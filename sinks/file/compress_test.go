package file

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// deliverEach delivers one event at a time.
func deliverEach(t *testing.T, s *Sink, events []relay.Event) {
	t.Helper()
	for i := range events {
		require.NoError(t, s.Deliver(t.Context(), events[i:i+1]))
	}
}

// settled waits until n archives are compressed, and nothing is left to do.
func settled(t *testing.T, path string, n int) []archive {
	t.Helper()
	var all []archive
	waiting.Until(t, func() bool {
		var err error
		all, err = archives(path)
		require.NoError(t, err)
		for _, a := range all {
			if a.plain || a.partial || !a.packed {
				return false
			}
		}
		return len(all) == n
	}, "the archives are not all compressed")
	return all
}

func TestRotatedFilesAreCompressed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 20_000, Gzip: true})
	events := relaytest.Events(200)
	for i := 0; i < len(events); i += 5 {
		require.NoError(t, s.Deliver(t.Context(), events[i:i+5]))
		requireIDs(t, events[:i+5], path) // while some are being compressed
	}
	names, err := readback.Files(path)
	require.NoError(t, err)
	all := settled(t, path, len(names)-1)
	require.Greater(t, len(all), 5)
	requireIDs(t, events, path)

	f, err := os.Open(all[0].packedName())
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	unpacker, err := gzip.NewReader(f) // another implementation than the one that wrote it
	require.NoError(t, err)
	plain, err := io.ReadAll(unpacker)
	require.NoError(t, err)
	var whole []byte
	for i := range events {
		whole = AppendLine(whole, &events[i])
	}
	assert.Greater(t, len(plain), 10_000)
	assert.True(t, bytes.HasPrefix(whole, plain))
	packed, err := f.Stat()
	require.NoError(t, err)
	assert.Less(t, packed.Size(), int64(len(plain)/2))
	assert.Equal(t, os.FileMode(0o600), packed.Mode().Perm())
}

func TestKeepCountsBothForms(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	events := relaytest.Events(12)
	s := newSink(t, config.File{Path: path, RotateBytes: 1})
	deliverEach(t, s, events[:4]) // plain ones, written before gzip was switched on
	require.NoError(t, s.Close())
	s = newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true, Keep: 5})
	deliverEach(t, s, events[4:8])
	settled(t, path, 5)
	requireIDs(t, events[2:8], path)
	deliverEach(t, s, events[8:])
	settled(t, path, 5)
	requireIDs(t, events[6:], path)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 6)
}

// compressNow compresses without a goroutine.
func compressNow(t *testing.T, path string, d disk) {
	t.Helper()
	c := compressor{path: path, logger: slog.New(slog.DiscardHandler), disk: d, names: new(sync.Mutex), ctx: t.Context()}
	c.all()
}

var errCrash = errors.New("the machine is off")

// crashing returns a disk that does n more operations, then half of the next one, and nothing
// after that.
func crashing(n int) (disk, func() bool) {
	d, crashed := realDisk(), false
	off := func() bool {
		n--
		crashed = crashed || n < 0
		return n < 0
	}
	whole := d
	d.write = func(f *os.File, b []byte) (int, error) {
		if off() {
			if n == -1 {
				_, _ = f.Write(b[:len(b)/2])
			}
			return 0, errCrash
		}
		return whole.write(f, b)
	}
	d.sync = func(f *os.File) error {
		if off() {
			return errCrash
		}
		return whole.sync(f)
	}
	d.rename = func(from, to string) error {
		if off() {
			return errCrash
		}
		return whole.rename(from, to)
	}
	d.remove = func(name string) error {
		if off() {
			return errCrash
		}
		return whole.remove(name)
	}
	d.syncDir = func(dir string) error {
		if off() {
			return errCrash
		}
		return whole.syncDir(dir)
	}
	return d, func() bool { return crashed }
}

// A crash at each step of a compression leaves every event readable, once. The next start
// finishes the work, whether or not it compresses.
func TestCrashAtEachStepOfACompression(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(60)
	for n := 0; ; n++ {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		s := newSink(t, config.File{Path: path})
		require.NoError(t, s.Deliver(t.Context(), events[:40]))
		name := rotatedName(path, time.Now())
		require.NoError(t, os.Rename(path, name))
		d, crashed := crashing(n)
		compressNow(t, path, d)
		requireIDs(t, events[:40], path)
		require.NoError(t, s.Close())

		s = newSink(t, config.File{Path: path, Gzip: n%2 == 0})
		require.NoError(t, s.Deliver(t.Context(), events[40:]))
		requireIDs(t, events, path)
		if n%2 == 0 {
			settled(t, path, 1)
			requireIDs(t, events, path)
		}
		assert.NoFileExists(t, name+partialExt)
		if !crashed() {
			require.Greater(t, n, 5, "it took fewer steps than there are")
			return
		}
	}
}

// If the compression finds no space, the file stays, deliveries go on, and it is compressed
// when there is space again.
func TestFullDiskOnCompression(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true})
	events := relaytest.Events(10)
	full := make(chan struct{}, 100)
	s.compressor.disk.write = func(f *os.File, b []byte) (int, error) {
		n, _ := f.Write(b[:len(b)/2])
		full <- struct{}{}
		return n, syscall.ENOSPC
	}
	deliverEach(t, s, events[:5])
	<-full
	require.NoError(t, s.Close())
	requireIDs(t, events[:5], path)
	all, err := archives(path)
	require.NoError(t, err)
	require.Len(t, all, 4)
	for _, a := range all {
		assert.Equal(t, archive{name: a.name, plain: true}, a)
	}
	s = newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true})
	deliverEach(t, s, events[5:])
	settled(t, path, 9)
	requireIDs(t, events, path)
}

// stuck makes the compressor's syncs wait until release is closed, and tells when the first has
// begun.
func stuck(s *Sink) (begun <-chan struct{}, release chan struct{}) {
	start, release := make(chan struct{}, 100), make(chan struct{})
	s.compressor.disk.sync = func(f *os.File) error {
		start <- struct{}{}
		<-release
		return f.Sync()
	}
	return start, release
}

func TestDeliveryDoesNotWaitForACompression(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true})
	events := relaytest.Events(20)
	begun, release := stuck(s)
	deliverEach(t, s, events[:2])
	<-begun
	deliverEach(t, s, events[2:])
	requireIDs(t, events, path)
	all, err := archives(path)
	require.NoError(t, err)
	require.Len(t, all, 19)
	partial := 0
	for _, a := range all {
		assert.True(t, a.plain)
		if a.partial {
			partial++
		}
	}
	assert.Equal(t, 1, partial, "one at a time")
	close(release)
	settled(t, path, 19)
	requireIDs(t, events, path)
}

func TestCloseGivesACompressionUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true})
	events := relaytest.Events(5)
	begun, release := stuck(s)
	deliverEach(t, s, events)
	<-begun
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-s.compressor.ctx.Done()
	close(release)
	require.NoError(t, <-closed)
	all, err := archives(path)
	require.NoError(t, err)
	for _, a := range all {
		assert.Equal(t, archive{name: a.name, plain: true}, a)
	}
	requireIDs(t, events, path)
}

// An archive that is past its retention does not come back through compression.
func TestRemovedWhileCompressed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true, Keep: 2})
	events := relaytest.Events(8)
	begun, release := stuck(s)
	deliverEach(t, s, events[:2])
	<-begun
	deliverEach(t, s, events[2:])
	close(release)
	settled(t, path, 2)
	requireIDs(t, events[5:], path)
}

// Neither does one that is removed before its compression began.
func TestRemovedBeforeItIsCompressed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	name := rotatedName(path, time.Now())
	require.NoError(t, os.WriteFile(name, []byte("{}\n"), 0o600))
	d := realDisk()
	d.sync = func(f *os.File) error { return errors.Join(os.Remove(name), f.Sync()) }
	compressNow(t, path, d)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// If what an earlier attempt left cannot be deleted, it is overwritten.
func TestRestOfACompressionIsWrittenOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	name := rotatedName(path, time.Now())
	require.NoError(t, os.WriteFile(name, []byte("{}\n"), 0o600))
	require.NoError(t, os.WriteFile(name+partialExt, make([]byte, 10_000), 0o600))
	compressNow(t, path, realDisk())
	settled(t, path, 1)
}

// A copy that was written wrongly does not replace the only good one.
func TestCompressedFormIsReadBack(t *testing.T) {
	t.Parallel()
	var other bytes.Buffer
	packer := gzip.NewWriter(&other)
	_, err := packer.Write([]byte("{}\n"))
	require.NoError(t, errors.Join(err, packer.Close()))
	for name, damage := range map[string]func(b []byte) []byte{
		"another file":  func([]byte) []byte { return other.Next(other.Len()) }, // once
		"a flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"nothing":       func(b []byte) []byte { return b[:0] },
	} {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		d := realDisk()
		d.write = func(f *os.File, b []byte) (int, error) {
			_, err := f.Write(damage(append([]byte(nil), b...)))
			return len(b), err
		}
		events := relaytest.Events(100)
		require.NoError(t, newSink(t, config.File{Path: path}).Deliver(t.Context(), events))
		require.NoError(t, os.Rename(path, rotatedName(path, time.Now())))
		compressNow(t, path, d)
		all, err := archives(path)
		require.NoError(t, err)
		require.Equal(t, []archive{{name: all[0].name, plain: true}}, all, name)
		requireIDs(t, events, path)
	}
}

func TestArchivesAreRecognised(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 3, 8, 30, 0, 0, time.UTC)
	for _, base := range []string{"events.jsonl", "events", "events.gz", "e.v.jsonl.gz"} {
		dir := t.TempDir()
		path := filepath.Join(dir, base)
		first, second := rotatedName(path, at), rotatedName(path, at.Add(time.Hour))
		for _, name := range []string{
			first + packedExt, second, second + packedExt, second + partialExt,
			filepath.Join(dir, "other-20261103T083000.000000000Z.jsonl.gz"), path + ".gz", path + "-now.gz", first + ".gz.bak",
		} {
			require.NoError(t, os.WriteFile(name, nil, 0o600))
		}
		require.NoError(t, os.Mkdir(rotatedName(path, at.Add(2*time.Hour)), 0o700))
		all, err := archives(path)
		require.NoError(t, err)
		assert.Equal(t, []archive{{name: first, packed: true}, {name: second, plain: true, packed: true, partial: true}}, all, base)
	}
}

func TestReadNamesADamagedArchive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Gzip: true})
	deliverEach(t, s, relaytest.Events(2))
	name := settled(t, path, 1)[0].packedName()
	require.NoError(t, os.Truncate(name, 100))
	for _, err := range readback.Records(path) {
		require.ErrorContains(t, err, strings.TrimSuffix(name, packedExt))
		break
	}
	require.NoError(t, os.WriteFile(name, []byte("not gzip at all"), 0o600))
	for _, err := range readback.Records(path) {
		require.ErrorContains(t, err, name)
		break
	}
}

// BenchmarkCompress turns one file from its plain form into its compressed one, with all syncs.
func BenchmarkCompress(b *testing.B) {
	path := filepath.Join(b.TempDir(), "events.jsonl")
	var plain []byte
	for _, e := range relaytest.Events(32_000) {
		plain = AppendLine(plain, &e)
	}
	b.SetBytes(int64(len(plain)))
	for at := time.Unix(0, 0); b.Loop(); at = at.Add(1) {
		a := archive{name: rotatedName(path, at)}
		require.NoError(b, os.WriteFile(a.name, plain, 0o600))
		c := compressor{path: path, logger: slog.New(slog.DiscardHandler), disk: realDisk(), names: new(sync.Mutex), ctx: b.Context()}
		require.NoError(b, c.compress(a))
	}
}
