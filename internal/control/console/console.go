// Package console serves the command line's questions to a running relay: an HTTP API
// over a socket in its data directory, and its client.
//
// Bodies are JSON. An answer is a stream of JSON values, one a line. The last says
// "finished", or why it failed; a stream without such an end was cut off. Whoever can
// open the socket (mode 0600) may do all of it.
//
// # Replays
//
// A replay is a further relay.Pump with a further instance of the sink, over
// journal.Span. The span keeps no position and so holds nothing up. A file sink is the
// exception: two writers would take each other's half-written lines for torn ones, so
// the live instance serves both.
//
// A pump replays dead letters as well. A letter is removed after its batch is
// acknowledged; a letter refused again is first kept as another letter. So a crash at any line
// leaves it once too often, never not at all.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
)

// Options give a console its parts.
type Options struct {
	Journal *journal.Set
	// Quarantine knows the damage.
	Quarantine *journal.Quarantine
	Letters    *deadletters.Store
	// Sinks gives the configured ones, with their defaults.
	Sinks func() []config.Sink
	// Reload applies the edited configuration, or tells in a dry run what it would change.
	Reload func(ctx context.Context, req Reload) (Reloaded, error)
	// Redact is what viewers in the browser do not see; nil: they see neither bodies nor labels.
	Redact *config.Redact
	// Visitors are the people in the browser, and WebURL is where they find the console; nil and empty
	// without one.
	Visitors *access.Access
	WebURL   string
	// Delivery tells how live delivery to a sink goes.
	Delivery func(sink string) relay.Delivery
	// History tells how it went.
	History func(sink string) relay.History
	// Route gives the choice, redaction and format of a sink's events.
	Route func(config.Sink) (*routing.Route, error)
	// Open opens a sink for a replay, in addition to the one for live delivery. The console
	// closes it.
	Open func(config.Sink) (relay.Sink, error)
	// Record enters a person's planned loss into the audit trail, and returns when the
	// entry is durable.
	Record      func(context.Context, Loss) error
	Credentials *credentials.Store
	// Streaming keeps the streaming configs; its error says why nothing does.
	Streaming func() (*streaming.Reconciler, error)
	// Silences are those of the environments.
	Silences *health.Silences
	// Desk performs operations of the Workspace Management API; its error says why there
	// is none.
	Desk func() (*workspace.Desk, error)
	// Elsewhere is set where another relay of the cluster has control: only Status, Reload and OpenWeb
	// are answered.
	Elsewhere bool
	// Taking reports whether this relay is about to have control all the same: then those who ask are told
	// to try again.
	Taking func() bool
	// Trail is the audit trail, Timeline its index, and Files are made of it.
	Trail    *audit.Trail
	Timeline *timeline.Index
	Files    *tiles.Store
	// Event makes an entry the same event as live delivery did.
	Event func(context.Context, audit.Recorded) (relay.Event, error)
	// Status gives the named sections of /status; all of them where none is named. The map is the
	// caller's.
	Status func(ctx context.Context, names ...string) map[string]any
	Logger *slog.Logger
}

// Server serves a console.
type Server struct {
	*door
	opts Options

	// lettersTurn is held while the dead letters are being changed: two replays at once would
	// deliver each letter twice.
	lettersTurn sync.Mutex
	taps        chan struct{} // holds a token per tap
	samples     chan struct{} // and one per sample
	veil        veil
	// archiving is held while bundles are moved out.
	archiving sync.Mutex
}

// door is where a console is asked.
type door struct {
	http    *http.Server
	socket  *socket
	working context.Context              // of the work under way
	stop    context.CancelFunc           // ends it
	inside  chan insideConn              // takes the connections within the relay
	answers atomic.Pointer[http.Handler] // of the newest server
}

// Listen begins to serve at dataDir's socket. failed is told when serving ends
// of itself.
func Listen(ctx context.Context, dataDir string, opts Options, failed func(error)) (*Server, error) {
	socket, err := listen(ctx, dataDir)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	d := &door{socket: socket, working: working, stop: stop, inside: make(chan insideConn)}
	s, err := newServer(d, opts)
	if err != nil {
		return nil, errors.Join(err, socket.close(), socket.listener.Close())
	}
	answer := func(w http.ResponseWriter, r *http.Request) { (*d.answers.Load()).ServeHTTP(w, r) }
	d.http = &http.Server{
		Handler: withPerson(cutOff(http.HandlerFunc(answer))), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return working }, ConnContext: withPeer,
		ErrorLog: connlimit.ErrorLog("console", opts.Logger, nil),
	}
	go func() {
		if err := s.http.Serve(socket.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("console at %s: %w", socket.path, err))
		}
	}()
	go func() { _ = s.http.Serve(insideListener{s}) }() // until it stops
	return s, nil
}

// newServer makes a server, which answers from now on whoever asks at the door.
func newServer(d *door, opts Options) (s *Server, err error) {
	s = &Server{door: d, opts: opts, taps: make(chan struct{}, mostTaps), samples: make(chan struct{}, mostSamples)}
	if s.veil, err = newVeil(opts.Redact, opts.Logger); err != nil {
		return nil, err
	}
	routes := http.Handler(s.routes())
	d.answers.Store(&routes)
	return s, nil
}

// Replace returns a server that answers in the place of this one from now on. What is being answered is
// answered to its end, and both are closed as one.
func (s *Server) Replace(opts Options) (*Server, error) { return newServer(s.door, opts) }

// routes are the questions and commands. A relay that does not have its cluster's trail answers some.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/status", answers(s.status))
	mux.HandleFunc("POST /v1/reload", answers(s.reload))
	mux.HandleFunc("POST /v1/console/open", answers(s.openWeb))
	if s.opts.Elsewhere {
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			if s.opts.Taking() {
				w.Header().Set("Retry-After", "1")
				fail(w, refuse(http.StatusServiceUnavailable, "this relay is about to take over the job 'control' of the cluster, which answers this: try again in a moment"))
				return
			}
			fail(w, refuse(http.StatusConflict, "another relay of the cluster has the job 'control', which answers this: run the command with the data_dir of that one; its /readyz says 'does control'"))
		})
		return mux
	}
	for path, answer := range s.controlRoutes() {
		mux.HandleFunc("POST "+path, answer)
	}
	return mux
}

// controlRoutes are those of the relay that has control.
func (s *Server) controlRoutes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/v1/console/sessions":        answers(s.listSessions),
		"/v1/console/sessions/revoke": answers(s.revokeSession),
		"/v1/console/stop":            answers(s.enterStop),
		"/v1/sinks":                   answers(func(ctx context.Context, _ none) ([]Sink, error) { return s.Sinks(ctx) }),
		"/v1/sinks/history":           answers(s.sinkHistory),
		"/v1/sinks/retire":            answers(s.retire),
		"/v1/deadletters":             lists(s.listLetters),
		"/v1/deadletters/replay":      works(s.replayLetters),
		"/v1/deadletters/discard":     works(s.discardLetters),
		"/v1/credentials":             answers(func(context.Context, none) ([]credentials.Listed, error) { return s.opts.Credentials.List(), nil }),
		"/v1/credentials/rotate":      answers(s.rotateCredential),
		"/v1/credentials/revoke":      answers(s.revoke),
		"/v1/streaming":               answers(s.listStreaming),
		"/v1/streaming/plan":          lists(s.planStreaming),
		"/v1/streaming/apply":         answers(s.applyStreaming),
		"/v1/silences":                answers(s.listSilences),
		"/v1/silences/add":            answers(s.addSilence),
		"/v1/silences/end":            answers(s.endSilence),
		"/v1/migration/enter":         answers(s.enterMigration),
		"/v1/workspace/read":          onDesk(s, (*workspace.Desk).Read),
		"/v1/workspace/plan":          onDesk(s, (*workspace.Desk).Plan),
		"/v1/workspace/do":            onDesk(s, (*workspace.Desk).Do),
		"/v1/tap":                     lists(s.tap),
		"/v1/replay":                  works(s.replaySpan),
		"/v1/trail/list":              lists(s.listTrail),
		"/v1/trail/entries":           lists(s.readTrail),
		"/v1/trail/annotate":          answers(s.annotate),
		"/v1/trail/forward":           works(s.forwardTrail),
		"/v1/trail/prove-event":       answers(s.proveEvent),
		"/v1/trail/span":              lists(s.listSpan),
		"/v1/trail/archive":           works(s.archiveTrail),
		"/v1/trail/rotate-key":        answers(s.rotateKey),
		"/v1/settings/list": answers(func(ctx context.Context, req ListTrail) ([]timeline.Setting, error) {
			return s.opts.Timeline.Settings(ctx, req.Filter)
		}),
		"/v1/settings/at": answers(func(ctx context.Context, req SettingAt) (timeline.State, error) {
			return s.opts.Timeline.At(ctx, req.Where, req.At)
		}),
		"/v1/damage":        answers(func(context.Context, none) (journal.Damage, error) { return s.opts.Quarantine.Damage(), nil }),
		"/v1/damage/accept": answers(s.acceptDamage),
	}
}

// Close ends the work under way, each piece at a point without loss,
// and tells its clients. ctx bounds the wait.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return errors.Join(err, s.socket.close())
}

// sink finds a configured sink.
func (s *Server) sink(name string) (config.Sink, error) {
	all := s.opts.Sinks()
	i := slices.IndexFunc(all, func(c config.Sink) bool { return c.Name == name })
	if i < 0 {
		return config.Sink{}, refuse(http.StatusNotFound, "there is no sink %q in the running configuration; it has %s", name, s.sinkNames())
	}
	return all[i], nil
}

func (s *Server) sinkNames() string {
	var names []string
	for _, c := range s.opts.Sinks() {
		names = append(names, c.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// refusal is an error caused by the client.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answerError is the body of an answer other than 200.
type answerError struct {
	Error string `json:"error"`
}
