package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// receiver is a destination over HTTP. The incident chooses the status of its answers.
type receiver struct {
	*httptest.Server
	status atomic.Int64
}

func newReceiver() *receiver {
	r := &receiver{}
	r.status.Store(http.StatusNoContent)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(r.status.Load())) }))
	return r
}

func (r *receiver) answer(status int) func(context.Context, *stage) error {
	return func(context.Context, *stage) error { r.status.Store(int64(status)); return nil }
}

func nothing(context.Context, *stage) error { return nil }

func sinkIncidents() []incident {
	loki, full := newReceiver(), newReceiver()
	return []incident{
		{
			name: "expired sink credential", expected: "flowing, sink failing", reported: failingSink("loki"), lasts: 5 * time.Second,
			setup: setup{sinks: fmt.Sprintf(`[{name: loki, loki: {url: %q}}]`, loki.URL+"/loki/api/v1/push"), close: loki.Close},
			cause: loki.answer(http.StatusUnauthorized), mend: loki.answer(http.StatusNoContent),
			alerts: []string{"SinkFailing"},
		},
		{
			name: "disk budget reached", expected: "refused, not ready", reported: notReady, lasts: 5 * time.Second,
			setup: setup{
				sinks: fmt.Sprintf(`[{name: stuck, webhook: {url: %q}}]`, full.URL), journal: "{max_bytes: 12MiB}", close: full.Close,
			},
			cause: func(_ context.Context, s *stage) error {
				full.status.Store(http.StatusServiceUnavailable)
				return s.workspace.SetRate(s.project, s.environment, 100*rate)
			},
			mend: func(_ context.Context, s *stage) error {
				full.status.Store(http.StatusNoContent)
				return s.workspace.SetRate(s.project, s.environment, rate)
			},
			alerts: []string{"JournalRefusing", "JournalFilling", "AuditrelayNotReady", "EnvironmentRefused"},
		},
		{
			name: "Kafka dead", expected: "flowing, sink failing", reported: failingSink("kafka"), lasts: 10 * time.Second,
			setup: setup{sinks: `[{name: file, file: {path: "%[1]s/events.jsonl"}}, {name: kafka, kafka: {brokers: ["127.0.0.1:1"], topic: audit}}]`},
			cause: nothing, alerts: []string{"SinkFailing", "SinkNeverDelivered", "SinkLagging", "DeliverySLOBurn"},
		},
	}
}

// furtherIncidents fire the remaining alerts.
func furtherIncidents() []incident {
	webhook := newReceiver()
	return []incident{
		{
			name: "further: disabled twice", expected: "disabled", reported: state, counts: true, lasts: 5 * time.Second,
			setup: setup{simulator: func(o *workspacesim.Options) { o.PutKeepsStatus = true }},
			cause: func(ctx context.Context, s *stage) error {
				if err := errors.Join(s.setStatus(workspacesim.StatusDisabled), hold(ctx, 10*time.Second),
					s.setStatus(workspacesim.StatusActive), hold(ctx, settled+10*time.Second)); err != nil {
					return err
				}
				return s.setStatus(workspacesim.StatusDisabled)
			},
			mend: func(_ context.Context, s *stage) error { return s.setStatus(workspacesim.StatusActive) },
		},
		{
			name: "further: a sink refuses events", expected: "flowing, dead letters", reported: deadLetters("picky"), lasts: 5 * time.Second,
			setup: setup{sinks: fmt.Sprintf(`[{name: picky, webhook: {url: %q}}]`, webhook.URL), close: webhook.Close},
			cause: webhook.answer(http.StatusBadRequest), alerts: []string{"SinkDeadLetters"},
		},
		{
			name: "further: too few witnesses", expected: "flowing", reported: state, cause: nothing, lasts: 5 * time.Second,
			setup: setup{more: `audit: {heartbeat: 10s, witnesses: [{url: "http://127.0.0.1:1", key: ` +
				`"witness.example.com/audit+69551bfd+BAaUGjQ1NgWmxrtUxKPDhqOVjEvEsVrpUT/DP3uECHQP"}]}` + "\n"},
			alerts: []string{"TrailAlarm"},
		},
		{
			name: "further: a certificate ends soon", expected: "flowing", reported: state, cause: nothing,
			setup:  setup{before: shortCertificate, more: `audit: {serve: {listen: "127.0.0.1:0", tls: {cert_file: "%[1]s/tls.crt", key_file: "%[1]s/tls.key"}}}` + "\n"},
			alerts: []string{"CertificateExpiring"},
		},
		{
			name: "further: the relay is killed", expected: "flowing", reported: state, alertsAfter: []string{"AuditrelayDown"},
			cause: nothing, killed: true,
		},
	}
}

// failingSink adds the failure of a sink.
func failingSink(name string) func(*status) string {
	return func(st *status) string {
		if st.sink(name).FailingSince.IsZero() {
			return state(st)
		}
		return state(st) + ", sink failing"
	}
}

func deadLetters(name string) func(*status) string {
	return func(st *status) string {
		if st.sink(name).DeadLetters == 0 {
			return state(st)
		}
		return state(st) + ", dead letters"
	}
}

func notReady(st *status) string {
	if st.Ready.Ready {
		return state(st)
	}
	return state(st) + ", not ready"
}
