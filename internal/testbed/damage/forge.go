package damage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/places"
)

// Drafts are the records of a log, as they were appended.
func (s Store) Drafts(ctx context.Context, log string) (all []store.Draft, err error) {
	err = s.Read(ctx, log, func(item store.Item) error {
		if r := item.Record; r != nil {
			all = append(all, store.Draft{Kind: r.Kind, Key: r.Key, Data: bytes.Clone(r.Data)})
		}
		return nil
	})
	return all, err
}

// Rewrite puts another log with these records in the place of a log, as whoever may write the
// files can do with the program's own code. It has another ID.
func (s Store) Rewrite(ctx context.Context, log string, drafts []store.Draft) error {
	apart := string(s) + ".forged"
	opened, err := disk.Open(disk.Config{Dir: apart, Writer: "forger", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	l, err := opened.Log(ctx, log, store.Options{})
	if err == nil && len(drafts) > 0 {
		_, err = l.Append(ctx, drafts...)
	}
	if err = errors.Join(err, opened.Close(), s.LoseFolder(log)); err != nil {
		return err
	}
	for _, name := range []string{log, log + ".end"} {
		err = errors.Join(err, os.Rename(filepath.Join(apart, name), filepath.Join(string(s), name)))
	}
	return errors.Join(err, os.RemoveAll(apart))
}

// Forge changes the data of the k-th record of a log in its place, under a checksum that is
// right: what seeds it stands in the header of the file. change keeps the length.
func (s Store) Forge(log string, k int, change func(data []byte)) error {
	const header, keyLength, sumSize = 48, 6, 8 // see disk's format of a record
	at, err := s.place(log, Record, k)
	if err != nil {
		return err
	}
	b, err := read(at.File, at.Offset, at.Size)
	if err != nil {
		return err
	}
	head, err := read(at.File, 0, 512)
	if err != nil {
		return err
	}
	seed, _ := places.Seed(head)
	body := b[header : len(b)-sumSize]
	change(body[binary.LittleEndian.Uint16(b[keyLength:]):])
	d := xxhash.NewWithSeed(seed ^ uint64(at.Pos))
	_, _ = d.Write(body)
	binary.LittleEndian.PutUint64(b[len(b)-sumSize:], d.Sum64())
	return write(at.File, at.Offset, b)
}

// Erase makes the k-th record of a log read as zeros.
func (s Store) Erase(log string, k int) error {
	at, err := s.place(log, Record, k)
	if err != nil {
		return err
	}
	return write(at.File, at.Offset, make([]byte, at.Size))
}
