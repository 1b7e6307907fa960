package app

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/config"
)

func TestConnectionsFollowTheLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files             int
		proxy             bool
		asked             config.Connections
		total, perAddress int
	}{
		"few files":              {files: 300, total: 300 - 128 - 16, perAddress: 78},
		"too few files":          {files: 64, total: 16, perAddress: 8},
		"many files":             {files: 1 << 20, total: 4096, perAddress: 2048},
		"behind a proxy":         {files: 1 << 20, proxy: true, total: 4096},
		"asked for":              {files: 1 << 20, asked: config.Connections{Total: 20_000, PerAddress: 7}, total: 20_000, perAddress: 7},
		"more than there is":     {files: 1024, asked: config.Connections{Total: 20_000}, total: 1024 - 128 - 16, perAddress: 440},
		"only a share is wanted": {files: 1024, asked: config.Connections{PerAddress: 30}, total: 880, perAddress: 30},
	} {
		cfg := testConfig(t.TempDir())
		cfg.Ingest.BehindProxy, cfg.Ingest.Connections = c.proxy, c.asked
		r := runsWith(&process{log: slog.New(slog.DiscardHandler)}, cfg)
		got := r.ingestDoor(c.files)
		assert.Equal(t, [2]int{c.total, c.perAddress}, [2]int{got.Total, got.PerAddress}, name)
	}
	assert.Greater(t, openFiles(), 100)
}
