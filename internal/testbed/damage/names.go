package damage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// Stretch is a run of positions of a log, by the names that the quarantine has for it.
type Stretch struct {
	Log  string    `json:"log"`
	From store.Pos `json:"from"`
	To   store.Pos `json:"to"`
}

// Gaps are the positions of a log that the files cannot give, whoever was told of them.
func (s Store) Gaps(ctx context.Context, log string) (all []Stretch, err error) {
	err = s.Read(ctx, log, func(item store.Item) error {
		if g := item.Gap; g != nil && g.Why != store.Trimmed {
			all = append(all, Stretch{log, g.From, g.To})
		}
		return nil
	})
	return all, err
}

// Quarantined are the positions that the quarantine names, of a log or, with no name, of all.
func (s Store) Quarantined(ctx context.Context, logs ...string) (all []Stretch, err error) {
	err = s.Read(ctx, "quarantine", func(item store.Item) error {
		if item.Record == nil {
			return nil
		}
		var name Stretch
		head, _, _ := bytes.Cut(item.Record.Data, []byte{'\n'})
		if err := json.Unmarshal(head, &name); err != nil {
			return fmt.Errorf("read a name of the quarantine: %w", err)
		}
		if len(logs) == 0 || logs[0] == name.Log {
			all = append(all, name)
		}
		return nil
	})
	return all, err
}

// Read gives a log of the store item by item, whether a relay runs or not. A log that is not
// there is empty.
func (s Store) Read(ctx context.Context, log string, each func(store.Item) error) error {
	v, err := disk.View(disk.Config{Dir: string(s), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	l, err := v.Log(ctx, log, store.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		return v.Close()
	}
	if err != nil {
		return errors.Join(err, v.Close())
	}
	for item, err := range l.Read(ctx, 1, false) {
		if err == nil {
			err = each(item)
		}
		if err != nil {
			return errors.Join(err, v.Close())
		}
	}
	return v.Close()
}

// MakeLater gives a file of the store a version of its format that no program knows yet,
// under a header checksum that is right.
func MakeLater(path string) error {
	const headerSize, version, sum = 512, 8, 504
	b, err := read(path, 0, headerSize)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b[version:], 1000)
	binary.LittleEndian.PutUint64(b[sum:], xxhash.Sum64(b[:sum]))
	return errors.Join(write(path, 0, b), write(path, pageSize, b))
}
