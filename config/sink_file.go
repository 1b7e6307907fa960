package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// File writes JSON lines, one CloudEvents JSON object on each; with the sink's format ocsf, one
// OCSF object on each.
type File struct {
	// Path is the current file. Rotated files are in the same folder.
	Path string `yaml:"path" check:"required"`
	// RotateBytes and RotateEvery start a new file. Defaults 128MiB and 24h; 0 means the
	// default, and with a negative value it is never rotated.
	RotateBytes Size          `yaml:"rotate_bytes" default:"128MiB"`
	RotateEvery time.Duration `yaml:"rotate_every" default:"24h"`
	// Keep is the number of rotated files to keep. Default 0: all.
	Keep int `yaml:"keep"`
	// Gzip compresses a file when it is rotated, and names it .gz.
	Gzip bool `yaml:"gzip"`
	// NoSync acknowledges before the file is synced to disk.
	NoSync bool `yaml:"no_sync"`
}

// Resource implements [Exclusive]: a file has one writer.
func (c *File) Resource() (field, name string) {
	if c.Path == "" {
		return "path", ""
	}
	return "path", filepath.Clean(c.Path)
}

func (c *File) check(k *checker, at string, _ *Sink) {
	k.wholePath(at+".path", c.Path)
	k.failIf(c.RotateBytes > 0 && c.RotateBytes < 1<<10, at+".rotate_bytes", c.RotateBytes, "must be at least 1KiB, or negative for never")
	k.failIf(c.Keep < 0, at+".keep", c.Keep, "must not be negative; 0 keeps all")
}

// ownNames are what the relay itself keeps in its data directory. Others may have files of theirs there, and
// a sink may, too.
var ownNames = []string{
	"admin.token", "audit.key", "audit.key.checkpoint", "control.sock", "journal.json", "lock", "rhythm.json",
	"salvage", "store", "tlog", "trail.forwarded", "trail.index",
}

// notOwn refuses a sink's file that the relay keeps for itself: writing there would cost the trail, or its key.
func (k *checker) notOwn(at, path string, c *Config) {
	file := destination(path)
	in, err := filepath.Rel(destination(c.DataDir), file)
	name, _, _ := strings.Cut(filepath.ToSlash(in), "/")
	if err == nil && slices.Contains(ownNames, name) || isFile(file, c.Audit.KeyFile) || isFile(file, c.Audit.CheckpointFile) {
		k.fail(at, path, "is what the relay itself keeps there; give the sink another file, such as "+filepath.Join(c.DataDir, "archive", "events.jsonl"))
	}
}

// isFile reports whether path leads to a file, which is a destination.
func isFile(file, path string) bool { return path != "" && destination(path) == file }

// maxLinks is how many symbolic links to what is not there are followed, one after the other.
const maxLinks = 40

// destination returns the absolute path of what is written through path: without symbolic links, also where one
// leads to a file that is not there yet.
func destination(path string) string {
	if here, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		path = here + "/" + path // not cleaned, since ".." after a link leads elsewhere
	}
	for range maxLinks {
		if found, err := filepath.EvalSymlinks(path); err == nil {
			return found
		}
		dir, name := filepath.Split(strings.TrimRight(path, "/"))
		if name == "" {
			return path
		}
		to, err := os.Readlink(path)
		switch {
		case err != nil: // it is not there
			return filepath.Join(destination(dir), name)
		case !filepath.IsAbs(to):
			to = dir + to
		}
		path = to
	}
	return path
}
