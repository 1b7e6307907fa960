package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxNamed bounds a file that a *_file field names, in bytes.
const maxNamed = 1 << 20

// files examines the files on this machine that a configuration names.
type files struct {
	k   *checker
	bad func(path string, value any, reason string) // takes what a start cannot use, or soon cannot
}

// all examines each *_file field, the files of the secrets, the configuration itself, and the
// data directory.
func (f files) all(config string, d *decoder, c *Config) {
	eachFile(c, func(field, file string) {
		if ownFile(field) && !exists(file) {
			return
		}
		if err := readable(file); err != nil {
			f.bad(field, file, err.Error())
			return
		}
		f.private(field, file, strings.HasSuffix(field, "key_file") || strings.HasSuffix(field, "credentials_file"))
	})
	f.certificates(c)
	f.budget(c)
	for _, field := range slices.Sorted(maps.Keys(d.secrets)) {
		f.private(field, d.secrets[field].file, true)
	}
	f.private("", config, d.inline)
	f.private("data_dir", c.DataDir, true)
}

// private warns if every user of this machine can change file, or read it although it contains
// a secret.
func (f files) private(field, file string, secret bool) {
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS == "windows" { // there are no such modes there
		return
	}
	reason := ""
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		reason = "can be changed"
	case mode&0o005 != 0 && secret:
		reason = "can be read"
	default:
		return
	}
	f.k.warn(field, fmt.Sprintf("%s %s by every user of this machine (mode %04o); run: chmod o-rwx %[1]s", file, reason, info.Mode().Perm()))
}

// eachFile calls visit for each field that names a file to read. The YAML names of such fields
// end in _file.
func eachFile(c *Config, visit func(field, file string)) {
	walk(reflect.ValueOf(c), "", "", func(v reflect.Value, at string, tag reflect.StructTag) bool {
		if v.Kind() == reflect.String && strings.HasSuffix(tag.Get("yaml"), "_file") && v.String() != "" {
			visit(at, v.String())
		}
		return true
	})
}

// filesOf are the files of a [Source].
func filesOf(d *decoder, c *Config) map[string]string {
	all := map[string]string{}
	eachFile(c, func(field, file string) {
		if !ownFile(field) {
			all[field] = file
		}
	})
	for field, s := range d.secrets {
		all[field] = s.file
	}
	return all
}

// ownFile reports whether the relay makes the file of a field where there is none, and writes it.
func ownFile(field string) bool { return field == "audit.key_file" || field == "audit.checkpoint_file" }

// wholePath refuses a path that only a shell understands: a folder named ~ would be made.
func (k *checker) wholePath(path, value string) {
	if value == "~" || strings.HasPrefix(value, "~/") {
		k.fail(path, value, "begins with ~, which only a shell replaces by your home folder; write the whole path")
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// readable says why file cannot be read.
func readable(file string) error {
	_, err := readRegular(file, maxNamed)
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file; put it there, or correct the path")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("this user may not read it; let the relay's user read it")
	case errors.As(err, &at):
		return fmt.Errorf("cannot be read: %w", at.Err) // without the path, which may be a secret in the wrong field
	}
	return err
}

// readRegular reads a file of at most limit bytes. A pipe or a terminal is refused, since
// reading it might never end.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; give the path of one", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// budget compares the journal's budget with the disk of the data directory. Once the disk
// is full, pushes are refused, however much of the budget is left.
func (f files) budget(c *Config) {
	if c.Journal.URL != "" { // the cluster has disks of its own
		return
	}
	const field = "journal.max_bytes"
	whole, free, ok := diskOf(c.DataDir)
	budget := uint64(max(0, c.Journal.MaxBytes))
	switch {
	case !ok:
	case budget > whole:
		f.bad(field, c.Journal.MaxBytes, fmt.Sprintf("is more than the whole disk of %s, which has %v (%v of them free): pushes will be refused once it is full; "+
			"give less, or put data_dir on a larger disk", c.DataDir, roughly(whole), roughly(free)))
	case budget > free && budget > free+used(c.DataDir):
		f.k.warn(field, fmt.Sprintf("%v is more than the disk of %s has left, %v: pushes will be refused once it is full", c.Journal.MaxBytes, c.DataDir, roughly(free)))
	}
}

// diskOf returns the bytes of the disk that dir is on, or will be on once it is made.
func diskOf(dir string) (whole, free uint64, ok bool) {
	for {
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err == nil {
			return disk.Blocks * uint64(disk.Bsize), disk.Bavail * uint64(disk.Bsize), true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return 0, 0, false
		}
		dir = parent
	}
}

// used returns the bytes of the files in dir, as far as it can be read.
func used(dir string) (bytes uint64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // what cannot be read counts nothing
		}
		if info, err := entry.Info(); err == nil {
			bytes += uint64(max(0, info.Size()))
		}
		return nil
	})
	return bytes
}

// roughly rounds down to whole MiB, or GiB of many.
func roughly(bytes uint64) Size {
	unit := uint64(1 << 20)
	if bytes >= 10<<30 {
		unit = 1 << 30
	}
	return Size(bytes / unit * unit)
}
