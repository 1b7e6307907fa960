package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/readback"
)

// shownChanges is how many changes the view shows.
const shownChanges = 4

// change is a "settings.changed" event, for the view.
type change struct {
	Type                          string
	Time                          time.Time
	Project, Environment, Subject string
	Detail                        struct{ Summary, Severity, Direction string }
}

// inbox is a receiver of webhooks that keeps what it gets in a file, to be read back.
type inbox struct {
	readback.File
	out *os.File

	mu     sync.Mutex
	latest []change // the newest last, at most shownChanges; guarded by mu
}

func newInbox(path string) (*inbox, error) {
	out, err := os.Create(path)
	return &inbox{File: readback.File{Path: path}, out: out}, err
}

// Name implements readback.Destination.
func (i *inbox) Name() string { return "webhook" }

// maxBatch bounds a request, in bytes: more than the relay's batch_bytes and one more event.
const maxBatch = 8 << 20

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var events []json.RawMessage
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBatch)).Decode(&events)
	if err == nil {
		err = i.keep(events)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// keep writes each event as a line, before the answer.
func (i *inbox) keep(events []json.RawMessage) error {
	var lines []byte
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, event := range events {
		lines = append(append(lines, event...), '\n')
		var e struct {
			Type string
			Data change
		}
		if json.Unmarshal(event, &e) == nil && e.Type == changedType {
			i.latest = append(i.latest, e.Data)
		}
	}
	i.latest = i.latest[max(0, len(i.latest)-shownChanges):]
	if _, err := i.out.Write(lines); err != nil {
		return fmt.Errorf("keep what arrived: %w", err)
	}
	return nil
}

// changes are the newest changes that arrived.
func (i *inbox) changes() []change {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.latest)
}
