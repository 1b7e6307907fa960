package loki

import (
	"net/http"
	"testing"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, refusing := range map[string]func(*fake, *relay.Event){
		"refused by the sink": func(_ *fake, e *relay.Event) { e.Body = make([]byte, 256<<10+1) },
		"refused by Loki": func(f *fake, e *relay.Event) {
			f.set(func() { f.now = e.Time })
			e.Time = e.Time.Add(-169 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination { return destination(t, refusing) }})
		})
	}
}

func destination(t *testing.T, refusing func(*fake, *relay.Event)) relaytest.Destination {
	t.Helper()
	const password = "loki-pass-8k2d"
	f := newFake(t)
	f.user, f.pass = "relay", password
	s := f.sink(t, func(c *config.Loki) { c.Username, c.Password = "relay", secret.New(password) })
	return relaytest.Destination{
		Sink: s, Secrets: []string{password}, Arrived: f.arrivals, Down: f.down, Up: f.up,
		Stall: func() {
			f.set(func() {
				f.answer = func(r *http.Request) *canned {
					select {
					case <-r.Context().Done():
					case <-f.stall:
					}
					return &canned{status: http.StatusServiceUnavailable}
				}
			})
		},
		Refuse: func(e *relay.Event) { refusing(f, e) },
	}
}
