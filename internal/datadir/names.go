package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// names makes the names of new blocks durable. The server syncs a block before it
// acknowledges a record in it, but not the folder of a new block. ext4, XFS and Btrfs
// write a new file's name with its first fsync. POSIX promises no such thing: on ext2, on
// ext4 without its journal, and on some network file systems, a power cut may take the
// file with every record in it.
type names struct {
	dir  string // the data directory
	sync func(folder string) error

	mu     sync.Mutex        // held during the sync of a folder: other callers wait for it
	newest map[string]uint32 // by stream, the newest block with a durable name; guarded by mu
	shrunk map[string]bool   // streams with possible removals of blocks since; guarded by mu
}

func newNames(dir string) *names { return &names{dir: dir, sync: durable.SyncDir} }

// forget is for a new server: it may reuse the number of an old block.
func (n *names) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.newest, n.shrunk = map[string]uint32{}, map[string]bool{}
}

// settle returns once the names of all blocks of a stream are durable. Mostly this costs
// one look at a file: the server numbers blocks without a gap. So without removals,
// nothing is new while the number after the newest known block is free.
func (n *names) settle(stream string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	msgs := filepath.Join(StreamDir(n.dir, stream), natsserver.MessagesDir)
	newest, known := n.newest[stream]
	if known && !n.shrunk[stream] {
		next := filepath.Join(msgs, fmt.Sprint(newest+1, natsserver.BlockSuffix))
		if _, err := os.Lstat(next); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	last, err := lastBlock(stream, filepath.Dir(msgs))
	if err == nil && (!known || last != newest) {
		err = n.syncFrom(msgs, !known) // a new stream has new folders
	}
	if err != nil {
		return err
	}
	n.newest[stream] = last
	delete(n.shrunk, stream)
	return nil
}

// syncFrom makes the names in a folder durable. With above, it goes on with the folder's
// own name and those of its parents, up to the data directory.
func (n *names) syncFrom(folder string, above bool) error {
	for {
		if err := n.sync(folder); err != nil {
			return fmt.Errorf("make the name of a new block durable: %w", err)
		}
		if !above || folder == n.dir || folder == filepath.Dir(folder) {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}

// lastBlock is the number of a stream's newest block.
func lastBlock(stream, folder string) (uint32, error) {
	paths, err := blockfile.List(folder)
	if err == nil && len(paths) == 0 {
		err = errors.Join(fs.ErrNotExist, errors.New("it has no block"))
	}
	if err != nil {
		return 0, fmt.Errorf("find the newest block of stream %s: %w", stream, err)
	}
	return blockfile.IndexOf(paths[len(paths)-1])
}

// shrink notes a past or future removal of a stream's blocks.
func (n *names) shrink(stream string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shrunk[stream] = true
}

// remade forgets a stream: its numbers of blocks begin anew.
func (n *names) remade(stream string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.newest, stream)
}

// Remade notes that a stream was deleted and made again.
func (s *Server) Remade(stream string) { s.names.remade(stream) }

// Shrunk notes a removal of a stream's messages, and perhaps of blocks with them.
func (s *Server) Shrunk(stream string) { s.names.shrink(stream) }

// Settle returns once the last acknowledged record of a stream is durable by its block's
// name, too. Acknowledge it to nobody before.
func (s *Server) Settle(stream string) error { return s.names.settle(stream) }
