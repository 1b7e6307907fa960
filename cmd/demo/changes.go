package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	demoStream        = "AUDITRELAY_DEMO"
	demoSubjectPrefix = "auditrelay"
	demoSubject       = demoSubjectPrefix + ".{project}.{environment}.{type}"
	changedType       = "settings.changed"
	// shownChanges is how many changes the view shows.
	shownChanges = 3
)

// change is a "settings.changed" event for the view.
type change struct {
	Time                          time.Time
	Project, Environment, Subject string
	Detail                        struct {
		Changes []struct {
			Path     string
			Old, New json.RawMessage
		}
	}
}

// changes holds the latest changes of settings, as they pass by in NATS.
type changes struct {
	conn *nats.Conn

	mu     sync.Mutex
	latest []change // the newest last, at most shownChanges; guarded by mu
}

// followChanges subscribes as `nats sub` does.
func followChanges(url string) (*changes, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, fmt.Errorf("follow the changes of settings: %w", err)
	}
	c := &changes{conn: conn}
	if _, err := conn.Subscribe(demoSubjectPrefix+".*.*."+changedType, c.note); err != nil {
		conn.Close()
		return nil, fmt.Errorf("follow the changes of settings: %w", err)
	}
	return c, nil
}

func (c *changes) note(m *nats.Msg) {
	var latest change
	if json.Unmarshal(m.Data, &latest) != nil {
		return // counted all the same, when everything is read back
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = append(c.latest, latest)
	c.latest = c.latest[max(0, len(c.latest)-shownChanges):]
}

func (c *changes) newest() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.latest)
}

func (c *changes) close() { c.conn.Close() }
