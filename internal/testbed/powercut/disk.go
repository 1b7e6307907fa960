// Package powercut is a file system in memory that loses, at a power cut, what was not
// synced: bytes without an fsync of their file, and names without one of their folder.
// The kernel serves it to processes by FUSE, which takes root and /dev/fuse.
package powercut

import (
	"maps"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

const pageSize = 4096

// Disk holds files. It is mounted in one place at a time.
type Disk struct {
	mount *mount // of [Disk.Mount]; for one goroutine at a time

	mu    sync.Mutex
	root  *inode // guarded by mu, as all that hangs on it
	count uint64 // of the inodes ever made; guarded by mu
}

// inode is a file or a folder.
type inode struct {
	number uint64
	mode   uint32 // the type and the permissions
	links  int    // names that it has now
	made   time.Time

	// Of a folder: the names in it now, and those that a power cut leaves. A rename from one
	// folder into another is made durable by a sync of either, as on a file system with a
	// log of its metadata: tied are the folders whose names go with this one's.
	names, durable map[string]*inode
	tied           map[*inode]bool

	// Of a file.
	now, synced content
	dirty       map[int64]bool // pages written or cut off since the last sync
}

// content is a file's bytes. A page that is not there holds zeros. A page is never changed,
// but replaced, since both contents of a file share their pages.
type content struct {
	size  int64
	pages map[int64]*[pageSize]byte
}

// New makes an empty disk.
func New() *Disk {
	d := &Disk{}
	d.root = d.make(syscall.S_IFDIR | 0o700)
	return d
}

// make makes an inode. mu is held, except in New.
func (d *Disk) make(mode uint32) *inode {
	d.count++
	n := &inode{number: d.count, mode: mode, made: time.Now()}
	if n.isFolder() {
		n.names, n.durable, n.tied = map[string]*inode{}, map[string]*inode{}, map[*inode]bool{}
	} else {
		n.now.pages, n.synced.pages, n.dirty = map[int64]*[pageSize]byte{}, map[int64]*[pageSize]byte{}, map[int64]bool{}
	}
	return n
}

func (n *inode) isFolder() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// cut loses what was not synced. Where survives is not nil, each page, size and folder that
// was not synced is kept by a throw of the coin, as a disk does which had begun to write.
func (n *inode) cut(survives *rand.Rand, seen map[*inode]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	kept := func() bool { return survives != nil && survives.IntN(2) == 0 }
	if n.isFolder() {
		if kept() {
			n.sync()
		}
		n.names = maps.Clone(n.durable)
		clear(n.tied)
		for _, child := range n.names {
			child.cut(survives, seen)
		}
		return
	}
	if kept() {
		n.synced.size = n.now.size
	}
	for page := range n.dirty {
		if kept() {
			n.settle(page)
		}
	}
	n.now = content{n.synced.size, maps.Clone(n.synced.pages)}
	n.now.resize(n.now.size) // a page beyond the end that survived is lost with its size
	clear(n.dirty)
}

// recount sets the number of each inode's names, which a cut has changed.
func (n *inode) recount(seen map[*inode]bool) {
	n.links++
	if !seen[n] {
		seen[n] = true
		for _, child := range n.names {
			child.links = 0
		}
		for _, child := range n.names {
			child.recount(seen)
		}
	}
}

// sync makes durable what the file holds, or the names in the folder.
func (n *inode) sync() {
	if n.isFolder() {
		n.durable = maps.Clone(n.names)
		tied := n.tied
		n.tied = map[*inode]bool{}
		for other := range tied {
			other.sync()
		}
		return
	}
	n.synced.size = n.now.size
	for page := range n.dirty {
		n.settle(page)
	}
	clear(n.dirty)
}

// settle makes a page durable.
func (n *inode) settle(page int64) {
	if b := n.now.pages[page]; b != nil {
		n.synced.pages[page] = b
	} else {
		delete(n.synced.pages, page)
	}
}

// read fills b from an offset on, and returns how much of it the file has.
func (c *content) read(b []byte, offset int64) int {
	b = b[:max(0, min(int64(len(b)), c.size-offset))]
	clear(b)
	for done := 0; done < len(b); {
		page, in := (offset+int64(done))/pageSize, int((offset+int64(done))%pageSize)
		part := b[done:min(len(b), done+pageSize-in)]
		if p := c.pages[page]; p != nil {
			copy(part, p[in:])
		}
		done += len(part)
	}
	return len(b)
}

// write replaces bytes of the file.
func (n *inode) write(b []byte, offset int64) {
	n.now.size = max(n.now.size, offset+int64(len(b)))
	for len(b) > 0 {
		page, in := offset/pageSize, int(offset%pageSize)
		next := new([pageSize]byte)
		if old := n.now.pages[page]; old != nil {
			*next = *old
		}
		done := copy(next[in:], b)
		n.now.pages[page], n.dirty[page] = next, true
		b, offset = b[done:], offset+int64(done)
	}
}

// truncate sets the file's size.
func (n *inode) truncate(size int64) {
	for _, page := range n.now.resize(size) {
		n.dirty[page] = true
	}
}

// resize cuts off what stands after the end, and returns the pages that it changed.
func (c *content) resize(size int64) (changed []int64) {
	for page, b := range c.pages {
		switch from := size - page*pageSize; {
		case from <= 0:
			delete(c.pages, page)
			changed = append(changed, page)
		case from < pageSize:
			next := *b
			clear(next[from:])
			c.pages[page] = &next
			changed = append(changed, page)
		}
	}
	c.size = size
	return changed
}
