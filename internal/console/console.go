// Package console serves the command line's questions to a running relay: an HTTP API
// over a socket in its data directory, and its client.
//
//	GET  /v1/status              the state of the environments, sinks and parts
//	GET  /v1/sinks               the sinks' positions in the journal
//	POST /v1/sinks/{name}/retire forget the position of a sink no longer configured
//	POST /v1/deadletters         list them
//	POST /v1/deadletters/replay  hand them to a sink again
//	POST /v1/deadletters/discard remove them
//	GET  /v1/damage              damaged records not accepted yet
//	POST /v1/damage/accept       let the sinks pass over them
//	GET  /v1/credentials         the valid credentials, without secrets
//	POST /v1/credentials/rotate  replace an environment's generated credential
//	POST /v1/credentials/revoke  accept a generated credential no more
//	GET  /v1/streaming           the streaming config's state in each environment
//	POST /v1/streaming/plan      compare the streaming config with the desired one
//	POST /v1/streaming/apply     set the desired one
//	GET  /v1/silences            the active silences
//	POST /v1/silences/add        begin one
//	POST /v1/silences/end        end one before its time
//	POST /v1/workspace/read      read a setting at the Workspace Management API
//	POST /v1/workspace/plan      preview a mutation
//	POST /v1/workspace/do        perform it, between two entries of the audit trail
//	POST /v1/tap                 show the live events as they pass
//	POST /v1/replay              hand a span of the journal to a sink again
//	POST /v1/trail/list          list entries of the audit trail; follow it
//	POST /v1/trail/entries       give whole entries
//	POST /v1/trail/annotate      mark an entry as reviewed
//	POST /v1/trail/forward       hand entries to a sink again
//	POST /v1/trail/prove-event   prove the receipt of an event
//	POST /v1/trail/span          list the records and events of a span
//	POST /v1/trail/archive       move old entry bundles out
//	POST /v1/settings/list       list the settings with states in the trail
//	POST /v1/settings/at         give the state of a setting at a time
//
// Bodies are JSON. A long answer is a stream of JSON values, one a line. The last says
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
// acknowledged; a letter refused again is first kept anew. So a crash at any line
// leaves it once too often, never not at all.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/deadletters"
	"github.com/auditrelay/auditrelay/internal/digest"
	"github.com/auditrelay/auditrelay/internal/door"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/quarantine"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/silences"
	"github.com/auditrelay/auditrelay/internal/streaming"
	"github.com/auditrelay/auditrelay/internal/tiles"
	"github.com/auditrelay/auditrelay/internal/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay"
)

// Options give a console its parts.
type Options struct {
	Journal *journal.Journal
	// Quarantine knows the damage.
	Quarantine *quarantine.Ledger
	Letters    *deadletters.Store
	// Sinks are the configured ones, with their defaults.
	Sinks []config.Sink
	// Delivery tells how live delivery to a sink goes.
	Delivery func(sink string) relay.Delivery
	// Route gives the choice, redaction and format of a sink's events.
	Route func(config.Sink) (*routing.Route, error)
	// Open opens a sink for a replay, beside the one for live delivery. The console
	// closes it.
	Open func(config.Sink) (relay.Sink, error)
	// Record enters a person's planned loss into the audit trail, and returns when the
	// entry is durable.
	Record      func(context.Context, Loss) error
	Credentials *credentials.Store
	// Streaming keeps the streaming configs; its error says why nothing does.
	Streaming func() (*streaming.Reconciler, error)
	// Silences are those of the environments.
	Silences *silences.Book
	// Desk performs operations of the Workspace Management API; its error says why there
	// is none.
	Desk func() (*workspace.Desk, error)
	// Timeline reads the audit trail, Append adds to it.
	Timeline *timeline.Index
	Append   func(context.Context, audit.Entry) (int64, error)
	// Event makes an entry the same event as live delivery did.
	Event func(context.Context, audit.Recorded) (relay.Event, error)
	// ProveEvent proves an event of the journal.
	ProveEvent func(context.Context, digest.Query) (*digest.Bundle, error)
	// ListSpan gives the lines of the list of an entry's span.
	ListSpan func(ctx context.Context, what ListSpan, yield func(line any) error) error
	// RotateKey replaces the trail's signing key, or has the trail name the public key of a
	// successor elsewhere, where one is given. It returns the public key.
	RotateKey func(ctx context.Context, elsewhere string) (public string, err error)
	// Status gives the sections of /status.
	Status func(context.Context) map[string]any
	// ArchiveTrail moves old entry bundles of the trail out, or with DryRun lists them.
	ArchiveTrail func(ctx context.Context, req ArchiveTrail, by workspace.Person, progress func(done, total int64)) ([]tiles.Archived, error)
	Logger       *slog.Logger
}

// Loss means events will not reach a sink, or a credential no longer pushes, because
// somebody says so. Promise 2 wants them accounted for all the same.
type Loss struct {
	Type                 string // "deadletters.discarded", "sink.retired", "journal.damage_accepted"
	Project, Environment string // of the events; empty if they are of several
	Sink                 string // empty if it is every sink
	Subject              string // empty for the sink
	Person               workspace.Person
	Detail               any // encoded as a JSON object
}

// Server serves a console.
type Server struct {
	opts   Options
	http   *http.Server
	socket *socket
	stop   context.CancelFunc // ends the work under way

	// lettersTurn holds a token while the dead letters are being changed: two
	// replays at once would deliver each letter twice.
	lettersTurn chan struct{}
	taps        chan struct{} // holds a token per tap
	// archiving is held while bundles are moved out.
	archiving sync.Mutex
}

// Listen begins to serve at dataDir's socket. failed is told when serving ends
// of itself.
func Listen(ctx context.Context, dataDir string, opts Options, failed func(error)) (*Server, error) {
	socket, err := listen(ctx, dataDir)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{opts: opts, socket: socket, stop: stop, lettersTurn: make(chan struct{}, 1), taps: make(chan struct{}, mostTaps)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, http.StatusOK, opts.Status(r.Context())) })
	mux.HandleFunc("GET /v1/sinks", s.listSinks)
	mux.HandleFunc("POST /v1/sinks/{name}/retire", s.retireSink)
	mux.HandleFunc("POST /v1/deadletters", s.listLetters)
	mux.HandleFunc("POST /v1/deadletters/replay", s.replayLetters)
	mux.HandleFunc("POST /v1/deadletters/discard", s.discardLetters)
	mux.HandleFunc("GET /v1/credentials", s.listCredentials)
	mux.HandleFunc("POST /v1/credentials/rotate", s.rotateCredential)
	mux.HandleFunc("POST /v1/credentials/revoke", s.revokeCredential)
	mux.HandleFunc("GET /v1/streaming", s.listStreaming)
	mux.HandleFunc("POST /v1/streaming/plan", s.planStreaming)
	mux.HandleFunc("POST /v1/streaming/apply", s.applyStreaming)
	mux.HandleFunc("GET /v1/silences", s.listSilences)
	mux.HandleFunc("POST /v1/silences/add", s.addSilence)
	mux.HandleFunc("POST /v1/silences/end", s.endSilence)
	mux.HandleFunc("POST /v1/workspace/read", serveDesk(s, (*workspace.Desk).Read))
	mux.HandleFunc("POST /v1/workspace/plan", serveDesk(s, (*workspace.Desk).Plan))
	mux.HandleFunc("POST /v1/workspace/do", serveDesk(s, (*workspace.Desk).Do))
	mux.HandleFunc("POST /v1/tap", s.tap)
	mux.HandleFunc("POST /v1/replay", s.replaySpan)
	mux.HandleFunc("POST /v1/trail/list", s.listTrail)
	mux.HandleFunc("POST /v1/trail/entries", s.readTrail)
	mux.HandleFunc("POST /v1/trail/annotate", s.annotate)
	mux.HandleFunc("POST /v1/trail/forward", s.forwardTrail)
	mux.HandleFunc("POST /v1/trail/prove-event", s.proveEvent)
	mux.HandleFunc("POST /v1/trail/span", s.listSpan)
	mux.HandleFunc("POST /v1/trail/archive", s.archiveTrail)
	mux.HandleFunc("POST /v1/trail/rotate-key", s.rotateKey)
	mux.HandleFunc("POST /v1/settings/list", s.listSettings)
	mux.HandleFunc("POST /v1/settings/at", s.settingAt)
	mux.HandleFunc("GET /v1/damage", s.showDamage)
	mux.HandleFunc("POST /v1/damage/accept", s.acceptDamage)
	s.http = &http.Server{
		Handler: cutOff(withPerson(mux)), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return working }, ConnContext: withPeer,
		ErrorLog: door.ErrorLog("console", opts.Logger, nil),
	}
	go func() {
		if err := s.http.Serve(socket.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("console at %s: %w", socket.path, err))
		}
	}()
	return s, nil
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
	i := slices.IndexFunc(s.opts.Sinks, func(c config.Sink) bool { return c.Name == name })
	if i < 0 {
		return config.Sink{}, refuse(http.StatusNotFound, "there is no sink %q in the running configuration; it has %s", name, s.sinkNames())
	}
	return s.opts.Sinks[i], nil
}

func (s *Server) sinkNames() string {
	if len(s.opts.Sinks) == 0 {
		return "none"
	}
	text := ""
	for i, c := range s.opts.Sinks {
		if i > 0 {
			text += ", "
		}
		text += c.Name
	}
	return text
}

// refusal is an error caused by the client.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answerError is the body of an answer other than 200.
type answerError struct {
	Error string `json:"error"`
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	writeJSON(w, status, answerError{err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone, or sees a cut answer
}

// readJSON reads a request's body strictly: an older relay must not pass over an
// unknown field.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	const limit = 1 << 20
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "read the request: %v", err)
	}
	return nil
}
