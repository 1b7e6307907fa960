package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// wire stands between the relay and the simulator. It answers reads of the settings held
// here, and passes on all else.
type wire struct {
	url                  string
	project, environment string

	sim    *workspacesim.Simulator
	server *httptest.Server

	mu      sync.Mutex // guards the fields below
	states  map[string]string
	reads   map[string]int // by the name of the setting
	fault   fault
	held    bool // writes wait, and never get an answer
	writes  int
	refused int    // requests met by the fault
	late    bool   // the project is shown as it was
	earlier []byte // the answer of then; nil: not read yet
}

type fault int

const (
	noFault    fault = iota
	outage           // connections are cut
	revoked          // the key is refused
	removed          // the environment does not exist
	badRequest       // writes are refused
)

func newWire() (*wire, error) {
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	if err != nil {
		return nil, err
	}
	env := sim.Environments()[0]
	w := &wire{sim: sim, project: env.Project, environment: env.Environment, states: firstStates(), reads: map[string]int{}}
	w.server = httptest.NewServer(w)
	w.url = w.server.URL
	return w, nil
}

func (w *wire) close() {
	w.server.CloseClientConnections()
	w.server.Close()
	w.sim.Stop()
}

// ServeHTTP answers a request.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	inEnvironment := strings.Contains(r.URL.Path, "/environments/")
	w.mu.Lock()
	write := r.Method != http.MethodGet
	f, held := w.fault, w.held && write
	if write {
		w.writes++
	}
	if f == outage || f == revoked || f == removed && inEnvironment {
		w.refused++
	}
	w.mu.Unlock()
	switch {
	case f == outage:
		panic(http.ErrAbortHandler)
	case f == revoked:
		refuse(rw, http.StatusUnauthorized, "unauthorized_credentials", "Unauthorized credentials.")
	case f == removed && inEnvironment:
		refuse(rw, http.StatusNotFound, "environment_not_found", "There is no such environment.")
	case f == badRequest && write:
		refuse(rw, http.StatusBadRequest, "bad_request", "The request is refused.")
	case held:
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice a lost client
		<-r.Context().Done()
	case !write && w.answer(rw, r.URL.Path), w.answerEarlier(rw, r):
	default:
		w.sim.Handler().ServeHTTP(rw, r)
	}
}

// answer answers from the states, if the path is of one of them.
func (w *wire) answer(rw http.ResponseWriter, path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range settings {
		if !strings.HasSuffix(path, s.path) {
			continue
		}
		state, ok := w.states[s.name]
		if !ok {
			return false
		}
		w.reads[s.name]++
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"status_code":200,"request_id":"story-%d",%q:%s}`, w.reads[s.name], s.field, state)
		return true
	}
	if strings.HasSuffix(path, "/event_log_streaming/DATADOG") {
		refuse(rw, http.StatusNotFound, "event_log_streaming_config_not_found", "There is none.")
		return true
	}
	return false
}

func refuse(rw http.ResponseWriter, status int, kind, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(map[string]any{
		"status_code": status, "request_id": "story-refusal", "error_type": kind, "error_message": message, "error_url": "",
	})
}

// replace replaces a part of a state, which must occur there once.
func (w *wire) replace(setting, old, now string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := strings.Count(w.states[setting], old); n != 1 {
		return fmt.Errorf("the state of %s has %q %d times:\n%s", setting, old, n, w.states[setting])
	}
	w.states[setting] = strings.Replace(w.states[setting], old, now, 1)
	if !json.Valid([]byte(w.states[setting])) {
		return fmt.Errorf("the state of %s is no JSON any more:\n%s", setting, w.states[setting])
	}
	return nil
}

// looked counts the reads of a setting.
func (w *wire) looked(setting string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads[setting]
}

func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.refused = f, 0
}

func (w *wire) hold(held bool) (writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	return w.writes
}

func (w *wire) counts() (writes, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes, w.refused
}
