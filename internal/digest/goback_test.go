package digest

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// external is a server whose events' stream can be set back alone.
type external struct {
	t    *testing.T
	dir  string
	url  string
	port int
	stop func()
}

func (x *external) start() {
	x.t.Helper()
	srv := natstest.Run(x.t, x.dir, natstest.SyncAlways, natstest.Port(x.port))
	x.stop, x.url = func() { natstest.Stop(srv) }, srv.ClientURL()
	address, err := url.Parse(x.url)
	require.NoError(x.t, err)
	x.port, err = strconv.Atoi(address.Port())
	require.NoError(x.t, err)
}

// events is the folder of the events' stream.
func (x *external) events() string {
	x.t.Helper()
	found, err := filepath.Glob(filepath.Join(x.dir, "jetstream", "*", "streams", "TEST_EVENTS"))
	require.NoError(x.t, err)
	require.Len(x.t, found, 1)
	return found[0]
}

// insist pushes a record of one event until it is acknowledged.
func (s *scene) insist() {
	s.t.Helper()
	events := s.events("event_log.LOGIN", 1)
	waiting.Until(s.t, func() bool {
		var b record.Batch
		b.AddEvent(&events[0])
		return s.journal.Append(s.t.Context(), &b) == nil
	})
}

// A server that loses the end of the stream gives its positions to other records.
func TestAStreamThatWentBack(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"while the relay runs": true, "while it is away": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &external{t: t, dir: t.TempDir()}
			x.start()
			saved := filepath.Join(t.TempDir(), "saved")
			dir := t.TempDir()
			s := openOn(t, dir, x.url)
			for range 10 {
				s.insist()
			}
			s.end()
			x.stop()
			require.NoError(t, os.CopyFS(saved, os.DirFS(x.events())))
			x.start()
			for range 10 {
				s.insist()
			}
			s.end()
			require.Len(t, s.spans(), 2)
			if !running {
				s.shut()
			}
			x.stop()
			events := x.events()
			require.NoError(t, os.RemoveAll(events))
			require.NoError(t, os.Rename(saved, events))
			x.start()
			if !running {
				s = openOn(t, dir, x.url)
				s.had = 20
			}
			records := 3
			if !running { // the stream then grows past the end of the spans
				records = 15
			}
			for range records {
				s.insist()
			}
			if !running {
				s.shut()
				s = openOn(t, dir, x.url)
			}
			s.due = time.Now()
			if running {
				require.ErrorIs(t, s.step(t.Context()), errMoved)
				require.NoError(t, s.resume(t.Context()))
			}
			s.end()
			spans := s.spans()
			require.Len(t, spans, 3)
			assert.EqualValues(t, 11, spans[2].First, "it begins behind what stayed")
			assert.EqualValues(t, 20, spans[2].Again)
			assert.EqualValues(t, records, spans[2].Records)
			s.requireRoot(spans[2])
			s.shut()
		})
	}
}
