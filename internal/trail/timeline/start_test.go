package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// BenchmarkStart opens a long trail, and has an index made of it, as a start does.
func BenchmarkStart(b *testing.B) {
	const n = 200_000
	dir := b.TempDir()
	files := trailtest.Store(b, dir)
	options := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(b.Context(), files, options)
	require.NoError(b, err)
	require.NoError(b, trail.Close(b.Context()))
	trailtest.Fill(b, files, n, func(i int) audit.Entry {
		return audit.Entry{
			Type: "settings.changed", Project: "shop", Environment: fmt.Sprintf("env-%d", i%1000), Subject: "sms_country_codes",
			Time:   start.Add(time.Duration(i) * time.Second),
			Before: json.RawMessage(`["DE","FR"]`), After: json.RawMessage(`["DE","FR","GB"]`),
			Detail: json.RawMessage(fmt.Sprintf(`{"actor":"unknown","cause":"outside","direction":"weaker","severity":"low","summary":"country GB allowed, by change %d"}`, i)),
		}
	})
	for b.Loop() {
		began := time.Now()
		trail, err := audit.Open(b.Context(), files, options)
		require.NoError(b, err)
		opened := time.Now()
		x := Open(Options{Path: filepath.Join(dir, FileName), Trail: trail})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); x.Keep(ctx) }()
		require.NoError(b, x.Ready(b.Context()))
		b.ReportMetric(opened.Sub(began).Seconds()*1e6/n, "µs/entry-opened")
		b.ReportMetric(time.Since(opened).Seconds()*1e6/n, "µs/entry-indexed")
		cancel()
		<-done
		require.NoError(b, trail.Close(b.Context()))
	}
	require.NoError(b, files.Close())
}
