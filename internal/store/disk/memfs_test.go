package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// memFS is a filesystem that keeps apart what the kernel holds and what the disk has. A
// power cut keeps what was synced, and any of the pages and names that were not.
type memFS struct {
	mu     sync.Mutex
	rng    *rand.Rand
	names  map[string]*inode // what the kernel says
	onDisk map[string]*inode // what a power cut leaves
	log    []naming
	fail   func(op, path string) error // see failWith; guarded by mu
	// left is how many more changes happen before the process is killed; nothing changes any
	// more then. A negative one is no limit.
	left int
}

var errKilled = errors.New("the process is dead")

// change counts a change, and reports whether the process still lives.
func (m *memFS) change() error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	return nil
}

// naming is a change of names that is not durable before one of its folders is synced.
type naming struct {
	dirs []string
	do   func(map[string]*inode)
}

// named notes a change of the names of some paths.
func (m *memFS) named(do func(map[string]*inode), paths ...string) {
	n := naming{do: do}
	for _, path := range paths {
		n.dirs = append(n.dirs, filepath.Dir(path))
	}
	m.log = append(m.log, n)
}

type inode struct {
	cache, disk []byte
	dirty       map[int]bool // pages
}

func newMemFS(seed uint64) *memFS {
	return &memFS{rng: rand.New(rand.NewPCG(seed, 1)), names: map[string]*inode{}, onDisk: map[string]*inode{}, left: -1}
}

type memFile struct {
	fs   *memFS
	path string
	*inode
	failed bool // a sync failed, and no later one does anything
}

// failWith sets what returns the error of an operation on a file, or nil. The operations are
// "write", "sync", "allocate", "open", "open to read", "rename" and "syncdir".
func (m *memFS) failWith(fail func(op, path string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

func (m *memFS) failing(op, path string) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(op, path)
}

func (m *memFS) Open(path string, flags int) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	op := "open"
	if flags == toRead {
		op = "open to read"
	}
	if err := m.failing(op, path); err != nil {
		return nil, err
	}
	n := m.names[path]
	if n == nil {
		if flags != toMake {
			return nil, fs.ErrNotExist
		}
		if err := m.change(); err != nil {
			return nil, err
		}
		n = &inode{dirty: map[int]bool{}}
		m.names[path] = n
		m.named(func(names map[string]*inode) { names[path] = n }, path)
	}
	return &memFile{fs: m, path: path, inode: n}, nil
}

func (m *memFS) Names(dir string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.names {
		if below, ok := strings.CutPrefix(path, dir+"/"); ok {
			name, _, _ := strings.Cut(below, "/") // a file, or a folder
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (m *memFS) MakeDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failing("mkdir", dir)
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failing("rename", to); err != nil {
		return err
	}
	n := m.names[from]
	if n == nil {
		return fs.ErrNotExist
	}
	if err := m.change(); err != nil {
		return err
	}
	delete(m.names, from)
	m.names[to] = n
	m.named(func(names map[string]*inode) { delete(names, from); names[to] = n }, from, to)
	return nil
}

func (m *memFS) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[path] == nil {
		return fs.ErrNotExist
	}
	if err := m.change(); err != nil {
		return err
	}
	delete(m.names, path)
	m.named(func(names map[string]*inode) { delete(names, path) }, path)
	return nil
}

// SyncDir makes the names of a folder durable. A filesystem with a journal does more.
func (m *memFS) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failing("syncdir", dir); err != nil {
		return err
	}
	if err := m.change(); err != nil {
		return err
	}
	var others []naming
	for _, n := range m.log {
		if slices.Contains(n.dirs, dir) {
			n.do(m.onDisk)
		} else {
			others = append(others, n)
		}
	}
	m.log = others
	return nil
}

func (m *memFS) Same(f file, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[path] == f.(*memFile).inode
}

// cutPower forgets what the disk does not have. Of the names that were not synced a prefix
// is there, and of the pages any.
func (m *memFS) cutPower() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.log[:m.rng.IntN(len(m.log)+1)] {
		n.do(m.onDisk)
	}
	m.log, m.names = nil, map[string]*inode{}
	for _, path := range slices.Sorted(mapKeys(m.onDisk)) {
		n := m.onDisk[path]
		after := append([]byte{}, n.disk...)
		for page := range n.dirty {
			if m.rng.IntN(2) == 0 {
				after = putPage(after, n.cache, page)
			}
		}
		fresh := &inode{cache: append([]byte{}, after...), disk: after, dirty: map[int]bool{}}
		m.names[path], m.onDisk[path] = fresh, fresh
	}
}

func mapKeys(m map[string]*inode) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// putPage copies a page from one file to another.
func putPage(to, from []byte, page int) []byte {
	start, end := page*pageSize, min(len(from), (page+1)*pageSize)
	if start >= end {
		return to
	}
	if len(to) < end {
		to = append(to, make([]byte, end-len(to))...)
	}
	copy(to[start:end], from[start:end])
	return to
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.failing("read", f.path); err != nil {
		return 0, err
	}
	if off >= int64(len(f.cache)) {
		return 0, io.EOF
	}
	n := copy(p, f.cache[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.failing("write", f.path)
	if f.fs.left == 0 {
		return 0, errKilled
	}
	if f.fs.change() == nil && f.fs.left == 0 {
		err = errKilled // in the middle of it
	}
	if err != nil {
		p = p[:f.fs.rng.IntN(len(p)+1)] // a part is there
	}
	if end := int(off) + len(p); end > len(f.cache) {
		f.cache = append(f.cache, make([]byte, end-len(f.cache))...)
	}
	copy(f.cache[off:], p)
	for page := int(off) / pageSize; len(p) > 0 && page <= (int(off)+len(p)-1)/pageSize; page++ {
		f.dirty[page] = true
	}
	return len(p), err
}

// Sync forgets what was to be written where it fails, as kernels do, and all later ones
// succeed without having written anything.
func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.change(); err != nil {
		return err
	}
	defer clear(f.dirty)
	if err := f.fs.failing("sync", f.path); err != nil || f.failed {
		f.failed = true
		return err
	}
	if len(f.disk) > len(f.cache) {
		f.disk = f.disk[:len(f.cache)]
	}
	f.disk = append(f.disk, make([]byte, len(f.cache)-len(f.disk))...)
	for page := range f.dirty {
		f.disk = putPage(f.disk, f.cache, page)
	}
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.failing("truncate", f.path); err != nil {
		return err
	}
	if err := f.fs.change(); err != nil {
		return err
	}
	if int(size) < len(f.cache) {
		f.cache = f.cache[:size:size]
	} else {
		f.cache = append(f.cache, make([]byte, int(size)-len(f.cache))...)
	}
	f.dirty[int(size)/pageSize] = true
	return nil
}

func (f *memFile) Allocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.failing("allocate", f.path); err != nil {
		return err
	}
	if err := f.fs.change(); err != nil {
		return err
	}
	if int(size) > len(f.cache) {
		f.cache = append(f.cache, make([]byte, int(size)-len(f.cache))...)
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.cache)), nil
}

// Data passes over pages of zeros.
func (f *memFile) Data(offset int64) int64 {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	end := int64(len(f.cache))
	for at := offset; at < end; at = (at/pageSize + 1) * pageSize {
		if len(bytes.TrimLeft(f.cache[at:min(end, (at/pageSize+1)*pageSize)], "\x00")) > 0 {
			return at
		}
	}
	return max(offset, end)
}

// Forget makes the disk's bytes those that are read, as far as they were synced.
func (f *memFile) Forget(from int64) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	first := int((from + pageSize - 1) / pageSize)
	for page := first; page < (len(f.disk)+pageSize-1)/pageSize; page++ {
		if !f.dirty[page] {
			f.cache = putPage(f.cache, f.disk, page)
		}
	}
}

func (f *memFile) Close() error { return nil }

// files are the paths in a folder and below.
func (m *memFS) files(dir string) (paths []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.names {
		if strings.HasPrefix(path, dir) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// open opens a store without a lock.
func open(cfg Config, fs filesystem, boot [16]byte) (*Store, error) {
	s, err := prepare(cfg, fs, boot)
	if err != nil {
		return nil, err
	}
	s.begin()
	return s, nil
}
