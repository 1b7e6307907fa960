package relaytest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// An Option changes the events of [Events].
type Option func(*recipe)

type recipe struct {
	first        int
	environments []string
	bodyBytes    int
	start        time.Time
}

// From numbers the events from n instead of 0, so that two calls of [Events] can make different
// ones.
func From(n int) Option { return func(r *recipe) { r.first = n } }

// Environments assigns the events to these environments in turn, each given as
// "PROJECT/ENVIRONMENT". Without it they all belong to "acme/production".
func Environments(names ...string) Option {
	return func(r *recipe) { r.environments = names }
}

// BodyBytes makes bodies of n bytes (at least about 420) by means of a long user agent.
func BodyBytes(n int) Option { return func(r *recipe) { r.bodyBytes = n } }

// StartingAt sets the time of event 0; each later event is 1,234,567 ns older.
func StartingAt(t time.Time) Option { return func(r *recipe) { r.start = t } }

// Events makes n events such as an authentication provider sends, with bodies of about 600
// bytes. The same arguments make the same events, byte for byte, and event i is the same
// whatever n is.
func Events(n int, opts ...Option) []relay.Event {
	r := recipe{
		environments: []string{"acme/production"},
		bodyBytes:    600,
		start:        time.Date(2026, 11, 3, 8, 30, 0, 0, time.UTC),
	}
	for _, o := range opts {
		o(&r)
	}
	events := make([]relay.Event, n)
	for i := range events {
		events[i] = r.event(r.first + i)
	}
	return events
}

var (
	products = []string{"passwords", "magic_links", "oauth", "otps", "sessions", "totps", "webauthn", "sso"}
	actions  = []string{"authenticate", "create", "delete", "revoke", "start"}
	statuses = []string{"start", "success", "success", "success", "error"}
)

func (r *recipe) event(i int) relay.Event {
	rng := rand.New(rand.NewPCG(uint64(i), 0x5eed))
	project, environment, _ := strings.Cut(r.environments[i%len(r.environments)], "/")
	action := products[rng.IntN(len(products))] + "." + actions[rng.IntN(len(actions))]
	at := r.start.Add(time.Duration(i) * 1_234_567)
	id := "event-log-live-" + uuid(rng)
	return relay.Event{
		ID: id, Source: relay.SourceOf(project, environment), Type: "event_log." + action,
		Time: at, Received: at.Add(1500 * time.Millisecond), ContentType: "application/json",
		Project: project, Environment: environment,
		Labels: []relay.Label{{Name: "job", Value: "event_log"}, {Name: "environment", Value: environment}},
		Body:   r.body(rng, id, project, action, at),
	}
}

// body writes the JSON with odd spaces and escapes, in order to catch a re-encoding.
func (r *recipe) body(rng *rand.Rand, id, project, action string, at time.Time) []byte {
	b := fmt.Appendf(nil, `{"event_id": "%s","project_id":"project-live-%s","action":"%s","status":"%s",`+
		`"timestamp":"%s","request_id":"request-id-live-%s","user_id":"user-live-%s","session_id":"session-live-%s",`+
		`"source":"CLIENT","ip_address":"10.%d.%d.%d","score":1.50,"note":"caf\u00e9 \/ %s","user_agent":"`,
		id, project, action, statuses[rng.IntN(len(statuses))], at.Format(time.RFC3339Nano),
		uuid(rng), uuid(rng), uuid(rng), rng.IntN(256), rng.IntN(256), rng.IntN(256), "Zoë")
	const agent = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36 "
	if pad := r.bodyBytes - len(b) - len(`"}`); pad > 0 {
		b = append(b, strings.Repeat(agent, pad/len(agent)+1)[:pad]...)
	}
	return append(b, `"}`...)
}

func uuid(rng *rand.Rand) string {
	a, b := rng.Uint64(), rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		uint32(a), uint16(a>>32), a>>48&0xfff, 0x8000|b&0x3fff, b>>16)
}
