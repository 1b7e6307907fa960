package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// keep runs an index until the test ends, or stop is called.
func keep(t testing.TB, path string, trail Trail) (index *Index, stop func()) {
	t.Helper()
	index = Open(Options{Path: path, Trail: trail})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		index.Keep(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return index, stop
}

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// at is i minutes after the start.
func at(i int) time.Time { return start.Add(time.Duration(i) * time.Minute) }

// change is a change of the password policy of acme/live, found at minute i, after a look
// ten minutes before.
func change(i, before, after int) audit.Entry {
	e := audit.Entry{
		Type: "settings.changed", Project: "acme", Environment: "live", Subject: "password_strength_config",
		Time: at(i), Window: &audit.Window{After: at(i - 10), Until: at(i)},
		Before: policy(before), After: policy(after),
	}
	if before == 0 {
		e.Type, e.Before, e.Window = "settings.baseline", nil, nil
	}
	return e
}

func policy(length int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"luds_complexity":3,"luds_min_length":%d}`, length))
}

// checked is the detail of an attestation whose last look, at minute i, saw a state.
func checked(setting string, i int, state json.RawMessage) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"resources":{%q:{"last_look":%q,"sha256":%q}}}`, setting, at(i).Format(time.RFC3339), jsontext.Hash(state)))
}

func add(t testing.TB, trail *audit.Trail, entries ...audit.Entry) (last int64) {
	t.Helper()
	for _, e := range entries {
		var err error
		last, err = trail.Append(t.Context(), e)
		require.NoError(t, err)
	}
	return last
}

func list(t testing.TB, v *Index, f Filter) (rows []Row) {
	t.Helper()
	_, err := v.List(t.Context(), f, func(r Row) error { rows = append(rows, r); return nil })
	require.NoError(t, err)
	return rows
}

func indices(rows []Row) (all []int64) {
	for _, r := range rows {
		all = append(all, r.Index)
	}
	return all
}
