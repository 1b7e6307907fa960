package app

import (
	"context"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// StoreDir is the folder of the store in the data directory.
const StoreDir = "store"

// startStore opens the store that every durable room keeps its logs and values in.
func (r *process) startStore(context.Context) (err error) {
	r.store, err = disk.Open(disk.Config{
		Dir: filepath.Join(r.cfg.DataDir, StoreDir), Salvage: filepath.Join(r.cfg.DataDir, datadir.SalvageDir),
		Writer: r.version, Logger: r.log,
	})
	if err != nil {
		return err
	}
	r.stack.push("store", func(context.Context) error { return r.store.Close() })
	return nil
}
