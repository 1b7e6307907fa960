package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// mendDescriptions restores the damaged descriptions of a stream and its consumers from
// sound copies beside the watermarks. Otherwise the server would pass over the stream,
// consumers and all.
func (d *Dir) mendDescriptions(stream string, dry bool) ([]Mending, error) {
	var all []Mending
	err := d.eachDescription(stream, func(key, dir string) error {
		done, err := d.mendDescription(stream, key, dir, dry)
		all = append(all, done...)
		return err
	})
	return all, err
}

// eachDescription calls each with the key and the folder of every description of a stream
// and its consumers, until one fails.
func (d *Dir) eachDescription(stream string, each func(key, dir string) error) error {
	dir := d.streamDir(stream)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	consumers, err := blockfile.Consumers(dir)
	if err != nil {
		return err
	}
	if err := each(stream, dir); err != nil {
		return err
	}
	for _, name := range consumers {
		if err := each(stream+"/"+name, filepath.Join(dir, natsserver.ConsumersDir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) mendDescription(stream, key, dir string, dry bool) ([]Mending, error) {
	backup := d.descriptionCopy(key)
	sound, err := blockfile.Described(key, dir)
	if err != nil {
		return nil, err
	}
	if sound {
		return nil, nil
	}
	m := Mending{Stream: stream, File: d.relative(filepath.Join(dir, natsserver.Description)), From: 1, Problem: "the description is damaged"}
	restorable, err := blockfile.Described(key, backup)
	if err == nil && restorable && !dry && halfCopied(dir, backup) {
		d.restored = append(d.restored, key)
		return nil, copyDescription(backup, dir)
	}
	if err == nil && !restorable && key != stream && !exists(filepath.Join(dir, natsserver.Description)) {
		return nil, nil // an earlier start's rest of a consumer
	}
	if err != nil || dry {
		return []Mending{m}, err
	}
	m.Kept = salvageName(stream, "description") // a folder
	if err := d.salvageDescription(dir, m.Kept); err != nil {
		return nil, err
	}
	if restorable {
		m.Problem += "; the newest copy of it was put back"
		return []Mending{m}, copyDescription(backup, dir)
	}
	m.Problem += "; it is made again"
	for _, name := range descriptionFiles() {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("take away damaged description: %w", err)
		}
	}
	return []Mending{m}, nil
}

// salvageDescription copies a damaged description to the salvage folder. It moves a file the
// disk cannot give.
func (d *Dir) salvageDescription(dir, kept string) error {
	for _, name := range descriptionFiles() {
		path, to := filepath.Join(dir, name), filepath.Join(kept, name)
		data, err := blockfile.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, blockfile.ErrUnreadable):
			err = d.setAside(path, to)
		case err == nil:
			err = keepFile(filepath.Join(d.path, to), data)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep a damaged description: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// keepDescriptions copies the sound descriptions of a running or ended server. Any other
// keeps its older copy.
func (d *Dir) keepDescriptions() error {
	streams, err := d.streams()
	if err != nil {
		return err
	}
	var errs []error
	for _, stream := range streams {
		errs = append(errs, d.keepStream(stream))
	}
	return errors.Join(errs...)
}

// keepStream copies the sound descriptions of a stream and its consumers.
func (d *Dir) keepStream(stream string) error {
	var errs []error
	err := d.eachDescription(stream, func(key, dir string) error {
		errs = append(errs, d.keepDescription(key, dir))
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func (d *Dir) keepDescription(key, dir string) error {
	sound, err := blockfile.Described(key, dir)
	if err != nil || !sound {
		return err
	}
	copied := d.descriptionCopy(key)
	stream, _, _ := strings.Cut(key, "/")
	for _, name := range descriptionFiles() {
		if path := filepath.Join(copied, name); errors.Is(blockfile.Regular(path), blockfile.ErrUnreadable) {
			if err := d.setAside(path, salvageName(stream, "copy")); err != nil {
				return err
			}
		}
	}
	return copyDescription(dir, copied)
}

func (d *Dir) descriptionCopy(key string) string {
	return filepath.Join(d.path, "marks", "descriptions", filepath.FromSlash(key))
}

// descriptionFiles are in the order of their writing: after a crash between the two, the
// checksum belongs to another text, and both are written again.
func descriptionFiles() []string { return []string{natsserver.Description, natsserver.DescriptionSum} }

// copyDescription copies the existing files, if they differ.
func copyDescription(from, to string) error {
	for _, name := range descriptionFiles() {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy description: %w", err)
		}
		if old, err := os.ReadFile(filepath.Join(to, name)); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := keepFile(filepath.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}
