package powercut

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mount is where a disk is mounted.
type mount struct {
	dir    string
	server *fuse.Server
}

// Mount makes the disk's files appear in a folder, which must exist.
func (d *Disk) Mount(dir string) error {
	d.mu.Lock()
	root := &node{disk: d, of: d.root}
	d.mu.Unlock()
	server, err := fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, FsName: "powercut", Name: "powercut", MaxWrite: 1 << 20,
	}})
	if err != nil {
		return fmt.Errorf("mount a file system on %s: %w", dir, err)
	}
	d.mount = &mount{dir, server}
	return nil
}

// Unmount takes the files away from the folder. The disk still has them.
func (d *Disk) Unmount() error {
	if d.mount == nil {
		return nil
	}
	m := d.mount
	d.mount = nil
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", m.dir, err)
	}
	return nil
}

// Cut plays a power cut: what was not synced is gone, all at one instant, and the files that
// remain are mounted again. Whoever used them was killed before. With survives, some of what
// was not synced is there nevertheless.
func (d *Disk) Cut(survives *rand.Rand) error {
	dir := d.mount.dir
	if err := d.Unmount(); err != nil {
		return err
	}
	d.mu.Lock()
	d.root.cut(survives, map[*inode]bool{})
	d.root.recount(map[*inode]bool{})
	d.mu.Unlock()
	return d.Mount(dir)
}

// node is an inode as a mounted file system has it.
type node struct {
	fs.Inode
	disk *Disk
	of   *inode
}

// InodeEmbedder methods, each of which is one system call of a process.
var (
	_ fs.NodeLookuper   = (*node)(nil)
	_ fs.NodeReaddirer  = (*node)(nil)
	_ fs.NodeCreater    = (*node)(nil)
	_ fs.NodeMknoder    = (*node)(nil)
	_ fs.NodeMkdirer    = (*node)(nil)
	_ fs.NodeLinker     = (*node)(nil)
	_ fs.NodeUnlinker   = (*node)(nil)
	_ fs.NodeRmdirer    = (*node)(nil)
	_ fs.NodeRenamer    = (*node)(nil)
	_ fs.NodeGetattrer  = (*node)(nil)
	_ fs.NodeSetattrer  = (*node)(nil)
	_ fs.NodeOpener     = (*node)(nil)
	_ fs.NodeReader     = (*node)(nil)
	_ fs.NodeWriter     = (*node)(nil)
	_ fs.NodeFsyncer    = (*node)(nil)
	_ fs.NodeAllocater  = (*node)(nil)
	_ fs.NodeStatfser   = (*node)(nil)
	_ fs.NodeSymlinker  = (*node)(nil)
	_ fs.NodeReadlinker = (*node)(nil)
)

func (n *node) lock() func() {
	n.disk.mu.Lock()
	return n.disk.mu.Unlock
}

// child is the node of an inode in this folder. mu is held.
func (n *node) child(ctx context.Context, of *inode, out *fuse.EntryOut) *fs.Inode {
	of.attributes(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, of: of}, fs.StableAttr{Mode: of.mode & syscall.S_IFMT, Ino: of.number})
}

func (n *inode) attributes(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = n.number, n.mode, uint32(max(n.links, 0))
	out.Size, out.Blksize = uint64(n.now.size), pageSize
	out.Blocks = uint64(len(n.now.pages)) * pageSize / 512
	out.SetTimes(&n.made, &n.made, &n.made)
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer n.lock()()
	of := n.of.names[name]
	if of == nil {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, of, out), 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	defer n.lock()()
	var all []fuse.DirEntry
	for name, of := range n.of.names {
		all = append(all, fuse.DirEntry{Name: name, Mode: of.mode, Ino: of.number})
	}
	return fs.NewListDirStream(all), 0
}

// add makes an inode and gives it a name in this folder.
func (n *node) add(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer n.lock()()
	if n.of.names[name] != nil {
		return nil, syscall.EEXIST
	}
	of := n.disk.make(mode)
	of.links = 1
	n.of.names[name] = of
	return n.child(ctx, of, out), 0
}

func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	made, errno := n.add(ctx, name, syscall.S_IFREG|mode&0o7777, out)
	return made, nil, 0, errno
}

func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, mode, out)
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFDIR|mode&0o7777, out)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	made, errno := n.add(ctx, name, syscall.S_IFLNK|0o777, out)
	if errno == 0 {
		defer n.lock()()
		n.of.names[name].write([]byte(target), 0)
		n.of.names[name].sync()
	}
	return made, errno
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	defer n.lock()()
	b := make([]byte, n.of.now.size)
	n.of.now.read(b, 0)
	return b, 0
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer n.lock()()
	if n.of.names[name] != nil {
		return nil, syscall.EEXIST
	}
	of := target.(*node).of
	of.links++
	n.of.names[name] = of
	return n.child(ctx, of, out), 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	defer n.lock()()
	of := n.of.names[name]
	if of == nil {
		return syscall.ENOENT
	}
	of.links--
	delete(n.of.names, name)
	return 0
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	defer n.lock()()
	of := n.of.names[name]
	switch {
	case of == nil:
		return syscall.ENOENT
	case len(of.names) > 0:
		return syscall.ENOTEMPTY
	}
	delete(n.of.names, name)
	return 0
}

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	defer n.lock()()
	target := parent.(*node).of
	of, replaced := n.of.names[name], target.names[to]
	switch {
	case of == nil:
		return syscall.ENOENT
	case flags&unix.RENAME_NOREPLACE != 0 && replaced != nil:
		return syscall.EEXIST
	case flags&^unix.RENAME_NOREPLACE != 0:
		return syscall.EINVAL
	case replaced != nil && len(replaced.names) > 0:
		return syscall.ENOTEMPTY
	}
	if replaced != nil {
		replaced.links--
	}
	delete(n.of.names, name)
	target.names[to] = of
	if target != n.of {
		n.of.tied[target], target.tied[n.of] = true, true
	}
	return 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	defer n.lock()()
	n.of.attributes(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	defer n.lock()()
	if size, ok := in.GetSize(); ok && !n.of.isFolder() {
		n.of.truncate(int64(size))
	}
	if mode, ok := in.GetMode(); ok {
		n.of.mode = n.of.mode&syscall.S_IFMT | mode&0o7777
	}
	if at, ok := in.GetMTime(); ok {
		n.of.made = at
	}
	n.of.attributes(&out.Attr)
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) { return nil, 0, 0 }

func (n *node) Read(_ context.Context, _ fs.FileHandle, b []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	defer n.lock()()
	return fuse.ReadResultData(b[:n.of.now.read(b, offset)]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, b []byte, offset int64) (uint32, syscall.Errno) {
	defer n.lock()()
	n.of.write(b, offset)
	return uint32(len(b)), 0
}

func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	defer n.lock()()
	n.of.sync()
	return 0
}

func (n *node) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	defer n.lock()()
	if mode == 0 {
		n.of.now.size = max(n.of.now.size, int64(offset+size))
		return 0
	}
	return syscall.EOPNOTSUPP
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const room = 64 << 30
	out.Bsize, out.Frsize, out.NameLen = pageSize, pageSize, 255
	out.Blocks, out.Bfree, out.Bavail = room/pageSize, room/pageSize, room/pageSize
	return 0
}
