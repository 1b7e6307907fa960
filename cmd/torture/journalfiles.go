package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/klauspost/compress/s2"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// The logs of a relay's store.
const (
	eventsLog      = "events"
	lettersLog     = "deadletters"
	quarantineLog  = "quarantine"
	entriesLog     = "trail.entries"
	checkpointsLog = "trail.checkpoints"
)

// files are those of the relay's store.
func (s *scene) files() damage.Store { return damage.Of(s.dataDir) }

// placed is a record in a file of the journal, with its data.
type placed struct {
	disk.Place
	data []byte
}

// load reads the data of records from their files.
func load(places []disk.Place) (all []placed, err error) {
	const before, after = 48, 8 // of a record's key and data, in the file
	for _, p := range places {
		f, err := os.Open(p.File)
		if err != nil {
			return nil, err
		}
		b := make([]byte, p.Size-before-after)
		_, err = f.ReadAt(b, p.Offset+before)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, placed{p, b[len(p.Key):]})
	}
	return all, nil
}

// ids returns the ids of the record's events. It looks for them in the text, and so does
// not rest on the decoder under test.
func (p *placed) ids() (ids []string, err error) {
	const header = 24 // of a record, before its S2 block
	if len(p.data) < header {
		return nil, fmt.Errorf("the record at position %d has %d bytes", p.Pos, len(p.data))
	}
	text, err := s2.Decode(nil, p.data[header:])
	if err != nil {
		return nil, fmt.Errorf("decompress the record at position %d: %w", p.Pos, err)
	}
	before := []byte(`"event_id":"`)
	for {
		_, rest, found := bytes.Cut(text, before)
		if !found {
			return ids, nil
		}
		id, rest, _ := bytes.Cut(rest, []byte{'"'})
		ids, text = append(ids, string(id)), rest
	}
}

// stretch is a run of positions of a log.
type stretch struct {
	Log      string    `json:"log"`
	From, To store.Pos // by these names in the quarantine, too
}

// gaps are the positions of a log that the files of a relay cannot give. The log may be
// missing as a whole.
func gaps(ctx context.Context, dir damage.Store, log string) (all []stretch, err error) {
	err = read(ctx, dir, log, func(item store.Item) error {
		if g := item.Gap; g != nil && g.Why != store.Trimmed {
			all = append(all, stretch{log, g.From, g.To})
		}
		return nil
	})
	return all, err
}

// quarantined are the positions named in the quarantine of a relay, which does not run.
func quarantined(ctx context.Context, dir damage.Store) (all []stretch, err error) {
	err = read(ctx, dir, quarantineLog, func(item store.Item) error {
		if item.Record == nil {
			return nil
		}
		var name stretch
		head, _, _ := bytes.Cut(item.Record.Data, []byte{'\n'})
		if err := json.Unmarshal(head, &name); err != nil {
			return fmt.Errorf("read a name of the quarantine: %w", err)
		}
		all = append(all, name)
		return nil
	})
	return all, err
}

// read gives a log of a store item by item, and none of a log that is not there.
func read(ctx context.Context, dir damage.Store, log string, each func(store.Item) error) error {
	v, err := disk.View(disk.Config{Dir: string(dir), Logger: slog.New(slog.DiscardHandler)})
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
